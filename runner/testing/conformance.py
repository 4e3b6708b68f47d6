"""Tests that every provider must pass, whatever it stores in."""

import asyncio
import json
import logging
import re
import string
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner.providers.base import BaseProvider, CheckpointNotFound
from runner.testing.fleet import eventually
from runner.testing.pruning import PruningConformance
from runner.testing.writers import Elsewhere, ids_of, together, write_line

ID = re.compile(r"\d{8}T\d{6}_[0-9a-f]{8}")

TEXTS = {
    "empty": "{}",
    "spaced": '{ "a" : [ 1,\n  2 ] }\n',
    "indented": json.dumps({"a": [{"b": 1}] * 3, "c": {}}, indent=2) + "\n\n",
    "numbers": '{"a": 1.0e5, "b": -0.0, "c": 123456789012345678901234567890, "d": 1E400}',
    "escapes": r'{"a": "\u0000 \ud83d\ude00 \\ \" \/ \n", "": null}',
    "unicode": json.dumps({"Käse": "日本語 \u2028 🐝 e\u0301", "ключ": ["\x7f", "\x85"]}, ensure_ascii=False),
    "same key twice": '{"a": 1, "a": 2}',
    "looks like markup": '{"a": "<#$> {0} %s \\u0000 --", "$ref": "#/a"}',
    "not an object": '["a", 1, null]',
}

ESCAPING = ["../../etc", "..", "/etc", "a/../../b", "fork/../../main"]


