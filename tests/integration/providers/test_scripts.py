"""How the scripts are written, loaded and called; and the one connection on which answers are left for later."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim, Refusal
from runner.core.ledger import AccountKey, Usage
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.core.settings import MAX_HANDOVERS
from runner.providers.records import HeldClaim
from runner.providers.redis import claimed_steps, scripts, store
from runner.providers.redis.keys import TEMPLATES
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.rate_limit import RunPace

from .conftest import LossyLine
from .driver import Driver, plan_of

LUA = scripts._FOLDER
LIBRARIES = sorted(path.name.removesuffix(".lua") for path in LUA.joinpath("lib").iterdir())
GIVEN = {
    "redis",
    "cjson",
    "string",
    "table",
    "math",
    "tonumber",
    "tostring",
    "ipairs",
    "pairs",
    "unpack",
    *("error", "next", "pcall", "type"),
    "KEYS",
    "ARGV",
}
WORDS = {
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not"),
    *("or", "repeat", "return", "then", "true", "until", "while"),
}


class Recorded:
    """A client that notes the commands it sends."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.sent: list[str] = []

    def execute_command(self, *command: Any) -> Any:
        self.sent.append(command[0])
        return self.client.execute_command(*command)


def script(source: str) -> scripts.LuaScript:
    return scripts.LuaScript("example", source)


# -- calling


def test_slots_are_passed_by_name(redis: Redis) -> None:
    echo = script("-- Echo.\n--\n-- KEYS one two\n-- ARGV three four\nreturn {one, two, three, four}")
    assert echo(redis, four=4, three=3, two="b", one="a") == ["a", "b", "3", "4"]


def test_a_last_slot_may_stand_for_any_number_of_texts(redis: Redis) -> None:
    echo = script(
        "-- Echo.\n--\n-- KEYS one\n-- ARGV two:int three:rest\nreturn {one, two, three, unpack(ARGV, three + 1)}"
    )
    assert echo(redis, one="a", two=2, three=[]) == ["a", "2", 1]
    assert echo(redis, one="a", two=2, three=["é", "", "2"]) == ["a", "2", 1, "é", "", "2"]
    with pytest.raises(ResponseError, match="what it was given is not complete"):
        redis.execute_command("EVALSHA", echo.sha, 1, "a")


@pytest.mark.parametrize("slots", [{"one": 1}, {"one": 1, "two": 2, "three": 3}, {"one": 1, "too": 2}, {}])
def test_a_wrong_name_is_a_type_error_that_says_what_it_takes(redis: Redis, slots: dict[str, int]) -> None:
    example = script("-- KEYS one\n-- ARGV two\nreturn 1")
    with pytest.raises(TypeError, match=re.escape("example.lua takes ['one', 'two']")):
        example(redis, **slots)


def test_an_error_tells_the_line_of_the_file(redis: Redis) -> None:
    uses = slots_of("USES", "reap")[0]
    source = f"-- It fails.\n--\n-- KEYS one\n-- ARGV two\n-- USES {uses}\n\nlocal three = 3\nreturn three.four.five"
    with pytest.raises(ResponseError, match=r"user_script:8: .*'three'"):
        script(source)(redis, one="k", two="a")


def test_a_server_that_forgot_the_script_gets_it_again_once(redis: Redis) -> None:
    client = Recorded(redis)
    example = script("-- KEYS one\nreturn 1")
    example(client, one="k")
    example(client, one="k")
    redis.script_flush()
    example(client, one="k")
    example(client, one="k")
    assert client.sent == ["EVALSHA", "EVAL", "EVALSHA", "EVALSHA", "EVAL", "EVALSHA"]


def test_what_the_server_was_taught_is_called_in_one_round_trip(redis: Redis) -> None:
    redis.script_flush()
    scripts.preload_scripts(redis, "find_position", "fork")
    client = Recorded(redis)
    scripts.load("find_position")(client, run="r", name="", checkpoint="", tasks="[]")
    assert client.sent == ["EVALSHA"]


# -- the files


def slots_of(kind: str, name: str) -> list[str]:
    lines = re.findall(rf"^-- {kind} (.+)$", LUA.joinpath(f"{name}.lua").read_text(), re.MULTILINE)
    return [re.sub(r":\S+", "", line) for line in lines]


