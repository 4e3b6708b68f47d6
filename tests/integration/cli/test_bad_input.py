"""Bad input: each gives one clear line and exit code 2, and nothing is stored."""

import json
import os
import threading
from typing import Any

import pytest

from runner.client import Client
from runner.core.errors import BadInput, UsageError

ITSELF: list[Any] = []
ITSELF.append(ITSELF)


GOOD = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""


NEEDY = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "", description="About {topic}, in {tone}")])
"""


def test_a_missing_input(refused, write_crew):
    path = write_crew(NEEDY)
    assert refused("submit", path) == (
        "the crew needs the inputs 'tone' and 'topic': give each with --input tone=... or inputs={...}"
    )
    assert refused("submit", path, "--input", "tone=dry") == (
        "the crew needs the input 'topic': give it with --input topic=... or inputs={...}"
    )
    assert refused("submit", path, "--input", "tone=dry", "--input", "topc=owls") == (
        "the crew needs the input 'topic': give it with --input topic=... or inputs={...}; given, and not named by the "
        "crew: 'topc' (did you mean 'topic'?)"
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{topic: 1}", "is not JSON: Expecting property name enclosed in double quotes: column 2"),
        ("[1, 2]", "must hold a JSON object, not a list"),
        ("", "is not JSON: Expecting value: column 1"),
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "is not UTF-8 text"),
        ('{"a": ' + "[" * 10_000, "is nested too deeply: more than 200 lists and objects"),
        ('{"a": ' + "9" * 5_000, "is not JSON: Exceeds the limit (4300 digits)"),
    ],
)
def test_an_inputs_file(content, line, refused, write_crew, tmp_path):
    file = tmp_path / "inputs.json"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refused("submit", write_crew(GOOD), "--inputs", file).startswith(f"--inputs {file} {line}")


def test_an_inputs_file_that_is_too_large(refused, write_crew, tmp_path):
    file = tmp_path / "inputs.json"
    with file.open("wb") as written:
        written.truncate(600 * 2**20)  # takes no place, and no more of it is read than has to be
    assert refused("submit", write_crew(GOOD), "--inputs", file) == (
        f"--inputs {file}: more than 64 MiB of JSON; put large data into a file and pass its name"
    )


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ({"a": "x" * (64 * 2**20)}, "the inputs: more than 64 MiB of JSON; put large data into a file"),
        ({"a": ITSELF}, "the input 'a' is nested too deeply: more than 200 lists and objects"),
        ({"a": 10**5000}, "the inputs are not JSON: Exceeds the limit"),
        ({"a": {1, 2}}, "the inputs are not JSON: Object of type set is not JSON serializable"),
        ({"": 1}, "an input has an empty name"),
        ({"a\0": 1}, r"the name of the input 'a\x00' has control characters: leave them out"),
        ({1: 1}, "the name of an input must be text, not 1"),
    ],
    ids=["large", "in itself", "a long number", "no JSON", "without a name", "controls in its name", "no text"],
)
def test_inputs_for_a_client(inputs, line, write_crew, server, redis):
    with Client(server.url) as client, pytest.raises(BadInput) as error:
        client.submit(write_crew(GOOD), inputs)
    assert str(error.value).startswith(line)
    assert redis.dbsize() == 0


def test_inputs_as_deep_as_they_may_be_are_taken(write_crew, server):
    deep = json.loads("[" * 200 + "]" * 200)
    with Client(server.url) as client:
        assert client.submit(write_crew(GOOD), {"a": deep}).id


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (r'{"a": ["\ud800"]}', "the input 'a' contains half of a surrogate pair, which is not valid UTF-8"),
        (r'{"\ud800": 1}', r"the input '\ud800' contains half of a surrogate pair, which is not valid UTF-8"),
        ('{"": 1}', "an input has an empty name"),
        (r'{"a\u0000b": 1}', r"the name of the input 'a\x00b' has control characters: leave them out"),
        (f'{{"a": {"[" * 201}{"]" * 201}}}', "the input 'a' is nested too deeply: more than 200 lists and objects"),
    ],
)
def test_an_input_that_no_store_takes(content, line, refused, write_crew, tmp_path):
    (tmp_path / "inputs.json").write_text(content)
    assert refused("submit", write_crew(GOOD), "--inputs", tmp_path / "inputs.json") == line


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        ("topic", "--input 'topic' is neither name=text nor name:=JSON"),
        ("=owls", "--input '=owls' is neither name=text nor name:=JSON"),
        (":=3", "--input ':=3' is neither name=text nor name:=JSON"),
        ("n:=" + "[" * 10_000, "--input n is nested too deeply: more than 200 lists and objects"),
        ("n:=three", "--input n is not JSON: Expecting value: column 1"),
        ("n=\udcff", "--input 'n' is not UTF-8 text"),
    ],
)
def test_an_input(pair, line, refused, write_crew):
    assert refused("submit", write_crew(GOOD), "--input", pair) == line


def test_too_large_a_bundle(refused, write_crew):
    path = write_crew(GOOD, data__csv="x" * 5000)
    line = refused("submit", path, "--bundle-limit", "4096")
    assert line.startswith(
        "the files beside crew.py are over the bundle limit of 4.0 KiB (biggest seen: data.csv 4.9 KiB"
    )
    assert "--bundle-limit" in line
    assert line == refused("submit", path, RUNNER_BUNDLE_LIMIT="4096")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ("task_complete", "unknown checkpoint event 'task_complete': did you mean 'task_completed'?"),
        ("nonsense", 'unknown checkpoint event \'nonsense\': such as "task_completed", or "*"'),
    ],
)
def test_an_event_nobody_knows(event, line, refused, write_crew):
    assert refused("submit", write_crew(GOOD), "--checkpoint-on", event).startswith(line)


def test_an_empty_id(refused, write_crew):
    assert refused("submit", write_crew(GOOD), "--id", " ") == "--id must not be empty"


def test_an_id_of_two_lines(refused, write_crew):
    line = refused("submit", write_crew(GOOD), "--id", "a b\nc")
    assert line == "--id 'a b\\nc' has control characters: leave them out"


def test_an_id_of_a_batch_is_as_one_of_a_run(refused, write_crew, tmp_path, server):
    (each := tmp_path / "inputs.jsonl").write_text("{}\n")
    for key, line in (("a b\nc", "has control characters"), ("x" * 201, "has 201 characters"), (" ", "not be empty")):
        assert line in refused("submit", write_crew(GOOD), "--each", each, "--id", key)
        with Client(server.url) as client, pytest.raises(UsageError, match=line):
            client.submit_many(write_crew(GOOD), [{}], id=key)


def test_an_id_that_is_too_long(refused, write_crew):
    assert refused("submit", write_crew(GOOD), "--id", "x" * 201) == "--id has 201 characters: at most 200 are allowed"


def test_too_many_checkpoints_for_a_client(write_crew, server, redis):
    with (
        Client(server.url) as client,
        pytest.raises(UsageError, match=r"^max_checkpoints must be at most 1000000, got 1"),
    ):
        client.submit(write_crew(GOOD), max_checkpoints=10**23)
    assert redis.dbsize() == 0


def test_too_many_checkpoints_in_the_crew_file(refused, write_crew):
    crew = GOOD.replace("])", "], checkpoint=CheckpointConfig(max_checkpoints=10**23))").replace(
        "import", "import CheckpointConfig,"
    )
    assert "max_checkpoints must be at most 1000000, got 1" in refused("submit", write_crew(crew))


@pytest.mark.parametrize(
    ("name", "value", "command", "line"),
    [
        ("RUNNER_LEASE", "soon", "worker", "RUNNER_LEASE must be a number, got 'soon'"),
        ("RUNNER_LEASE", "nan", "worker", "RUNNER_LEASE must be a number, got 'nan'"),
        ("RUNNER_LEASE", "0.1", "worker", "RUNNER_LEASE must be at least 0.3, got 0.1"),
        ("RUNNER_DRAIN_TIMEOUT", "inf", "worker", "RUNNER_DRAIN_TIMEOUT must be a number, got 'inf'"),
        ("RUNNER_MAX_ATTEMPTS", "0", "worker", "RUNNER_MAX_ATTEMPTS must be at least 1, got 0"),
        ("RUNNER_MAX_ATTEMPTS", "1e9", "worker", "RUNNER_MAX_ATTEMPTS must be at most 1e+06, got 1e+09"),
        ("RUNNER_WAIT_REPLICAS", "1e9", "worker", "RUNNER_WAIT_REPLICAS must be at most 1e+06, got 1e+09"),
        (
            "RUNNER_QUEUE",
            "a\nb",
            "worker",
            "'a\\nb' is not a queue name: it has control characters: leave them out",
        ),
        (
            *("RUNNER_MODEL_ENDPOINTS", "a.com/v1/x, https://b.com", "worker"),
            "RUNNER_MODEL_ENDPOINTS must be hosts with paths like api.example.com/v1/search, separated by commas, "
            "got 'https://b.com'",
        ),
        ("RUNNER_BUNDLE_LIMIT", "1 GB", "submit", "RUNNER_BUNDLE_LIMIT must be a number, got '1 GB'"),
    ],
)
def test_a_setting_that_is_no_number(name, value, command, line, refused, write_crew):
    arguments = [write_crew(GOOD)] if command == "submit" else []
    assert refused(command, *arguments, **{name: value}) == line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["submit"], "missing argument 'TARGET'; see runner submit --help"),
        (["submit", "crew.py", "--jsn"], "no such option '--jsn'"),
        (["sumbit"], "no such command 'sumbit'"),
        (["submit", "crew.py", "--keep", "nan"], "invalid value for '--keep': 'nan' is not a number of seconds;"),
        (["submit", "crew.py", "--keep", "1e18"], "invalid value for '--keep': 1e+18 is not in the range 1<=x<="),
        (
            ["submit", "crew.py", "--max-checkpoints", "0"],
            "invalid value for '--max-checkpoints': 0 is not in the range",
        ),
        *(
            ([*command, "9" * 23], f"invalid value for '{command[-1]}")
            for command in (
                ["submit", "crew.py", "--max-checkpoints"],
                ["runs", "--limit"],
                ["checkpoint", "prune", "r-1", "--keep"],
                ["worker", "--concurrency"],
            )
        ),
        (
            ["submit", "crew.py", "--queue", "a b"],
            "'a b' is not a queue name: it contains blanks",
        ),
        (["worker", "--queue", "a\tb"], "'a\\tb' is not a queue name: it has control characters"),
        (["wait", "r-1", "--timeout", "inf"], "invalid value for '--timeout': 'inf' is not a number of seconds;"),
        (["submit", "crew.py", "--queue", "runner:{p0}:due"], "'runner:{p0}:due' is not a queue name"),
        (["worker", "--queue", "runner:{p0}:due"], "'runner:{p0}:due' is not a queue name"),
        (["worker", "--lease", "0.1"], "invalid value for '--lease': 0.1 is not in the range x>=0.3;"),
        (["worker", "--pool", "gevent"], "invalid value for '--pool': 'gevent' is not one of 'auto', 'prefork', "),
        (["flower", "--address", "0.0.0.0"], "Flower on 0.0.0.0 would let anyone stop workers: give --basic-auth"),
        (["submit", "crew.py", "--at-once", "3"], "--at-once needs --each: it limits how many runs of a batch are"),
        (["flower", "--basic-auth", "me"], "--basic-auth or RUNNER_FLOWER_AUTH must be USER:PASSWORD"),
    ],
)
def test_bad_usage(arguments, line, refused):
    assert refused(*arguments).startswith(line)


@pytest.mark.parametrize("verb", ["show", "wait", "events", "resume", "cancel", "checkpoint list"])
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_run_that_is_not_there(verb, json, refused):
    line = refused(*verb.split(), "r-123456789abc", *json)
    assert line == (
        "there is no run r-123456789abc: `runner runs` lists them (a finished run is only kept for a while)"
    )


@pytest.mark.parametrize("verb", ["show", "wait", "cancel", "resume", "runs --batch"])
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_batch_that_is_not_there(verb, json, refused):
    line = refused(*verb.split(), "b-123456789abc", *json)
    assert line == "there is no batch b-123456789abc (a finished one is only kept for a while)"


@pytest.mark.parametrize("verb", ["fork", "events", "files", "answer"])
def test_a_batch_where_a_run_is_meant(verb, refused):
    line = refused(*verb.split(), "b-123456789abc")
    assert line == (
        "there is no run b-123456789abc: this is the id of a batch, whose runs have ids of their own; "
        "`runner runs --batch b-123456789abc` lists them, and show, wait, cancel and resume take the batch"
    )


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("show b-123456789abc --branch x", "b-123456789abc is a batch: --branch is for one run"),
        ("wait b-123456789abc --branch x", "b-123456789abc is a batch: --branch is for one run"),
        ("cancel b-123456789abc --branch x", "b-123456789abc is a batch: --branch is for one run"),
        (
            "resume b-123456789abc --branch x --detach",
            "b-123456789abc is a batch: --branch and --detach are for one run",
        ),
        (
            "runs --batch r-123456789abc",
            "--batch 'r-123456789abc' is not the id of a batch: b- and twelve hexadecimal digits",
        ),
        ("show b-123", "there is no run b-123: `runner runs` lists them"),
    ],
)
def test_what_is_no_batch_s(command, line, refused):
    assert refused(*command.split()).startswith(line)


@pytest.mark.parametrize(
    "arguments", [["submit", "nowhere.py"], ["submit"], ["show", "r-1"], ["worker", "--lease", "x"]]
)
def test_the_real_command_says_the_same(arguments, fleet, redis):
    """What the tests above see in one process, a person sees from the command."""
    found = fleet.runner(*arguments)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: ")
    assert found.stderr.count("\n") == 1
    assert redis.dbsize() == 0


def test_the_command_without_a_word_shows_its_help(cli):
    said = cli()
    assert said.code == 2
    assert "submit" in said.err
    assert cli("--help").code == 0


def test_an_error_never_spans_lines(refused, write_crew):
    path = write_crew("raise ValueError('one\\ntwo\\n\\tthree')\n")
    assert refused("submit", path) == "crew.py:1: ValueError: one two three"


def test_what_a_crew_prints_at_import_does_not_hide_the_error(cli, write_crew, redis):
    path = write_crew("import os\nprint('hi')\nos.write(1, b'low')\n1/0\n")
    said = cli("submit", path, "--json")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1].endswith("error: crew.py:4: ZeroDivisionError: division by zero")
    assert redis.dbsize() == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda client, run: client.run(run, branch="a\udcff"),
        lambda client, run: client.resume(run, branch="a\udcff"),
        lambda client, run: client.checkpoints(run, "a\udcff"),
        lambda client, run: client.fork(run, source="a\udcff"),
        lambda client, run: client.fork(run, edits={"a\udcff": "x"}),
        lambda client, run: client.answer(run, "x", branch="a\udcff"),
        lambda client, run: client.run(run).cancel("a\udcff"),
    ],
)
def test_what_is_no_text_is_refused_whatever_it_names(ask, client, write_crew):
    run = client.submit(write_crew(GOOD)).id
    with pytest.raises(BadInput, match=r"a\\udcff.* contains half of a surrogate pair, which is not valid UTF-8"):
        ask(client, run)
    client.run(run).cancel()


def test_a_queue_of_a_long_name(refused, write_crew):
    assert refused("submit", write_crew(GOOD), "--queue", "ä" * 101) == (
        f"{'ä' * 80!r} is not a queue name: it has 202 bytes: at most 200 are allowed"
    )


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{topic: 1}", "line 3 is not JSON: Expecting property name"),
        ("[1]", "line 3 must hold a JSON object, not a list"),
        ('{"topic": NaN}', "line 3 is not JSON: NaN is not a JSON value"),
        (b"\xff", "line 3 is not UTF-8 text"),
        ('{"topic": "a", "tone": 1, "topic": "b"}', "line 3: the name 'topic' is given twice in one object"),
        ('{"topic": [{"a": 1, "a": 2}]}', "line 3: the name 'a' is given twice in one object"),
        ('{"tone": "dry"}', "line 3: the crew needs the input 'topic'"),
        ('{"topic": "\\ud800"}', "line 3: the input 'topic' contains half of a surrogate pair"),
    ],
)
def test_a_line_of_many_inputs(refused, write_crew, tmp_path, content, error):
    """Before any of the others is submitted."""
    each = tmp_path / "inputs.jsonl"
    line = content if isinstance(content, bytes) else content.encode()
    each.write_bytes(b'{"topic": "a"}\n\n' + line + b'\n{"topic": "b"}\n')
    assert f"--each {each}, {error}" in refused("submit", write_crew(NEEDY), "--input", "tone=dry", "--each", each)
    each.write_bytes(line)
    assert f"--each {each}, {error.replace('line 3', 'line 1')}" in refused(
        "submit", write_crew(NEEDY), "--input", "tone=dry", "--each", each
    )


def test_the_lines_of_a_pipe_are_read_twice_too(refused, write_crew, tmp_path):
    """As of the shell's ``--each <(command)``: a pipe cannot be read again from its beginning."""
    pipe = tmp_path / "inputs"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=('{"topic": "a"}\n{"tone": "dry"}\n',))
    writer.start()
    found = refused("submit", write_crew(NEEDY), "--input", "tone=dry", "--each", pipe)
    writer.join()
    assert f"--each {pipe}, line 2: the crew needs the input 'topic'" in found


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{\n  "topic": "a",\n  "tone": {"a": {}, "b": "\\"}"},\n  "topic": "b"\n}', ", line 4: the name 'topic'"),
        ('{"topic": "a", "tone": {"b": 1,\n "\\u0062": 2}}', ", line 2: the name 'b'"),
        ('{"topic": "a", "topic": "b"}\n', ": the name 'topic'"),
    ],
)
def test_a_name_that_is_given_twice(refused, write_crew, tmp_path, content, line):
    """One of the two values would be lost, and nobody told."""
    file = tmp_path / "inputs.json"
    file.write_text(content)
    assert refused("submit", write_crew(GOOD), "--inputs", file) == (
        f"--inputs {file}{line} is given twice in one object"
    )
    assert refused("submit", write_crew(GOOD), "--input", 'topic:={"b": 1, "b": 2}') == (
        "--input topic: the name 'b' is given twice in one object"
    )


@pytest.mark.parametrize(("option", "many"), [("--inputs", 1), ("--each", 2)])
def test_a_byte_order_mark_before_the_inputs_is_not_part_of_them(refused, write_crew, tmp_path, option, many):
    file = tmp_path / "inputs.json"
    file.write_bytes(b'\xef\xbb\xbf{"tone": "dry"}\n' * many)
    assert "the crew needs the input 'topic'" in refused("submit", write_crew(NEEDY), option, file)


def test_no_inputs_at_all(refused, write_crew, tmp_path):
    each = tmp_path / "inputs.jsonl"
    each.write_text("\n")
    path = write_crew(GOOD)
    assert "holds no inputs" in refused("submit", path, "--each", each)
    assert "cannot be read: No such file" in refused("submit", path, "--each", tmp_path / "none.jsonl")
    assert "cannot be combined" in refused("submit", path, "--each", each, "--detach")
