"""The tasks of the crew: each takes its context and returns what the next one needs, as JSON or text."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from chart import scatter
from graph import resolve
from metrics import measure_files
from ranking import rank_all
from report import write_report
from sources import find_sources, interpreter, into_chunks, into_shares, library_root, module_name

SHARES = [f"analyse_{number}" for number in range(1, 9)]  # more than most have workers: one that comes late finds work


def collect(ctx: Any) -> dict[str, Any]:
    """Find the source files and deal them out: a share for each analysing task."""
    root = library_root(ctx.inputs)
    sources = find_sources(root)
    if ctx.inputs.get("tests") == "no":
        sources = [source for source in sources if not source.is_test]
    shares = into_shares(into_chunks(sources), SHARES)
    ctx.log(f"{len(sources)} files, {sum(source.size for source in sources):,} bytes, below {root}")
    return {"python": interpreter(), "files": len(sources), "shares": shares}


def analyse(ctx: Any) -> dict[str, Any]:
    """Measure one share. Each chunk is a step: when the task resumes, recorded chunks are not measured again."""
    collected = ctx.outputs["collect"].json_dict
    if interpreter() != collected["python"]:  # its files would differ from those that were dealt out
        raise RuntimeError(f"the files are those of {collected['python']}, but this worker runs {interpreter()}")
    root = str(library_root(ctx.inputs))
    known = {module_name(path) for chunks in collected["shares"].values() for paths in chunks for path in paths}
    chunks = collected["shares"][ctx.task.name]
    share: dict[str, Any] = {"modules": [], "skipped": [], "opcodes": Counter()}
    for done, paths in enumerate(chunks, start=1):
        measured = ctx.step(f"{module_name(paths[0])} +{len(paths) - 1}", measure_files, root, paths)
        for module in measured["modules"]:
            share["modules"].append(with_imports_resolved(module, known))
        share["skipped"] += measured["skipped"]
        share["opcodes"].update(measured["opcodes"])
        ctx.progress(done, len(chunks), module_name(paths[-1]))
    ctx.log(f"{len(share['modules'])} modules measured, {len(share['skipped'])} skipped")
    return share


def rank(ctx: Any) -> dict[str, Any]:
    """Join the shares. What one share cannot know is found out here: rankings, imports, copies."""
    shares = [ctx.outputs[name].json_dict for name in SHARES]
    opcodes: Counter[str] = Counter()
    for share in shares:
        opcodes.update(share["opcodes"])
    return {
        "python": ctx.outputs["collect"].json_dict["python"],
        "title": title(ctx.inputs),
        "skipped": sorted(skipped for share in shares for skipped in share["skipped"]),
        **rank_all([module for share in shares for module in share["modules"]], opcodes),
    }


def plot(ctx: Any) -> str:
    """Draw the packages."""
    return scatter(ctx.outputs["rank"].json_dict)


def report(ctx: Any) -> str:
    """Write up the findings. The last task's text is the result of the run."""
    return write_report(ctx.outputs["rank"].json_dict, picture="stdlib_audit.svg")


def with_imports_resolved(module: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """The module, its imported names replaced by the modules they come from."""
    eager = resolve(module["imports"], known)
    return {**module, "imports": eager, "late": sorted(set(resolve(module["late"], known)) - set(eager))}


def title(inputs: Mapping[str, Any]) -> str:
    """What was audited."""
    return str(inputs["root"]) if inputs.get("root") else "The Python standard library"
