"""The protocol, checked exhaustively: python ops/proof/check.py

Needs `spin` and a C compiler (Debian: apt-get install spin gcc). Both models are explored in whole, in several sizes;
then each check of the protocol is taken out, and the explorer must find what goes wrong without it. Exit code 0 if the
protocol has no error and every mutant has one.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = Path(__file__).with_name("durable.pml")
#: What is explored: tasks, steps of each, faults, and whether the store may go back.
SIZES = {
    "a step, a fault, a store that goes back": ("-DT=1", "-DS=1", "-DFAULTS=1"),
    "a step, two faults": ("-DT=1", "-DS=1", "-DFAULTS=2", "-DNO_REWIND"),
    "two steps, a fault": ("-DT=1", "-DS=2", "-DFAULTS=1", "-DNO_REWIND"),
    "two tasks, a fault": ("-DT=2", "-DS=1", "-DFAULTS=1", "-DNO_REWIND"),
}
#: The checks, and what each is.
CHECKS = {
    "NO_CLAIM_CHECK": "a claim looks if the task is queued",
    "NO_RECORD_FENCE": "a record shows a claim that holds",
    "NO_COMMIT_FENCE": "a commit shows a claim that holds",
    "NO_NONCE": "a claim is known by more than its number, which a store that went back gives again",
    "NO_NEXT_NONCE": "who asks again what its commit claimed gets no other's claim",
    "NO_REAP": "a dead process's claims are taken back",
    "NO_RECONCILE": "a claim that no process is at is taken back",
    "NO_RESEND": "a job without a message is sent again",
    "NO_DOUBT": "what was begun is in doubt when a claim is taken back",
    "NO_STATED_STEP": "a step that begins on a reserved note is stated where it outlives the process",
    "NO_COUNT_OF_REFUSED": "who is refused after a rewind counts its step",
    "NO_COUNT_OF_FORGOTTEN": "records that a store forgot are counted",
    "NO_MEMORY_OF_DOUBT": "doubts that a store forgot are counted",
}

LOOK_BACK = Path(__file__).with_name("rewound.pml")
#: What is explored of the look back: as above, and how many faults are no releases.
LOOK_BACK_SIZES = {
    "a step, two faults, looks at a store that has all": ("-DT=1", "-DS=1", "-DFAULTS=2", "-DNO_REWIND"),
    "a step, a fault, a look back": ("-DT=1", "-DS=1", "-DFAULTS=1", "-DOTHERS=1"),
    "two steps, a fault, a look back": ("-DT=1", "-DS=2", "-DFAULTS=1", "-DOTHERS=1"),
    "a step, two faults, a look back": ("-DT=1", "-DS=1", "-DFAULTS=2", "-DOTHERS=2"),
    "a step, a release that may be late, a look back": ("-DT=1", "-DS=1", "-DFAULTS=1", "-DOTHERS=0"),
    "two steps, a release that may be late, a look back": ("-DT=1", "-DS=2", "-DFAULTS=1", "-DOTHERS=0"),
}
LOOK_BACK_CHECKS = {
    "NO_LOOK": "a worker looks what the store has forgotten",
    "NO_UNHEARD": "a claim that a task does not know was forgotten",
    "NO_FEWER": "a claim that found fewer steps than there were says that some were forgotten",
    "NO_REDONE": "what was surely forgotten is in doubt, whoever has the task now",
    "NO_COUNTED": "of which claim a doubt is stands beside the count",
    "NO_BEGUN": "what was under way and is not counted is in doubt",
    "NO_NOTE_AGAIN": "what is under way is noted again",
    "NO_UNHEARD_RECORD": "a record that nobody heard of was not broken off",
}
MODELS = {MODEL: (SIZES, CHECKS), LOOK_BACK: (LOOK_BACK_SIZES, LOOK_BACK_CHECKS)}


def explore(model: Path, flags: tuple[str, ...]) -> tuple[int, int]:
    """How many errors are found, stopping at the first, and how many states were seen."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(model, folder)
        subprocess.run(["spin", "-a", *flags, model.name], cwd=folder, check=True, capture_output=True)
        compiled = ["gcc", "-O2", "-w", "-DSAFETY", "-DVECTORSZ=4096", "-DCOLLAPSE", "-o", "pan", "pan.c"]
        subprocess.run(compiled, cwd=folder, check=True)
        said = subprocess.run(["./pan", "-m1000000"], cwd=folder, capture_output=True, text=True, check=True).stdout
    if "max search depth too small" in said or "out of memory" in said:
        raise SystemExit(f"not explored in whole: {said}")
    errors, states = re.search(r"errors: (\d+)", said), re.search(r"(\d+) states, stored", said)
    assert errors is not None
    assert states is not None
    return int(errors[1]), int(states[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants-only", action="store_true")
    given = parser.parse_args()
    if shutil.which("spin") is None or shutil.which("gcc") is None:
        print("spin and gcc are needed: apt-get install spin gcc", file=sys.stderr)
        return 2
    wrong = 0
    for model, (sizes, checks) in MODELS.items():
        for size, flags in {} if given.mutants_only else sizes.items():
            began = time.monotonic()
            errors, states = explore(model, flags)
            wrong += errors
            print(f"{size}: {states:,} states, {errors} errors, {time.monotonic() - began:.0f} s", flush=True)
        for flag, check in checks.items():
            found = next((size for size, flags in sizes.items() if explore(model, (*flags, f"-D{flag}"))[0]), None)
            wrong += found is None
            print(
                f"without it that {check}: {'NO ERROR FOUND' if found is None else f'an error, with {found}'}",
                flush=True,
            )
        print(f"{model.name}: {len(sizes)} sizes explored, {len(checks)} mutants", flush=True)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
