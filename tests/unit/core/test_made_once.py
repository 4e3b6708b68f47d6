"""An attribute that is made when first read costs an object what any other costs."""

import sys
import tracemalloc

import pytest

from runner.core.made_once import early_names, made_once


class Plain:
    def __init__(self) -> None:
        self.a = self.b = self.c = self.late = None


@early_names("late")
class Late:
    def __init__(self) -> None:
        self.a = self.b = self.c = None

    @made_once
    def late(self) -> None:
        return None


def test_it_is_made_once() -> None:
    class Counter:
        made = 0

        @made_once
        def number(self) -> int:
            """A number."""
            self.made += 1
            return self.made

    one, other = Counter(), Counter()
    assert (one.number, one.number, other.number) == (1, 1, 1)
    assert Counter.number.__doc__ == "A number."


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="objects are laid out otherwise")
def test_an_object_keeps_sharing_its_names() -> None:
    # Given objects that did not ask for it, of more than there are names
    early = [Late() for _ in range(40)]

    def bytes_of(kind: type[Plain] | type[Late]) -> int:
        tracemalloc.start()
        try:
            made = [kind() for _ in range(1_000)]
            for one in made:
                _ = one.late
            return tracemalloc.get_traced_memory()[0] // len(made)
        finally:
            tracemalloc.stop()

    # Then later ones that do are as small as those that always had it
    bytes_of(Plain)
    assert bytes_of(Late) <= bytes_of(Plain) + 8
    assert early