class ProviderConformance(PruningConformance):
    """Tests of a checkpoint provider. A subclass defines two fixtures: ``provider``, and an empty ``location``."""

    @pytest.fixture
    def provider(self) -> BaseProvider:
        """Return the provider under test. To be overridden."""
        raise NotImplementedError("give a fixture: provider")

    @pytest.fixture
    def location(self) -> str:
        """Return an empty location, a new one for each test. To be overridden."""
        raise NotImplementedError("give a fixture: location")

    def elsewhere(self, provider: BaseProvider) -> str:
        """Return code that creates ``provider`` in another process. Override it if its class cannot be imported."""
        kind = type(provider)
        return (
            f"from {kind.__module__} import {kind.__qualname__} as Kind\n"
            f"provider = Kind.model_validate_json({provider.model_dump_json()!r})"
        )

    def tear(self, location: str) -> None:
        """Damage the checkpoint at its own ``location``, as a crash or a full disk might. To be overridden."""
        pytest.skip(f"how to tear {location} is not said: override `tear`")

    # -- what is stored comes back

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
    def test_a_text_comes_back_as_it_was_given(self, provider: BaseProvider, location: str, text: str) -> None:
        assert provider.from_checkpoint(provider.checkpoint(text, location)) == text

    def test_an_earlier_one_stays_as_it_was(self, provider: BaseProvider, location: str) -> None:
        states = [json.dumps({"done": list(range(i))}) for i in range(40)]
        parent, stored = None, {}
        for state in states:
            own = provider.checkpoint(state, location, parent_id=parent)
            parent = provider.extract_id(own)
            stored[own] = state
        assert {own: provider.from_checkpoint(own) for own in stored} == stored

    def test_a_state_that_changes_everywhere(self, provider: BaseProvider, location: str) -> None:
        """A state grows, shrinks, changes in the middle, loses its beginning, and is replaced by another."""
        long = string.ascii_letters * 40
        tasks = [{"name": f"t{i}", "raw": f"{i} {long}", "tags": ["x"] * 5} for i in range(60)]
        states: list[Any] = [{"tasks": tasks[:i], "note": long * (i % 3)} for i in (1, 2, 59, 60)]
        states += [{"tasks": [*tasks[:30], {"name": "t30", "raw": "new"}, *tasks[31:]]}, {"tasks": tasks[20:]}]
        states += [{"tasks": tasks[::-1]}, {"tasks": []}, {"other": {str(i): long + str(i) for i in range(50)}}, []]
        parent, stored = None, {}
        for state in [*states, *states]:
            own = provider.checkpoint(json.dumps(state), location, parent_id=parent)
            parent = provider.extract_id(own)
            stored[own] = json.dumps(state)
        assert {own: provider.from_checkpoint(own) for own in stored} == stored

    @pytest.mark.parametrize("shape", ["one long text", "many short ones"])
    def test_five_megabytes(self, provider: BaseProvider, location: str, shape: str) -> None:
        if shape == "one long text":
            state: Any = {"raw": "".join(f"{i} word\n" for i in range(500_000))}
        else:
            state = {f"key {i}": {"value": [i, str(i) * 8], "ok": True} for i in range(60_000)}
        data = json.dumps(state)
        assert len(data) > 4_000_000
        own = provider.checkpoint(data, location)
        assert provider.from_checkpoint(own) == data
        changed = data.replace("99 ", "98 ", 1).replace("key 31 ", "key _31_ ", 1) + " "
        assert provider.from_checkpoint(provider.checkpoint(changed, location)) == changed
        assert provider.latest(location).complete

    def test_another_process_reads_it(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=3)
        process = Elsewhere(self.elsewhere(provider), "read", location=location)
        with together(process):
            newest, found = process.end()
        assert [checkpoint_id for checkpoint_id, _ in found] == ids
        assert [json.loads(data)["i"] for _, data in found] == [0, 1, 2]
        assert provider.extract_id(newest) == ids[-1]

    def test_the_provider_itself_can_be_stored(self, provider: BaseProvider) -> None:
        again = type(provider).model_validate_json(provider.model_dump_json())
        assert again.provider_type == provider.provider_type

    # -- names and lineage

    def test_an_id_tells_when_and_is_in_the_location(self, provider: BaseProvider, location: str) -> None:
        own = provider.checkpoint("{}", location)
        assert ID.fullmatch(provider.extract_id(own))
        [info] = provider.checkpoints(location)
        assert (info.id, info.location, info.complete) == (provider.extract_id(own), own, True)
        assert f"{info.created_at:%Y%m%dT%H%M%S}" == info.id.partition("_")[0]
        assert info.size > 0

    def test_parents_and_branches_are_kept(self, provider: BaseProvider, location: str) -> None:
        first, second = write_line(provider, location, count=2)
        [fork] = write_line(provider, location, count=1, branch="fork/a", parent_id=first)
        assert [(info.id, info.parent_id, info.branch) for info in provider.checkpoints(location)] == [
            (first, None, "main"),
            (second, first, "main"),
            (fork, first, "fork/a"),
        ]
        assert ids_of(provider.checkpoints(location, "fork/a")) == [fork]
        assert provider.latest(location).id == fork
        assert provider.latest(location, "main").id == second

    def test_a_branch_name_may_be_the_beginning_of_another(self, provider: BaseProvider, location: str) -> None:
        for branch in ("fork", "fork/a", "fork/a b", "fork/ä", "main"):
            provider.checkpoint("{}", location, branch=branch)
        for branch in ("fork", "fork/a", "fork/a b", "fork/ä", "main"):
            assert [info.branch for info in provider.checkpoints(location, branch)] == [branch]
        assert provider.prune(location, 0, branch="fork") == 1
        assert len(provider.checkpoints(location)) == 4

    def test_a_parent_may_be_unknown_here(self, provider: BaseProvider, location: str) -> None:
        """The parent is at another location, or was pruned."""
        own = provider.checkpoint("{}", location, parent_id="20200101T000000_0a1b2c3d")
        assert provider.checkpoints(location)[0].parent_id == "20200101T000000_0a1b2c3d"
        assert provider.from_checkpoint(own) == "{}"

    def test_locations_know_nothing_of_each_other(self, provider: BaseProvider, location: str) -> None:
        write_line(provider, location, count=3)
        other = self.another(location)
        assert provider.checkpoints(other) == []
        [there] = write_line(provider, other, count=1)
        assert provider.prune(location, 0) == 3
        assert ids_of(provider.checkpoints(other)) == [there]

    @pytest.mark.parametrize("branch", [*ESCAPING, "", ".", "a//b", "a/./b", "a\0b"])
    def test_a_branch_name_that_leads_elsewhere_is_refused(
        self, provider: BaseProvider, location: str, branch: str
    ) -> None:
        says = "escapes checkpoint directory" if branch in ESCAPING else "Not a branch name"
        with pytest.raises(ValueError, match=says):
            provider.checkpoint("{}", location, branch=branch)
        with pytest.raises(ValueError, match=says):
            provider.prune(location, 1, branch=branch)
        with pytest.raises(ValueError, match=says):
            provider.checkpoints(location, branch)
        assert provider.checkpoints(location) == []

    # -- order

    def test_two_hundred_in_a_moment_keep_their_order(self, provider: BaseProvider, location: str) -> None:
        ids = [provider.extract_id(provider.checkpoint("{}", location)) for _ in range(200)]
        assert ids_of(provider.checkpoints(location)) == ids
        assert sorted(set(ids)) == ids
        assert provider.latest(location).id == ids[-1]
        assert provider.prune(location, 7) == 193
        assert ids_of(provider.checkpoints(location)) == ids[-7:]

    def test_a_child_comes_after_its_parent_whatever_the_clock_says(
        self, provider: BaseProvider, location: str
    ) -> None:
        ahead = "20990101T000000_f4241fff"
        ids = write_line(provider, location, count=3, parent_id=ahead)
        assert ahead < ids[0]
        assert ids_of(provider.checkpoints(location)) == ids == sorted(ids)

    def test_branches_written_in_turn_are_one_history(self, provider: BaseProvider, location: str) -> None:
        ids = [
            provider.extract_id(provider.checkpoint("{}", location, branch=("main", "fork/a", "fork/b")[i % 3]))
            for i in range(30)
        ]
        assert ids_of(provider.checkpoints(location)) == ids
        assert ids_of(provider.checkpoints(location, "fork/b")) == ids[2::3]

    # -- what is not there

    def test_what_is_not_there_is_not_found(self, provider: BaseProvider, location: str) -> None:
        assert provider.checkpoints(location) == []
        assert provider.checkpoints(location, "main") == []
        with pytest.raises(CheckpointNotFound, match="Checkpoint not found"):
            provider.latest(location)
        own = provider.checkpoint("{}", location)
        with pytest.raises(CheckpointNotFound, match="Checkpoint not found"):
            provider.latest(location, "fork/a")
        unknown = own.replace(provider.extract_id(own), "20200101T000000_00000000")
        with pytest.raises(ValueError, match="Checkpoint not found") as failed:
            provider.from_checkpoint(unknown)
        assert "20200101T000000_00000000" in str(failed.value)
        with pytest.raises(ValueError, match="Checkpoint not found"):
            asyncio.run(provider.afrom_checkpoint(unknown))

    def test_a_pruned_one_is_not_found(self, provider: BaseProvider, location: str) -> None:
        own = provider.checkpoint("{}", location)
        provider.prune(location, 0)
        with pytest.raises(CheckpointNotFound):
            provider.from_checkpoint(own)

    # -- torn ones

    def test_the_newest_whole_one_is_used_and_a_torn_one_is_named(
        self, provider: BaseProvider, location: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        state = {"tasks": [{"name": f"t{i}", "raw": f"{i} " * 400} for i in range(5)]}
        own = [provider.checkpoint(json.dumps({**state, "n": i}), location) for i in range(3)]
        self.tear(own[2])
        with caplog.at_level(logging.WARNING):
            assert provider.latest(location).location == own[1]
        assert any(own[2] in record.getMessage() for record in caplog.records), "the torn one is not reported"
        assert json.loads(provider.from_checkpoint(own[1]))["n"] == 1

    def test_pruning_does_not_keep_a_torn_one_in_place_of_the_last_whole_one(
        self, provider: BaseProvider, location: str
    ) -> None:
        own = [provider.checkpoint(json.dumps({"n": i, "raw": f"{i} " * 400}), location) for i in range(3)]
        self.tear(own[2])
        provider.prune(location, 1)
        assert provider.latest(location).location in own[1:]

    # -- at once

    def test_threads(self, provider: BaseProvider, location: str) -> None:
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(write_line, provider, location, name=f"t{i}", count=25) for i in range(8)]
            lines = [job.result() for job in jobs]
        _check_lines(provider, location, lines)

    def test_processes(self, provider: BaseProvider, location: str) -> None:
        processes = [
            Elsewhere(self.elsewhere(provider), "write_line", location=location, name=f"p{i}", count=25)
            for i in range(3)
        ]
        with together(*processes):
            lines = [process.end() for process in processes]
        _check_lines(provider, location, lines)

    def test_two_processes_on_one_branch_do_not_prune_each_other(self, provider: BaseProvider, location: str) -> None:
        signal = self.another(location)
        about = {"location": location, "signal": signal, "count": 30, "keep": 3}
        processes = [Elsewhere(self.elsewhere(provider), "write_and_stay", name=f"p{i}", **about) for i in range(2)]
        with together(*processes):
            eventually(lambda: len(provider.checkpoints(signal)) == 2, why="both are done, and neither is over")
            lines = [process.end() for process in processes]
        assert sorted(ids_of(provider.checkpoints(location))) == sorted(lines[0][-3:] + lines[1][-3:])

    def test_readers_while_it_is_pruned(self, provider: BaseProvider, location: str) -> None:
        """While others write and prune, a reader always gets a whole checkpoint, and never an older one than before."""
        provider.checkpoint(json.dumps({"name": "", "i": -1}), location)
        no_more = threading.Event()

        def follow() -> list[int]:
            seen: list[int] = []
            while (not seen or seen[-1] < 49) and not no_more.is_set():
                try:
                    seen.append(json.loads(provider.from_checkpoint(provider.latest(location).location))["i"])
                except CheckpointNotFound:
                    continue  # pruned between the two
            return seen

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(follow) for _ in range(2)]
            try:
                write_line(provider, location, count=50, keep=1)
            except BaseException:
                no_more.set()  # else the readers would wait for it for ever
                raise
            for reader in readers:
                seen = reader.result()
                assert seen == sorted(seen)

    # -- async

    def test_the_async_methods_do_the_same(self, provider: BaseProvider, location: str) -> None:
        async def write() -> list[str]:
            first = await provider.acheckpoint('{"i": 1}', location)
            second = await provider.acheckpoint(
                '{"i": 2}', location, parent_id=provider.extract_id(first), branch="fork/a"
            )
            assert await provider.afrom_checkpoint(second) == '{"i": 2}'
            assert await provider.afrom_checkpoint(first) == '{"i": 1}'
            return [first, second]

        first, second = asyncio.run(write())
        assert [info.location for info in provider.checkpoints(location)] == [first, second]
        assert provider.checkpoints(location)[1].parent_id == provider.extract_id(first)

    def test_many_async_writes_at_once(self, provider: BaseProvider, location: str) -> None:
        async def write() -> list[str]:
            return await asyncio.gather(*(provider.acheckpoint(json.dumps({"i": i}), location) for i in range(20)))

        own = asyncio.run(write())
        assert len(set(own)) == 20
        assert [json.loads(provider.from_checkpoint(one))["i"] for one in own] == list(range(20))
        assert sorted(info.location for info in provider.checkpoints(location)) == sorted(own)


def _check_lines(provider: BaseProvider, location: str, lines: list[list[str]]) -> None:
    """Assert that all written checkpoints exist, each line in its order and with its parents."""
    infos = provider.checkpoints(location)
    assert sorted(ids_of(infos)) == sorted(one for line in lines for one in line)
    parents = {info.id: info.parent_id for info in infos}
    for line in lines:
        assert [one for one in ids_of(infos) if one in set(line)] == line
        assert [parents[one] for one in line] == [None, *line[:-1]]
