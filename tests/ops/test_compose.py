"""docker-compose.yml, tried without Docker: each service's own command line runs here as a process.

What Docker would do is done by hand: the variables, the image's entry point and environment, the names of hosts, the
mounted file; `redis-server` and `redis-cli` are stood in for.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli import VERBS
from runner.client.embedded import find_binary

from ..support import interpreters

AUTH = "me:password"
KEY = "a bundle key of this test"
PASSWORD = "of-this-test"
HEALTH_CLIENT = """#!{python}
import os, socket, sys
assert sys.argv[1:] == ["ping"]
with socket.create_connection(("127.0.0.1", {port}), 5) as server:
    for command in ("AUTH " + os.environ["REDISCLI_AUTH"], "PING"):
        server.sendall(command.encode() + b"\\r\\n")
        said = server.recv(100).decode().strip().lstrip("+")
    print(said)
"""


def entry_point(root: Path) -> list[str]:
    """The image's."""
    lines = (root / "ops/Dockerfile").read_text().splitlines()
    return list(json.loads(next(line.removeprefix("ENTRYPOINT ") for line in lines if line.startswith("ENTRYPOINT "))))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@dataclass
class Local:
    """The compose file's services as processes of this machine."""

    root: Path
    folder: Path
    services: dict[str, Any]
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    redis_port: int = field(default_factory=free_port)
    flower_port: int = field(default_factory=free_port)

    def stand_ins(self) -> None:
        """`redis-server` with our port and folder, `redis-cli` that can ping."""
        data, programs = self.folder / "data", self.folder / "bin"
        data.mkdir()
        programs.mkdir()
        server = f'exec {find_binary()} "$@" --port {self.redis_port} --bind 127.0.0.1 --dir {data}'
        (programs / "redis-server").write_text(f"#!/bin/sh\n{server}\n")
        (programs / "redis-cli").write_text(HEALTH_CLIENT.format(python=sys.executable, port=self.redis_port))
        for program in programs.iterdir():
            program.chmod(0o755)

    def environment(self, name: str) -> dict[str, str]:
        given = self.services[name].get("environment", {})
        return {
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "RUNNER_CACHE_DIR": str(self.folder / "cache"),
            **{key: self._local(str(value)) for key, value in given.items()},
        }

    def _local(self, text: str) -> str:
        for there, here in (
            ("redis:6379", f"127.0.0.1:{self.redis_port}"),
            ("127.0.0.1:5555", f"127.0.0.1:{self.flower_port}"),
            ("${REDIS_PASSWORD}", PASSWORD),
            ("${RUNNER_BUNDLE_KEY:-}", KEY),
            ("${RUNNER_FLOWER_AUTH:?set RUNNER_FLOWER_AUTH=user:password}", AUTH),
        ):
            text = text.replace(there, here)
        assert "${" not in text, f"a variable that this test does not know: {text}"
        return text

    def start(self, name: str) -> None:
        service = self.services[name]
        command = service["command"]
        if "build" in service:
            command = entry_point(self.root) + command
        for volume in service.get("volumes", []):
            here, there, *_ = volume.split(":")
            if here.startswith("./"):
                command = [str(self.root / here) if word == there else word for word in command]
        command = [re.sub(r"^\$\{REDIS_PASSWORD:\?set .*\}$", PASSWORD, word) for word in command]
        if name == "flower":
            command = [*command, "--port", str(self.flower_port)]
        environment = self.environment(name)
        program = shutil.which(command[0], path=environment["PATH"])
        assert program, command
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                [program, *command[1:]], env=environment, cwd=self.folder, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def healthy(self, name: str) -> bool:
        """What the service's own health check says."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        command = ["/bin/sh", "-c", *command] if kind == "CMD-SHELL" else command
        found = subprocess.run(
            [self._local(word) for word in command], env=self.environment(name), capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        return found.returncode == 0

    def end(self) -> None:
        for process in self.started.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return found


@pytest.fixture
def local(root: Path, compose: dict[str, Any]) -> Iterator[Local]:
    folder = Path(tempfile.mkdtemp(prefix="rc-"))
    one = Local(root, folder, compose["services"])
    one.stand_ins()
    yield one
    one.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
def test_every_service_starts_is_healthy_and_ends(
    local: Local, small_crew: Path, eventually: Callable[..., Any]
) -> None:
    order = ["redis", "worker", "supervisor", "flower"]
    assert sorted(local.services) == sorted(order)
    for name in order:
        assert not local.healthy(name), f"{name} is healthy before anything was started"
    for name in order:
        local.start(name)
        if name in ("redis", "worker"):  # the others' checks look at these
            eventually(lambda name=name: local.healthy(name), why=f"{name} is healthy")

    done = interpreters.run("-m", "runner", "submit", small_crew, "--json", env=local.environment("worker"))
    assert done.returncode == 0, done.stderr + local.log("worker")
    assert json.loads(done.stdout)["result"] == "one, two"
    for name in order:
        eventually(lambda name=name: local.healthy(name), why=f"{name} is healthy")
        assert local.started[name].poll() is None, local.log(name)

    def seen_by_flower() -> list[Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{local.flower_port}/workers?json=1")
        request.add_header("Authorization", "Basic " + b64encode(AUTH.encode()).decode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return list(json.load(answer)["data"])

    eventually(seen_by_flower, why="Flower has heard of the worker")
    assert len(seen_by_flower()) == 2  # one of processes, one of threads

    for name in reversed(order):
        local.started[name].terminate()
        grace = int(local.services[name]["stop_grace_period"].removesuffix("s"))
        assert local.started[name].wait(grace) == 0, local.log(name)
        assert "Traceback" not in local.log(name)


def test_redis_wants_its_password(local: Local, eventually: Callable[..., Any]) -> None:
    local.start("redis")
    eventually(lambda: local.healthy("redis"), why="redis is healthy")
    url = local.environment("worker")["RUNNER_REDIS_URL"]
    assert f":{PASSWORD}@" in url
    for wrong in ("", ":wrong@"):
        environment = {**local.environment("worker"), "RUNNER_REDIS_URL": url.replace(f":{PASSWORD}@", wrong)}
        found = interpreters.run("-m", "runner", "runs", env=environment)
        assert found.returncode == 4, found.stderr


def test_what_runs_is_confined(root: Path, compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert service["mem_limit"]
        assert service["cpus"]
        assert service["pids_limit"]
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert compose["services"]["redis"]["user"], "the image's entry point would need capabilities to become another"
    assert ":?set REDIS_PASSWORD" in compose["services"]["redis"]["command"][-1]
    # Kubernetes: what the "restricted" Pod Security Standard asks for
    pod = yaml.safe_load((root / "ops/kubernetes/worker.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        places = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert places == {"/tmp", "/home/runner", "/var/cache/crew-runner"}
    # systemd
    for unit in (root / "ops/systemd").iterdir():
        lines = set(unit.read_text().splitlines())
        assert {
            "NoNewPrivileges=true", "CapabilityBoundingSet=", "ProtectSystem=strict", "ProtectHome=true",
            "PrivateDevices=true", "ProtectKernelTunables=true", "SystemCallFilter=@system-service",
            "RestrictNamespaces=true", "UMask=0077",
        } <= lines, unit.name  # fmt: skip
        assert any(line.startswith("MemoryMax=") for line in lines)


@pytest.mark.soak
def test_redis_keeps_what_it_is_given(local: Local, eventually: Callable[..., Any]) -> None:
    """As `runner doctor` sees it: append-only file on, no eviction."""
    local.start("redis")
    eventually(lambda: local.healthy("redis"), why="redis is healthy")
    found = interpreters.run("-m", "runner", "doctor", "--json", env=local.environment("worker"))
    told = {finding["what"]: finding["ok"] for finding in json.loads(found.stdout)}
    assert told["append-only file"]
    assert told["eviction"]


def test_a_worker_gets_longer_to_stop_than_its_tasks_get_to_end(root: Path, compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    drain = float(worker["environment"]["RUNNER_DRAIN_TIMEOUT"])
    assert float(worker["stop_grace_period"].removesuffix("s")) >= drain + 10
    kubernetes = yaml.safe_load((root / "ops/kubernetes/worker.yaml").read_text())
    pod = kubernetes["spec"]["template"]["spec"]
    drain = float(next(one["value"] for one in pod["containers"][0]["env"] if one["name"] == "RUNNER_DRAIN_TIMEOUT"))
    assert pod["terminationGracePeriodSeconds"] >= drain + 10
    unit = (root / "ops/systemd/crew-runner-worker.service").read_text()
    assert "KillMode=mixed" in unit
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0]) >= drain + 10


def test_nothing_is_open_to_the_network_and_flower_wants_a_password(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service["restart"] == "unless-stopped"
    assert ":?" in compose["services"]["flower"]["environment"]["RUNNER_FLOWER_AUTH"]


def test_every_command_is_one_and_every_variable_is_read(root: Path, compose: dict[str, Any]) -> None:
    code = "\n".join(
        path.read_text()
        for folder in (
            "runner",
            "tasks",
            "providers",
            "tests/worker/adapters",
            "tests/integration/providers",
        )  # the last two for what CI's canary and the soak tell the tests
        for path in (root / folder).rglob("*.py")
    )
    files = [root / "docker-compose.yml", *(path for path in (root / "ops").rglob("*") if path.is_file())]
    given = {path: path.read_text() for path in files if "bench" not in path.parts and path.suffix != ".pyc"}
    for path, text in given.items():
        for name in set(re.findall(r"\bRUNNER_[A-Z_]+", text)):
            assert name in code, f"{path.name} sets {name}, which nothing reads"
    commands = [service["command"] for name, service in compose["services"].items() if name != "redis"]
    for unit in (root / "ops/systemd").iterdir():
        commands.append(
            re.findall(r"^ExecStart=/opt/crew-runner/bin/runner (.+)$", unit.read_text(), re.MULTILINE)[0].split()
        )
    assert {command[0] for command in commands} <= set(VERBS)


def test_the_image_holds_what_the_package_is_built_from(root: Path, tmp_path: Path) -> None:
    """The files that the Dockerfile copies, and no others, make a whole wheel; and Docker is given them."""
    docker = (root / "ops/Dockerfile").read_text()
    ignore = (root / "ops/Dockerfile.dockerignore").read_text().splitlines()
    copied = [line.split()[1:] for line in docker.splitlines() if re.match(r"COPY (?!--from)", line)]
    sources = [source for *names, _ in copied for source in names]
    assert ignore[0] == "*"
    assert {line[1:] for line in ignore if line.startswith("!")} == set(sources)
    context = tmp_path / "src"
    context.mkdir()
    for source in sources:
        if (root / source).is_dir():
            shutil.copytree(root / source, context / source, symlinks=True)
        else:
            shutil.copy(root / source, context / source)
    wheels = tmp_path / "wheels"
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, "."],
        cwd=context, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in ("runner", "tasks", "providers"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".py", ".lua") and not path.is_symlink():
                name = str(path.relative_to(root))
                assert (name if folder == "runner" else f"runner/{name}") in names
    assert "RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ." in docker
    assert re.search(r"^USER runner$", docker, re.MULTILINE)
    assert entry_point(root) == ["runner"]
