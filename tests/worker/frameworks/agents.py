"""The agents of `ops/chaos/framework_agents.py`, as far as they go together with the tests' tools."""

import runpy
from pathlib import Path

_CHAOS = Path(__file__).parents[3] / "ops" / "chaos"
_FOUND = runpy.run_path(str(_CHAOS / "framework_agents.py"))
AGENTS: dict[str, str] = _FOUND["AGENTS"]
OUTPUTS: dict[str, str] = _FOUND["OUTPUTS"]
CONTEXTS: dict[str, str] = runpy.run_path(str(_CHAOS / "context_agents.py"))["CONTEXTS"]
HOOKS: dict[str, str] = runpy.run_path(str(_CHAOS / "hook_agents.py"))["HOOKS"]
HOOKS_ELSEWHERE: dict[str, str] = runpy.run_path(str(_CHAOS / "hook_agents_elsewhere.py"))["ELSEWHERE"]
