"""Runs whose files ask for other packages than a worker has: each in an environment that is built once.

Packages come from wheels that are made here, of what is installed and of a library in two versions: no index is asked.
"""

import os
import signal
import textwrap
import zipfile
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from runner.client import Client
from runner.testing.fleet import children_of

pytestmark = pytest.mark.timeout(600)

UNCHECKED = (1).to_bytes(4, "little")  #: of PEP 552: whatever its source is
WITHIN = 180  #: seconds for a build and the first start in what was built

CREW = """
    import os, sys
    from runner import Crew, Task

    def say(ctx):
        import demolib
        return f"{demolib.VERSION} {sys.prefix != sys.base_prefix} {os.path.dirname(sys.executable)}"

    crew = Crew(tasks=[Task(name="say", run=say)])
"""
SCRIPT = """
    # /// script
    # dependencies = ["demolib==2.0"]
    # ///
"""
HELD = """
    import os, time
    from runner import Crew, Task

    def trace(line):
        with open({log!r}, "a") as out:
            out.write(line + chr(10))

    def paid():
        trace("paid")
        return "1"

    def hold(ctx):
        import demolib
        first = ctx.step("paid", paid)
        trace(f"held {{os.getpid()}}")
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        return first + demolib.VERSION

    crew = Crew(tasks=[Task(name="hold", run=hold)])
"""
BACKEND = """
    import os, time, zipfile

    def get_requires_for_build_wheel(config_settings=None):
        return []

    def build_wheel(folder, config_settings=None, metadata_directory=None):
        with open({log!r}, "a") as out:
            out.write(f"building {{os.getpid()}}" + chr(10))
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        with zipfile.ZipFile(os.path.join(folder, "demolib-3-py3-none-any.whl"), "w") as wheel:
            wheel.writestr("demolib.py", "VERSION = 'local'")
            info = "demolib-3.dist-info"
            wheel.writestr(f"{{info}}/METADATA", "Metadata-Version: 2.1\\nName: demolib\\nVersion: 3\\n")
            wheel.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(f"{{info}}/RECORD", "")
        return "demolib-3-py3-none-any.whl"
"""
PROJECT = """
    [project]
    name = "demolib"
    version = "3"

    [build-system]
    requires = []
    build-backend = "backend"
    backend-path = ["."]
"""