def code_of(text: str) -> str:
    """Without comments and what stands in quotes."""
    pieces = re.compile(r"""--[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
    return pieces.sub(lambda found: "" if found[0].startswith("--") else '""', text)


def identifiers(code: str) -> list[str]:
    """Names in the order in which they stand, but for fields, methods and the keys of tables."""
    return re.findall(r"(?<![\w.:])([A-Za-z_]\w*)(?!\w)(?!\s*=[^=](?=[^{}]*\}))", code)


@pytest.mark.parametrize("clock", [scripts.SERVER_CLOCK, scripts.TEST_CLOCK])
@pytest.mark.parametrize("name", scripts.names())
def test_every_file_parses_on_the_server(redis: Redis, name: str, clock: str) -> None:
    loaded = scripts.LuaScript(name, LUA.joinpath(f"{name}.lua").read_text(), clock)
    assert redis.script_load(loaded.text) == loaded.sha


@pytest.mark.parametrize("name", scripts.names())
def test_every_header_is_complete(name: str) -> None:
    text = LUA.joinpath(f"{name}.lua").read_text()
    header = re.match(r"(--.*\n)+", text)
    assert header, "it begins with what it does"
    assert re.match(r"-- [A-Z].*", text)
    assert re.search(r"^-- .*Returns ", header[0], re.MULTILINE), "it says what it returns"
    code = code_of(text)
    for kind in ("KEYS", "ARGV", "USES"):
        lines = slots_of(kind, name)
        assert len(lines) <= 1
        assert text.count(f"-- {kind} ") == header[0].count(f"-- {kind} ")
        if kind != "USES":
            unused = [slot for slot in " ".join(lines).split() if not re.search(rf"\b{slot}(_text)?\b", code)]
            assert not unused
    assert slots_of("KEYS", name), "a script names the keys it begins with"


@pytest.mark.parametrize("name", scripts.names())
def test_every_library_is_there_and_needed(name: str) -> None:
    used = " ".join(slots_of("USES", name)).split()
    assert set(used) <= {*LIBRARIES}
    whole = code_of(LUA.joinpath(f"{name}.lua").read_text())
    texts = {library: code_of(LUA.joinpath("lib", f"{library}.lua").read_text()) for library in used}
    for library, text in texts.items():
        functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
        others = whole + "".join(other for which, other in texts.items() if which != library)
        assert any(re.search(rf"\b{function}[(,]", others) for function in functions), f"{library} is not needed"


@pytest.mark.parametrize("name", scripts.names())
def test_no_name_is_used_before_it_is_local(name: str) -> None:
    """A global does not exist in a script: naming one fails, but only on the day when that line is reached."""
    code = code_of(scripts.load(name).text.decode())
    defined = GIVEN | WORDS
    for statement in re.split(r"(?=\blocal\b|\bfunction\b|\bfor\b)", code):
        declared = set()
        if found := re.match(
            r"local function (\w+)\(([^)]*)\)|function ?\(([^)]*)\)|function (\w+)\(([^)]*)\)", statement
        ):
            declared = set(re.findall(r"\w+", " ".join(part or "" for part in found.groups())))
        elif found := re.match(r"local ([\w, ]+)|for ([\w, ]+)(?:=| in )", statement):
            declared = set(re.findall(r"\w+", found[1] or found[2]))
        defined |= declared
        unknown = [word for word in identifiers(statement) if word not in defined]
        assert not unknown, statement


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_has_what_it_names_of_libraries_alone(name: str) -> None:
    """The server makes each function with every call, and walks through all to collect garbage."""
    code = code_of(scripts.load(name).text.decode())
    for function in re.findall(r"\blocal function (\w+)", code):
        assert len(re.findall(rf"\b{function}\b", code)) > 1, f"{function} is not called"


@pytest.mark.parametrize("folder", ["lib", "types"])
def test_a_library_defines_each_name_once_and_at_the_beginning_of_a_line(folder: str) -> None:
    for file in LUA.joinpath(folder).iterdir():
        definitions = re.findall(r"^local (?:function )?(\w+)", file.read_text("utf-8"), re.MULTILINE)
        found = [*scripts._library(file.name.removesuffix(".lua"), folder)]
        assert [one for one in found if one in definitions] == definitions != []


def test_the_check_for_undefined_names_finds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = script("-- KEYS one\nlocal two = {three = 1}\nif one then return twoo end")
    monkeypatch.setattr(scripts, "load", lambda name: bad)
    with pytest.raises(AssertionError, match="twoo"):
        test_no_name_is_used_before_it_is_local("example")


def test_the_key_builders_are_the_same_in_lua_and_in_python(redis: Redis) -> None:
    for name, template in TEMPLATES.items():
        parts = re.findall(r"\{(\w+)\}", template)
        values = {part: f"<{part} %1>" for part in parts}
        arguments = [f"a{i}" for i in range(len(parts))]
        source = f"-- KEYS k\n-- ARGV {' '.join(arguments)}\n-- USES now\nreturn {name}({', '.join(arguments)})"
        slots = dict(zip(arguments, values.values(), strict=True))
        assert script(source)(redis, k="k", **slots) == template.format(**values)


def test_a_key_is_built_where_it_is_named(redis: Redis) -> None:
    """A function for each would be made with each call."""
    source = (
        '-- KEYS run\n-- ARGV a\nlocal one = {journal_key(branch_key(run, a or "x)"), string.sub(a, 1, 2))}\nreturn one'
    )
    made = script(source)
    assert made(redis, run="R", a="abc") == ["R:branch:abc:journal:ab"]
    assert b"_key(" not in made.text


# -- asked twice


def test_a_claim_asked_twice_is_one_claim(driver: Driver, nonces: Any) -> None:
    run = driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    nonces.next = "n1"
    first = driver.claim(job)
    assert isinstance(first, Claim)
    assert driver.claim(job) == first
    nonces.next = "n2"
    assert driver.claim(job) == Refusal("taken")
    assert len(driver.events(run, "task_started")) == 1
    assert driver.workers.claimed("w0") == 1


def test_a_claim_whose_answer_was_lost_is_asked_for_again(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    driver.line.lose = 2
    claim = driver.claim(job)
    assert isinstance(claim, Claim)
    assert claim.token == 1
    assert driver.commit(claim) == "completed"


def test_a_commit_repeated_with_its_token_is_the_same_commit(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b: a", "c: b"))
    claim = driver.take("a")["a"]
    assert driver.commit(claim) == "running"
    before = driver.redis.hgetall(f"runner:{{p0}}:run:{run}:branch:main:outputs"), driver.redis.lrange("jobs", 0, -1)
    driver.line.lose = 1
    assert driver.commit(claim) == "running"
    after = driver.redis.hgetall(f"runner:{{p0}}:run:{run}:branch:main:outputs"), driver.redis.lrange("jobs", 0, -1)
    assert after == before
    assert len(driver.events(run, "task_completed")) == 1
    driver.work()
    assert driver.commit(claim) == "completed", "it learns how the run stands now"


def test_a_step_recorded_twice_is_paid_once(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.begin_step()
    driver.line.lose = 1
    task.record_step("s#1", "1", replayed=0, usage=Usage(5))
    ledger = driver.runs.get(run).ledger
    assert {name: count for name, count in ledger.items() if count} == {
        "paid": 1,
        "prompt_tokens": 5,
        "tools": {"paid": 0, "replayed": 0, "in_doubt": 0},
    }


def test_cached_tokens_are_apart_in_the_run_and_in_each_line(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    cheap, dear = AccountKey("model", "Ann", "claude"), AccountKey("model", "Ann", "gpt")
    task.record_step("m#1", "1", replayed=0, entry=cheap, usage=Usage(100, 10, 80, 15, 5, 0))
    task.record_step("m#2", "1", replayed=0, entry=cheap, usage=Usage(50, 10, 40))
    task.record_step("m#3", "1", replayed=0, entry=dear, usage=Usage(7, 3, 0, 0, 0, 2))
    task.record_step("m#4", "1", replayed=0, entry=dear, usage=Usage(7, 3))
    assert [(line.model, *(getattr(line, name) for name in Usage._fields)) for line in driver.runs.ledger(run)] == [
        ("claude", 150, 20, 120, 15, 5, 0),
        ("gpt", 14, 6, 0, 0, 0, 2),
    ]
    ledger = driver.runs.get(run).ledger
    assert [ledger[name] for name in Usage._fields] == [164, 26, 120, 15, 5, 2]
    told = driver.events(run, "llm_call_completed")
    assert told[0].items() >= {"prompt_tokens": "100", "cached_tokens": "80", "cache_write_tokens": "15"}.items()
    assert "cached_tokens" not in told[3]


def test_a_ledger_is_read_and_written_by_the_version_before_as_well(driver: Driver, redis: Redis) -> None:
    """It has six numbers a line, of which that version counts up some, and can read no more."""
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.record_step("m#1", "1", replayed=0, entry=AccountKey("model", "", "m"), usage=Usage(100, 10, 80))
    key = f"runner:{{p0}}:run:{run}:ledger"
    ((field, counts),) = redis.hgetall(key).items()
    assert json.loads(counts) == [1, 0, 0, 100, 10, 0]
    redis.hset(key, field, "[2,0,0,150,20,0]")  # by a worker of before
    redis.hset(key, '["main","b","","m"]', "[1,0,0,9,1,0]")
    found = driver.runs.ledger(run)
    assert [(line.task, line.calls, line.prompt_tokens, line.cached_tokens) for line in found] == [
        ("a", 2, 150, 80),
        ("b", 1, 9, 0),
    ]


# -- answers left for later


def test_answers_are_matched_to_their_questions(line: LossyLine) -> None:
    for i in range(5):
        line.send_nowait("ECHO", f"nobody waits for {i}")
        line.send_nowait("NONSENSE")
        assert line.execute_command("ECHO", i) == str(i)
    line.send_nowait("ECHO", "left")
    line.send_nowait("ECHO", "left too")
    with pytest.raises(ResponseError):
        line.execute_command("NONSENSE")
    assert line.execute_command("ECHO", "after an error") == "after an error"
    with pytest.raises(NoScriptError):
        line.execute_command("EVALSHA", "0" * 40, 0)
    assert line.execute_command("ECHO", "after another") == "after another"


def test_answers_are_matched_after_the_connection_was_lost(line: LossyLine, redis: Redis) -> None:
    mine = line.execute_command("CLIENT", "ID")
    line.send_nowait("ECHO", "left behind")
    redis.client_kill_filter(_id=mine)
    assert line.execute_command("ECHO", "heard, and asked again") == "heard, and asked again"
    assert line.execute_command("CLIENT", "ID") != mine


def test_what_is_left_on_a_lost_connection_raises_nothing(line: LossyLine, redis: Redis) -> None:
    redis.client_kill_filter(_id=line.execute_command("CLIENT", "ID"))
    for _ in range(3):
        line.send_nowait("ECHO", "nobody waits")
    assert line.execute_command("ECHO", "heard") == "heard"


@pytest.mark.parametrize("asked", ["execute_command", "send_nowait"])
def test_a_connection_that_is_reset_is_opened_again(line: PipelinedConnection, asked: str) -> None:
    class Reset:
        def recv_into(self, *_: Any) -> int:
            raise ConnectionResetError(104, "Connection reset by peer")

    assert line.execute_command("ECHO", "open") == "open"
    getattr(line, asked)("ECHO", "read")
    line._connection._parser._sock = Reset()
    assert line.execute_command("ECHO", "heard") == "heard"
    line.send_nowait("ECHO", "left behind")
    line._connection._parser._sock = Reset()
    line.settle()
    assert line.reconnected
    assert line.execute_command("ECHO", "heard") == "heard"


def test_an_interrupt_in_the_middle_costs_the_connection_not_the_order(
    line: PipelinedConnection, monkeypatch: Any
) -> None:
    class Interrupt(BaseException):
        pass

    def interrupted(*_: Any, **__: Any) -> Any:
        raise Interrupt

    line.send_nowait("ECHO", "left behind")
    with monkeypatch.context() as patch:
        patch.setattr(line._connection._parser, "read_response", interrupted)
        with pytest.raises(Interrupt):
            line.execute_command("ECHO", "sent, and its answer not read")
    assert line.execute_command("ECHO", "mine") == "mine"


@pytest.mark.parametrize("forgotten", ["never known", "by a restart"])
def test_a_begun_step_is_counted_by_a_server_that_does_not_know_the_script(driver: Driver, forgotten: str) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    if forgotten == "by a restart":
        driver.task(claim).begin_step()
        driver.task(claim).drop_step()
        driver.redis.client_kill_filter(_id=driver.line.execute_command("CLIENT", "ID"))
    driver.redis.script_flush()
    task = driver.task(claim)
    if forgotten == "by a restart":
        with pytest.raises(ConnectionError):
            driver.line.ask("PING")
    task.begin_step()
    task.release(replayed=0)
    assert driver.runs.get(run).in_doubt == 1


@pytest.mark.parametrize("known", [True, False], ids=["its worker saw it die", "nobody saw it"])
def test_a_call_that_never_left_a_killed_process_is_in_no_doubt(driver: Driver, known: bool) -> None:
    said = [""]
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    task = store.ClaimedTask(driver.line, claim, said.append)
    gpt, other = AccountKey("model", "A", "gpt"), AccountKey("model", "B", "gpt")
    for one in (gpt, gpt, other):
        task.begin_step(one, intent_only=True)
    task.mark_sent(gpt)
    task.begin_step(AccountKey("tool"))
    driver.line.execute_command("PING")
    driver.workers.reap(
        "w0", process="p0", reason="its process died", max_attempts=5, out={"p0": said[-1]} if known else None
    )
    found = driver.runs.get(run)
    assert (found.in_doubt, found.tools_in_doubt) == ((1, 1) if known else (3, 1))


def test_a_lost_claim_says_so_on_every_write(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    driver.workers.reap("w0", reason="gone", max_attempts=5)
    with pytest.raises(ClaimLost, match="token 1 no longer holds"):
        task.commit(dump("late", None), [], replayed=0)
    with pytest.raises(ClaimLost):
        task.record_step("s#1", "1", replayed=0)
    with pytest.raises(ClaimLost):
        task.note("log", "late")
    task.begin_step()
    task.drop_step()
    # Of a step too, where the process may have been frozen since it last heard that it holds it
    monkeypatch.setattr(claimed_steps, "AWAY", 0)
    with pytest.raises(ClaimLost):
        task.begin_step()
    assert store.hold(driver.redis, [task._claim]) == [False]


@pytest.mark.parametrize("lost", ["reaped", "reaped and committed elsewhere", "its run is gone"])
def test_what_begins_before_a_lost_claim_is_noticed_is_in_doubt(driver: Driver, lost: str) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.begin_step()
    driver.line.execute_command("PING")
    driver.workers.reap("w0", process="p0", reason="gone", max_attempts=5)
    if lost != "reaped":
        assert driver.commit(driver.take()["a"]) == "completed"
    if lost == "its run is gone":
        driver.redis.flushall()
    task.begin_step()  # side by side with the first: nobody waits for the answer
    for entry in (AccountKey("model", "A", "gpt"), AccountKey("tool")):  # these do not begin at all
        with pytest.raises(ClaimLost):
            task.begin_step(entry)
    task.drop_step()
    with pytest.raises(ClaimLost):
        task.record_step("s#1", "1", replayed=0)
    if lost == "its run is gone":
        assert not driver.redis.keys()
    else:
        found = driver.runs.get(run)
        assert (found.in_doubt, found.tools_in_doubt) == (2, 0)
        assert driver.runs.ledger(run) == []


def test_calls_of_a_minute_are_counted_for_all_workers(driver: Driver, clock: Any) -> None:
    run = driver.submit(plan_of("a"))
    here, there = RunPace(driver.redis, run), RunPace(driver.redis, run)
    both = [("crew", 3), ("agent A", 2)]
    assert [here.acquire(both), there.acquire([("crew", 3)]), there.acquire(both)] == [0, 0, 0]
    clock.go_on(20_000)
    assert (here.acquire([("crew", 3)]), there.acquire([("agent A", 2)])) == (40, 40)
    clock.go_on(40_000)
    assert [here.acquire(both), there.acquire(both)] == [0, 0]
    assert here.acquire(both) == 60


def test_a_note_that_was_refused_is_given_again_before_the_task_ends(driver: Driver, redis: Redis) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.begin_step()
    task.drop_step()
    redis.config_set("maxmemory", 1)
    try:
        task.begin_step()
        driver.line.settle()
    finally:
        redis.config_set("maxmemory", 0)
    # When the step is broken off, and the task handed back
    task.release(replayed=0)
    assert driver.runs.get(run).in_doubt == 1


def test_a_tool_begins_when_the_store_knows_of_it(driver: Driver, redis: Redis) -> None:
    driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    for entry in (AccountKey("tool"), AccountKey("model", "", "m")):
        driver.task(claim).begin_step(entry)
        assert not driver.line._unread


def test_what_a_dead_process_was_unsure_of_is_in_doubt(driver: Driver) -> None:
    """Its page says what it was at when the store took nothing; what the store knows itself is not counted twice."""
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    pages: list[str] = []
    task = store.ClaimedTask(driver.line, claim, pages.append)
    task.begin_step(AccountKey("model", "", "m"), intent_only=True)  # noted, and never left
    task.begin_step()  # noted
    task._missed()
    task._open[AccountKey("step")] += 1  # a note that was refused
    task._missed()
    driver.workers.reap("w0", process="p0", reason="its process died", max_attempts=5, out={"p0": pages[-1]})
    assert driver.runs.get(run).in_doubt == 2


HANDED_OVER: dict[str, tuple[Callable[[Driver, Claim], object], str]] = {
    "released": (lambda driver, claim: driver.task(claim).release(replayed=0), "its worker was asked to end"),
    "taken back": (
        lambda driver, claim: driver.workers.take_back(
            claim.worker, HeldClaim(claim.job.ref, claim.token, "p0", 0), reason="nobody did it"
        ),
        "nobody did it",
    ),
}


@pytest.mark.parametrize("how", HANDED_OVER)
def test_a_task_that_is_handed_over_again_and_again_fails_its_run(driver: Driver, how: str) -> None:
    hand_over, why = HANDED_OVER[how]
    run = driver.submit(plan_of("a"))
    for _ in range(MAX_HANDOVERS - 1):
        hand_over(driver, driver.take()["a"])
    assert driver.runs.get(run).status == "running"
    hand_over(driver, driver.take()["a"])
    found = driver.runs.get(run)
    said = f"it was handed back {MAX_HANDOVERS} times in a row without making progress (last: {why})"
    assert (found.status, found.error) == ("failed", f"task 'a': {said}")
    assert driver.events(run, "task_failed")[-1]["reason"] == said
    assert driver.states(run) == {"a": "failed"}
    # And a person may let it go on, from nought
    assert driver.resume(run) == "resumed"
    hand_over(driver, driver.take()["a"])
    assert driver.commit(driver.take()["a"]) == "completed"


def test_a_task_that_gets_further_may_be_handed_over_for_ever(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    for n in range(5):
        task = driver.task(driver.take()["a"])
        task.record_step(f"s#{n}", "1", replayed=n)
        task.release(replayed=0, max_handovers=2)
    assert driver.runs.get(run).status == "running"
    driver.task(driver.take()["a"]).release(replayed=0, max_handovers=2)
    assert driver.runs.get(run).status == "failed"


def test_a_task_that_no_worker_is_fit_for_waits(driver: Driver) -> None:
    run = driver.submit(plan_of("a"), adapter="strange")
    for _ in range(MAX_HANDOVERS + 1):
        (job,) = driver.jobs()
        assert store.claim(driver.line, job, worker="w0", process="p0", unfit=["strange"]) == Refusal("unfit")
        driver.redis.zadd("runner:{p0}:due", {job.ref: 0})
        driver.workers.move_due()
    assert driver.runs.get(run).status == "running"
    assert driver.commit(driver.take()["a"]) == "completed"


def test_what_runs_have_in_common_is_not_another_thread_s(monkeypatch):
    plan = Plan("crew", (PlannedTask("a"),))
    fields = {"bundle": "", "queue": "runner", "envelope": "", "keep": "1", "max_checkpoints": "0", "plan": plan.digest}
    own = scripts.begun_runs(plan, fields | {"crew": "ours"})

    class Meanwhile(dict[str, str]):
        """Fields that another thread's submission replaces while they are compared."""

        def __eq__(self, other: object) -> bool:
            scripts.begun_runs(Plan("other", plan.tasks), fields | {"crew": "theirs"})
            return dict.__eq__(self, other)

        __hash__ = None

    monkeypatch.setattr(scripts, "_last_begun", (plan, Meanwhile(fields | {"crew": "ours"}), "", own))
    assert scripts.begun_runs(plan, fields | {"crew": "ours"}) is own
