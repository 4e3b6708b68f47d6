"""What OpenAI's client imports of its types: what a call needs, and the rest when it is looked up."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def told(code: str) -> Any:
    """What code prints as JSON, in a process of its own."""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


FIRST = """
import json, sys, threading
from runner.llm.clients import preloading
preloading.preload("openai")

def types():
    return sum(name.startswith("openai.types.") for name in sys.modules)

few = types()
"""


def test_a_third_of_the_types_is_imported_for_a_call() -> None:
    few, most = told(
        FIRST
        + "import openai.types; openai.types.Batch, openai.types.responses.Response; print(json.dumps([few, types()]))"
    )
    assert few <= most / 3


USES = [
    "from openai.types import Batch",
    "from openai.types import *; Batch",
    "import openai.types.batch; openai.types.batch.Batch",
    "import openai; openai.types.Batch",
    "import openai; assert 'Batch' in dir(openai.types)",
    "from openai.types.responses import Response",
    "from openai.types.responses.response import Response; Response.model_validate",
    "import openai; openai.types.responses.Response; openai.OpenAI(api_key='none').responses.create",
]
EACH_ALONE = """
import os, traceback

def ends(use):
    if not (child := os.fork()):
        try:
            exec(use)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_any_of_them_is_there_however_it_is_asked_for() -> None:
    """Each in a process of its own, forked from one that has imported what a call needs."""
    ends = f"print(json.dumps([ends(use) for use in {USES!r}]))"
    assert dict(zip(USES, told(FIRST + EACH_ALONE + ends), strict=True)) == dict.fromkeys(USES, 0)


def test_they_are_what_they_are_without_it() -> None:
    listed = "print(json.dumps([sorted(set(dir(one)) - {'__getattr__', '__dir__'}) for one in (types, responses)]))"
    first = "from openai import types\nfrom openai.types import responses\n"
    assert told(FIRST + first + listed) == told("import json\n" + first + "dir(types.Batch)\n" + listed)


def test_what_is_not_there_is_an_attribute_error() -> None:
    code = """
import openai
try:
    openai.types.Nonsense
except AttributeError as error:
    print(json.dumps(str(error)))
"""
    assert told(FIRST + code) == "module 'openai.types' has no attribute 'Nonsense'"


def test_threads_that_look_at_once_all_find_it() -> None:
    code = """
import openai
found = []
def look(): found.append(openai.types.WebhookEvent if hasattr(openai.types, "WebhookEvent") else openai.types.Video)
threads = [threading.Thread(target=look) for _ in range(8)]
[one.start() for one in threads]; [one.join() for one in threads]
print(json.dumps(len(found)))
"""
    assert told(FIRST + code) == 8


def test_a_process_that_is_forked_while_a_thread_looks_one_up_can_do_so_itself(tmp_path: Path) -> None:
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text("import builtins\nbuiltins.meanwhile()\nvalue = 1\n")
    code = f"""
import builtins, json, os, sys, threading
from runner.core import deferred
sys.path.insert(0, {str(tmp_path)!r})
deferred.defer("slow_package")
import slow_package

begun, forked = threading.Event(), threading.Event()
builtins.meanwhile = lambda: (begun.set(), forked.wait(60))
thread = threading.Thread(target=lambda: slow_package.value)
thread.start()
begun.wait(60)
if (pid := os.fork()) == 0:
    builtins.meanwhile = int
    os._exit(0 if slow_package.value == 1 else 1)
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
forked.set()
thread.join()
print(json.dumps([ended, slow_package.value]))
"""
    assert told(code) == [0, 1]


def test_one_whose_code_fails_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("import builtins\nbuiltins.tried.append(1)\nvalue = 1 / (len(tried) - 1)\n")
    code = f"""
import builtins, json, sys
from runner.core import deferred
sys.path.insert(0, {str(tmp_path)!r})
builtins.tried = []
deferred.defer("failing")
import failing
try:
    failing.value
except ZeroDivisionError:
    print(json.dumps([failing.value, len(tried)]))
"""
    assert told(code) == [1.0, 2]


def test_a_first_call_starts_no_process_to_find_out_what_machine_this_is() -> None:
    code = """
import contextlib, openai
started = []
sys.addaudithook(lambda event, _: event in ("subprocess.Popen", "os.fork", "os.posix_spawn") and started.append(event))
with contextlib.suppress(openai.APIConnectionError):
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1:9", max_retries=0)
    client.chat.completions.create(model="m", messages=[])
print(json.dumps(started))
"""
    assert told(FIRST + code) == []