def needed(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """What is installed for a package, and for all that it needs here."""
    for line in metadata.distribution(name).requires or ():
        one = Requirement(line)
        key = one.name.lower().replace("_", "-")
        if key not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found[key] = metadata.distribution(one.name)
            needed(one.name, found)
    return found


def repacked(own: metadata.Distribution, folder: Path) -> None:
    """A wheel of what is installed, with its bytecode, which is taken as it is: else each environment compiles all."""
    tags = [line[5:] for line in (own.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
    pythons, abis, platforms = zip(*(tag.split("-") for tag in tags), strict=True)
    tag = "-".join(".".join(dict.fromkeys(part)) for part in (pythons, abis, platforms))
    with zipfile.ZipFile(folder / f"{own.name.replace('-', '_')}-{own.version}-{tag}.whl", "w") as wheel:
        for file in own.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in ("INSTALLER", "REQUESTED"):
                wheel.write(Path(str(own.locate_file(file))), str(file))
                compiled = Path(cache_from_source(str(own.locate_file(file)))) if file.suffix == ".py" else None
                if compiled is not None and compiled.exists():
                    name, data = cache_from_source(str(file)), compiled.read_bytes()
                    wheel.writestr(name, data[:4] + UNCHECKED + bytes(8) + data[16:])


@pytest.fixture(name="wheels", scope="module")
def _wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for own in needed("crew-runner", {}).values():
        repacked(own, folder)
    for version in ("1.0", "2.0"):
        with zipfile.ZipFile(folder / f"demolib-{version}-py3-none-any.whl", "w") as wheel:
            info = f"demolib-{version}.dist-info"
            wheel.writestr("demolib.py", f"VERSION = {version!r}")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: demolib\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    return folder


@pytest.fixture(name="built_by_uv")
def _built_by_uv(fleet: Any, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The fleet, with workers that build environments of these wheels."""
    offline = {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_PYTHON_DOWNLOADS": "never"}
    cache = {"UV_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "uv")}
    fleet.settings = {"RUNNER_ENVIRONMENTS": "on", **offline, **cache}
    return fleet


@pytest.fixture(name="crew_with")
def _crew_with(tmp_path: Path) -> Any:
    def write(name: str, code: str = CREW, **beside: str) -> str:
        for file, text in {"crew.py": code, **beside}.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return str(tmp_path / name / "crew.py")

    return write


def builds(fleet: Any) -> int:
    """How many environments were built."""
    return int(fleet.log().count("built the environment"))


def test_two_versions_of_a_library_at_once_each_built_once(built_by_uv: Any, client: Client, crew_with: Any) -> None:
    # Given two workers of one machine, and files that ask for different versions
    fleet = built_by_uv
    files = [crew_with("one", **{"requirements.txt": "demolib==1.0\n"}), crew_with("two", SCRIPT + CREW)]
    fleet.start()
    fleet.start()

    # When several runs of each are submitted at the same time
    runs = [client.submit(file) for file in files for _ in range(2)]
    results = [run.wait(WITHIN) for run in runs]

    # Then each had its own, in an interpreter that was made for it, and each was built once
    assert [result.error for result in results] == [None] * 4
    said = [str(result.result).split() for result in results]
    assert [version for version, *_ in said] == ["1.0"] * 2 + ["2.0"] * 2
    assert {own for _, own, _ in said} == {"True"}
    assert len({place for *_, place in said}) == 2
    assert builds(fleet) == 2

    # And the next run finds it there
    assert client.submit(files[0]).wait(60).status == "completed"
    assert builds(fleet) == 2


def test_what_a_worker_has_is_not_built(built_by_uv: Any, client: Client, crew_with: Any) -> None:
    code = CREW.replace("import demolib", "import pydantic as demolib")
    file = crew_with("enough", code, **{"requirements.txt": "pydantic>=2\n"})
    built_by_uv.start()
    assert client.submit(file).wait(60).status == "completed"
    assert builds(built_by_uv) == 0


def test_a_build_that_fails_fails_its_run_in_the_words_of_uv(
    built_by_uv: Any, client: Client, crew_with: Any, redis: Any, eventually: Any
) -> None:
    # Given an index with a password, which only the worker knows, and does not answer
    index = built_by_uv.settings.pop("UV_NO_INDEX")
    settings = {"UV_INDEX_URL": "http://me:hunter22@127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    worker = built_by_uv.start(**settings, RUNNER_ENVIRONMENT_IDLE="1")
    file = crew_with("none", **{"requirements.txt": "demolib==3.0\n"})
    run = client.submit(file)
    result = run.wait(WITHIN)

    # Then the run says so, in one line, and what is stored and logged has no password
    assert result.status == "failed"
    assert "the environment of requirements.txt could not be built: uv pip: error: " in str(result.error)
    assert "Failed to fetch" in str(result.error)  # of this package or of another: uv asks for all of them at once
    assert "\n" not in str(result.error)
    assert "hunter22" not in dumped(redis)
    assert "hunter22" not in built_by_uv.log() + str(result.error)

    # And when what failed is mended, and a worker has an index that answers, it goes on
    worker.kill_group()
    built_by_uv.settings["UV_NO_INDEX"] = index
    built_by_uv.start()
    Path(file).with_name("requirements.txt").write_text("demolib==2.0\n")
    assert str(client.resume(run.id, accept_code_change=True).wait(WITHIN).result).startswith("2.0 True")


def test_the_next_run_does_not_wait_behind_what_was_sent_again_during_the_build(
    built_by_uv: Any, client: Client, crew_with: Any, redis: Any, tmp_path: Path, eventually: Any
) -> None:
    # Given an environment that takes long to build
    log, built = tmp_path / "log", tmp_path / "built"
    files = {
        "requirements.txt": "./lib\n",
        "lib/pyproject.toml": PROJECT,
        "lib/backend.py": BACKEND.format(log=str(log), go=str(built)),
    }
    file = crew_with("slow", **files)
    built_by_uv.start("--concurrency", "1")
    run = client.submit(file)
    eventually(log.exists, within=WITHIN, why="it is being built")

    # When the job is sent again and again, as no worker has claimed it
    def sent_again() -> int:
        return sum(event.type == "job_resent" for event in run.events())

    so_far = sent_again()
    eventually(lambda: sent_again() > so_far + 2, within=WITHIN, why="it was sent again three times")

    # Then one message waits for the worker that is to come
    assert sum(redis.llen(key) for key in redis.scan_iter("*@*") if redis.type(key) == "list") == 1
    built.touch()
    assert str(run.wait(WITHIN).result).startswith("local True")


@pytest.mark.soak
def test_killed_while_it_is_built_and_in_the_middle_of_a_step(
    built_by_uv: Any, client: Client, crew_with: Any, tmp_path: Path, eventually: Any
) -> None:
    # Given a package that is built of its source, slowly
    log, go, built = tmp_path / "log", tmp_path / "go", tmp_path / "built"
    files = {
        "requirements.txt": "./lib\n",
        "lib/pyproject.toml": PROJECT,
        "lib/backend.py": BACKEND.format(log=str(log), go=str(built)),
    }
    file = crew_with("slow", HELD.format(log=str(log), go=str(go)), **files)
    worker = built_by_uv.start()
    run = client.submit(file)

    def traced(word: str) -> list[str]:
        return [line for line in (log.read_text() if log.exists() else "").splitlines() if line.startswith(word)]

    # When its worker is killed during the build
    eventually(lambda: traced("building"), within=WITHIN)
    worker.kill_group()

    # Then another one builds it from the beginning, and does the task there
    worker = built_by_uv.start()
    eventually(lambda: len(traced("building")) == 2, within=WITHIN)
    built.touch()
    (held,) = eventually(lambda: traced("held"), within=WITHIN)

    # When all of the worker in that environment is killed in the middle of the task
    (main,) = [pid for pid in children_of(worker.pid) if int(held.split()[1]) in children_of(pid)]
    os.kill(main, signal.SIGKILL)

    # Then its parent starts it again, with what it had built, and no step is done twice
    eventually(lambda: len(traced("held")) == 2, within=WITHIN)
    go.touch()
    result = run.wait(60)
    assert (result.result, result.recoveries) == ("1local", 1)
    assert (len(traced("paid")), len(traced("building")), builds(built_by_uv)) == (1, 2, 1)


def test_off_by_a_setting(built_by_uv: Any, client: Client, crew_with: Any) -> None:
    built_by_uv.start(RUNNER_ENVIRONMENTS="off")
    result = client.submit(crew_with("off", **{"requirements.txt": "demolib==1.0\n"})).wait(60)
    assert "demolib" in str(result.error)
    assert result.status == "failed"
    assert builds(built_by_uv) == 0


def dumped(redis: Any) -> str:
    """All that is stored of runs and workers, but for what is compressed."""
    read = {"hash": redis.hgetall, "stream": redis.xrange, "string": redis.get}
    return "".join(str(read[kind](key)) for key in redis.scan_iter() if (kind := redis.type(key)) in read)
