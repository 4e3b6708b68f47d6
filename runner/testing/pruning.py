"""What every provider prunes, and what it keeps."""

import json

import pytest

from runner.providers.base import BaseProvider
from runner.testing.writers import ids_of, write_line


class PruningConformance:
    """A part of `ProviderConformance`."""

    def another(self, location: str) -> str:
        """A second location, as empty as the first."""
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
        left = write_line(provider, location, name="left", count=1, parent_id=shared[-1])
        right = write_line(provider, location, name="right", count=4, parent_id=shared[-1], keep=3)
        # The right line has three of its own, and lets go of its fourth; the left one still stands on the shared two.
        assert ids_of(provider.checkpoints(location)) == [*shared, *left, *right[-3:]]
        left += write_line(provider, location, name="left", count=3, parent_id=left[-1], keep=3)
        assert ids_of(provider.checkpoints(location)) == [*right[-3:], *left[-3:]]

    def test_a_line_is_pruned_from_any_of_its_checkpoints(self, provider: BaseProvider, location: str) -> None:
        ids = write_line(provider, location, count=5)
        # From the third: the newer two belong to a line that goes on from it, and keep all that is older.
        assert provider.prune(location, 1, head=ids[2]) == 0
        assert provider.prune(location, 1, head=ids[4]) == 4
        assert provider.prune(location, 1, head="20200101T000000_00000000") == 0
        assert ids_of(provider.checkpoints(location)) == ids[4:]
