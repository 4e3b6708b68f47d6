"""Keys that are somebody else's: of another type than ours. A script that is to write there refuses at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis.exceptions import ResponseError

from .calls import contents
from .driver import Driver


@contextmanager
def somebody_elses(driver: Driver, *names: str) -> Iterator[None]:
    """Meanwhile these keys are of a type that none of ours has."""
    before = {name: driver.redis.type(name) for name in names}
    aside = {name: f"{name}:aside" for name, kind in before.items() if kind != "none"}
    for name in names:
        if name in aside:
            driver.redis.rename(name, aside[name])
        driver.redis.setbit(name, 7, 1)
    yield
    for name in names:
        assert driver.redis.type(name) == "string"
        driver.redis.delete(name)
        if name in aside:
            driver.redis.rename(aside[name], name)


@contextmanager
def refused(driver: Driver) -> Iterator[None]:
    """It fails at a key that is somebody else's, and has changed nothing."""
    before = contents(driver.redis)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        yield
    assert contents(driver.redis) == before
