"""What every provider prunes, and what it keeps."""

import json
from collections.abc import Iterator

import pytest

from runner.providers.base import BaseProvider
from runner.testing.fleet import eventually
from runner.testing.writers import Elsewhere, ids_of, over, together, write_line


class PruningConformance:
    """Tests of what a provider prunes and keeps: a part of `ProviderConformance`."""

    lapses_within = 60.0
    """Seconds in which it is known that a process is dead that had a run in flight."""

    @pytest.fixture(autouse=True)
    def _at_rest(self, provider: BaseProvider, location: str) -> Iterator[None]:
        yield
        over(provider, location)

    def elsewhere(self, provider: BaseProvider) -> str:
        """See `ProviderConformance.elsewhere`."""
        raise NotImplementedError

    def another(self, location: str) -> str:
        """Return a second empty location."""
        return f"{location}-2"

    def test_pruning_keeps_the_newest(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=5)
        assert provider.prune(location, 2) == 3
        assert ids_of(provider.checkpoints(location)) == ids[-2:]
        assert json.loads(provider.from_checkpoint(provider.latest(location).location))["i"] == 4

    def test_pruning_to_nothing_leaves_nothing(self, provider: BaseProvider, location: str) -> None:
        write_line(provider, location, count=4)
        assert provider.prune(location, 0) == 4
        assert provider.checkpoints(location) == []
        [after] = write_line(provider, location, count=1)
        assert ids_of(provider.checkpoints(location)) == [after]

    def test_pruning_to_more_than_there_are_removes_none(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=3)
        assert provider.prune(location, 3) == 0
        assert provider.prune(location, 100) == 0
        assert ids_of(provider.checkpoints(location)) == ids

    def test_pruning_leaves_other_branches_alone(self, provider: BaseProvider, location: str) -> None:
        write_line(provider, location, count=3)
        forks = write_line(provider, location, count=2, branch="fork/a")
        assert provider.prune(location, 1, branch="main") == 2
        assert ids_of(provider.checkpoints(location, "fork/a")) == forks
        assert provider.prune(location, 0, branch="nowhere") == 0
        assert provider.prune(self.another(location), 0) == 0

    def test_a_fork_lives_without_what_it_left(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=3)
        forks = write_line(provider, location, count=2, branch="fork/a", parent_id=ids[1])
        provider.prune(location, 0)
        assert [json.loads(provider.from_checkpoint(i.location))["i"] for i in provider.checkpoints(location)] == [0, 1]
        assert ids_of(provider.checkpoints(location)) == forks

    def test_a_negative_number_is_refused(self, provider: BaseProvider, location: str) -> None:
        with pytest.raises(ValueError, match="max_keep must be at least 0, got -1"):
            provider.prune(location, -1)

    # -- pruning by line

    def test_two_lines_on_one_branch_do_not_prune_each_other(self, provider: BaseProvider, location: str) -> None:
        lines: dict[str, list[str]] = {"a": [], "b": []}
        for turn in range(20):
            # b writes once where a writes four times
            for name in ("a", "b") if turn % 4 == 0 else ("a",):
                parent = lines[name][-1] if lines[name] else None
                [new] = write_line(provider, location, name=name, count=1, parent_id=parent, keep=3)
                lines[name].append(new)
        kept = ids_of(provider.checkpoints(location))
        assert sorted(kept) == sorted(lines["a"][-3:] + lines["b"][-3:])

    def test_a_line_ends_where_its_branch_begins(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=3)
        forks = write_line(provider, location, count=3, branch="fork/a", parent_id=ids[2])
        assert provider.prune(location, 1, branch="fork/a", head=forks[-1]) == 2
        assert ids_of(provider.checkpoints(location)) == [*ids, forks[-1]]
        assert provider.prune(location, 0, branch="fork/a", head=forks[-1]) == 1
        assert ids_of(provider.checkpoints(location)) == ids

    def test_what_two_lines_share_stays_as_long_as_one_of_them_counts_it(
        self, provider: BaseProvider, location: str
    ) -> None:
        shared = write_line(provider, location, count=2)
        left = write_line(provider, location, name="left", count=1, parent_id=shared[-1], keep=3)
        right = write_line(provider, location, name="right", count=4, parent_id=shared[-1], keep=3)
        # The right line has three of its own, and lets go of its fourth; the left one still stands on the shared two.
        assert ids_of(provider.checkpoints(location)) == [*shared, *left, *right[-3:]]
        left += write_line(provider, location, name="left", count=3, parent_id=left[-1], keep=3)
        assert ids_of(provider.checkpoints(location)) == [*right[-3:], *left[-3:]]

    def test_runs_one_after_another_leave_no_more_than_one_does(self, provider: BaseProvider, location: str) -> None:
        for run in range(4):
            ids = write_line(provider, location, name=f"run {run}", count=3, keep=2)
            over(provider, location)
            assert ids_of(provider.checkpoints(location)) == ids[-2:]
        [last] = write_line(provider, location, count=1, keep=2)
        assert ids_of(provider.checkpoints(location)) == [ids[-1], last], "the newest, whosever they are"

    def test_a_line_in_flight_does_not_count_and_does_once_it_is_over(
        self, provider: BaseProvider, location: str
    ) -> None:
        first = write_line(provider, location, name="first", count=3, keep=2)
        second = write_line(provider, location, name="second", count=3, keep=2)
        assert ids_of(provider.checkpoints(location)) == [*first[-2:], *second[-2:]]
        over(provider, location, first[-1])
        assert provider.prune(location, 2, head=second[-1]) == 2
        assert ids_of(provider.checkpoints(location)) == second[-2:]

    def test_the_line_of_another_process_lives_as_long_as_that(self, provider: BaseProvider, location: str) -> None:
        signal = self.another(location)
        about = {"location": location, "signal": signal, "name": "other", "count": 2, "keep": 2}
        process = Elsewhere(self.elsewhere(provider), "write_and_stay", **about)
        with together(process):
            eventually(lambda: provider.checkpoints(signal), why="the other run stands on its second")
            theirs = ids_of(provider.checkpoints(location))
            ours = write_line(provider, location, count=5, keep=2)
            assert ids_of(provider.checkpoints(location)) == [*theirs, *ours[-2:]]
        eventually(
            lambda: provider.prune(location, 2, head=ours[-1]) == 2,
            within=self.lapses_within,
            why="it is known to be dead",
        )
        assert ids_of(provider.checkpoints(location)) == ours[-2:]

    def test_the_first_checkpoint_of_a_run_is_held_before_others_see_it(
        self, provider: BaseProvider, location: str
    ) -> None:
        signal = self.another(location)
        process = Elsewhere(self.elsewhere(provider), "write_and_not_hold", location=location, signal=signal)
        with together(process):
            eventually(lambda: provider.checkpoints(signal), why="the other run has written its first")
            theirs = ids_of(provider.checkpoints(location))
            ours = write_line(provider, location, count=5, keep=2)
            assert ids_of(provider.checkpoints(location)) == [*theirs, *ours[-2:]]
        eventually(
            lambda: provider.prune(location, 2, head=ours[-1]) == 1,
            within=self.lapses_within,
            why="it is known to be dead",
        )

    def test_pruning_for_a_checkpoint_that_is_gone_removes_none(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=3)
        assert provider.prune(location, 1, head="20200101T000000_00000000") == 0
        assert ids_of(provider.checkpoints(location)) == ids
