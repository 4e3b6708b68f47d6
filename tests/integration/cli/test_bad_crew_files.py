"""A crew file that is none: one clear line and exit code 2, and nothing is stored."""

import signal
from pathlib import Path

import pytest

WHOLE = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
    number = 3
"""

WRITE_ONE = ": write crew = Crew(...) in it, or a function without arguments that returns one"

CREWS = {
    "a script of no framework": (
        "def ask():\n    return 1\n\nif __name__ == '__main__':\n    print(ask())\n",
        "crew.py: no crew, flow, agent or graph in it; it defines ask (a function): name crew.py:__main__() to run it "
        "as a script, or " + WRITE_ONE.removeprefix(": "),
    ),
    "a script of no framework, without such a block": (
        "def ask():\n    return 1\n\nask()\n",
        "crew.py: no crew, flow, agent or graph in it; it defines ask (a function): name crew.py:__main__() to run it "
        "as a script, or " + WRITE_ONE.removeprefix(": "),
    ),
    "syntax error": (
        "from runner import Crew\ncrew = Crew(tasks=[\n",
        "crew.py:2: SyntaxError: '[' was never closed",
    ),
    "NUL bytes": (
        "crew\0 = 3\n",
        "crew.py: SyntaxError: source code string cannot contain null bytes",
    ),
    "exception at import": (
        "from runner import Crew\n\n{}['topic']\n",
        "crew.py:3: KeyError: 'topic'",
    ),
    "exit at import": (
        "import sys\nsys.exit(3)\n",
        "crew.py:2: the file exits the process when it is imported (exit 3)",
    ),
    "exit at import, as if all were well": (
        "import sys\nsys.exit()\n",
        "crew.py:2: the file exits the process when it is imported (exit 0)",
    ),
    "module missing": (
        "import pandas_of_nowhere\n",
        "crew.py:1: no module named 'pandas_of_nowhere': install it where you submit from, too",
    ),
    "the end of its process": (
        "import os\nos._exit(9)\n",
        "crew.py: the crew file ended the process that reads it (exit 9)",
    ),
    "a key that nobody pressed": (
        "\nraise KeyboardInterrupt\n",
        "crew.py:2: the file raises KeyboardInterrupt when it is imported",
    ),
    "no crew": (
        "from runner import Task\n\ndef work(ctx): return ''\n\nx = 3\n",
        "crew.py: no crew or flow in it; it defines work (a function), x (an int)" + WRITE_ONE,
    ),
    "empty file": (
        "",
        "crew.py: no crew, flow, agent or graph in it; it defines nothing" + WRITE_ONE,
    ),
    "two crews": (
        "from runner import Crew, Task\ndef one(): return Crew(tasks=[Task(run=print)])\nday, night = one(), one()\n",
        "crew.py has 2 crews: day, night; name one, as in crew.py:day",
    ),
    "no tasks": (
        "from runner import Crew\ncrew = Crew(tasks=[])\n",
        "the crew has no tasks",
    ),
    "a cycle": (
        """
        from runner import Crew, Process, Task
        a, b, c = (Task(name=name, run=print) for name in "abc")
        a.context, b.context, c.context = [c], [a], [b]
        crew = Crew(tasks=[a, b, c], process=Process.graph)
        """,
        "the tasks wait for each other: a -> c -> b -> a",
    ),
    "a cycle in a sequential crew": (
        """
        from runner import Crew, Task
        a, b = (Task(name=name, run=print) for name in "ab")
        a.context, b.context = [b], [a]
        crew = Crew(tasks=[a, b])
        """,
        "the tasks wait for each other: a -> b -> a",
    ),
    "a task that waits for itself": (
        """
        from runner import Crew, Task
        a = Task(name="a", run=print)
        a.context = [a]
        crew = Crew(tasks=[a])
        """,
        "the tasks wait for each other: a -> a",
    ),
    "duplicate names": (
        "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=print), Task(name='a', run=print)])\n",
        "two tasks are called 'a': give each its own name",
    ),
    "unknown context": (
        """
        from runner import Crew, Task
        crew = Crew(tasks=[Task(name="a", run=print, context=[Task(name="lost", run=print)])])
        """,
        "task 'a' has 'lost' in its context, which is not one of the crew's tasks",
    ),
    "context that comes later": (
        """
        from runner import Crew, Task
        late = Task(name="late", run=print)
        crew = Crew(tasks=[Task(name="early", run=print, context=[late]), late])
        """,
        "task 'early' has 'late' in its context, which comes later: put it first, or use Process.graph",
    ),
    "no run": (
        "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', description='think')])\n",
        "task 'a' has neither run= nor agent=: give it one of them",
    ),
    "run without an argument": (
        "from runner import Crew, Task\n\ndef work(): ...\n\ncrew = Crew(tasks=[Task(name='a', run=work)])\n",
        "crew.py:5: Task.run: work() must take one argument, the context, and require no other",
    ),
    "a field nobody knows": (
        "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=print, retries=3)])\n",
        "crew.py:2: Task has no field 'retries'; did you mean 'max_retries'?",
    ),
    "a value of the wrong kind": (
        "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=print, timeout=-1)])\n",
        "crew.py:2: Task.timeout: Input should be greater than 0 (got -1)",
    ),
    "a checkpoint event nobody knows": (
        """
        from runner import CheckpointConfig, Crew, Task
        crew = Crew(tasks=[Task(run=print)], checkpoint=CheckpointConfig(on_events=["task_complete"]))
        """,
        "crew.py:3: CheckpointConfig.on_events: unknown checkpoint event 'task_complete': "
        "did you mean 'task_completed'?",
    ),
    "a crew whose name has a line break": (
        "from runner import Crew, Task\ncrew = Crew(name='a\\nb', tasks=[Task(run=print)])\n",
        "the crew name 'a\\nb' has control characters: leave them out",
    ),
    "a crew whose name is no text": (
        "from runner import Crew, Task\ncrew = Crew(name='a\\udcff', tasks=[Task(run=print)])\n",
        "the crew name 'a\\udcff' contains half of a surrogate pair, which is not valid UTF-8",
    ),
    "a task whose name is no text": (
        "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a\\udcff', run=print)])\n",
        "the task name 'a\\udcff' contains half of a surrogate pair, which is not valid UTF-8",
    ),
    "a flow whose name is no text": (
        "from runner import Flow, start\nclass F(Flow):\n    name='\\udcff'\n    @start()\n    def a(self): return 1\n",
        "the crew name '\\udcff' contains half of a surrogate pair, which is not valid UTF-8",
    ),
    "a method whose name has a line break": (
        "from runner import Flow, start\nclass F(Flow):\n    pass\nsetattr(F, 'a\\nb', start()(lambda self: 1))\n",
        "the task name 'a\\nb' has control characters: leave them out",
    ),
    "a listener to what is no text": (
        "from runner import Flow, listen, router, start\nclass F(Flow):\n    @start()\n    def a(self): return 1\n"
        "    @router(a)\n    def b(self): return '\\udcff'\n    @listen('\\udcff')\n    def c(self): return 2\n",
        None,
    ),
    "a name with a line break": (
        "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a\\nb', run=print)])\n",
        "the task name 'a\\nb' has control characters: leave them out",
    ),
}


@pytest.mark.parametrize("what", CREWS)
def test_a_bad_crew_file(what, write_crew, refused):
    code, line = CREWS[what]
    said = refused("submit", write_crew(code))
    assert said == line if line else "contains half of a surrogate pair, which is not valid UTF-8, in " in said, said


def test_a_file_that_never_ends_is_interrupted(write_crew, start, tmp_path, eventually, redis):
    told = tmp_path / "pid"
    file = write_crew(f"import os\nopen({str(told)!r}, 'w').write(f'{{os.getpid()}}.')\nwhile True: pass\n")
    submit = start("submit", file)
    eventually(lambda: told.exists() and told.read_text().endswith("."), why="it is being read")
    submit.send_signal(signal.SIGINT)
    out, err = submit.communicate(timeout=60)
    assert (submit.returncode, out, err.strip()) == (130, "", "")
    assert not redis.keys()
    pid = told.read_text().rstrip(".")
    eventually(lambda: not Path("/proc", pid).exists(), why="the process that read it has ended")


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_bad_crew_file_with_and_without_json(json, write_crew, refused):
    assert refused("submit", write_crew("1 +"), *json) == "crew.py:1: SyntaxError: invalid syntax"


def test_no_such_file(refused):
    assert refused("submit", "nowhere.py") == "no such file: nowhere.py"


def test_a_directory(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    line = refused("submit", tmp_path / "empty")
    assert line == f"{tmp_path / 'empty'} is a directory; it has no Python file"


def test_a_wrong_name_after_the_colon(refused, write_crew):
    path = write_crew(WHOLE)
    assert refused("submit", f"{path}:crow") == "crew.py has no 'crow'; did you mean 'crew'?"
    assert refused("submit", f"{path}:number") == "crew.py:number is an int, not a crew; crew.py has crew"
