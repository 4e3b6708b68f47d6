"""Threads of which one runs at a time, from one point to the next: who goes on is decided from outside."""

import threading
from collections.abc import Callable


class Killed(BaseException):
    """A worker died here. Nothing that its code does from here on reaches anybody."""


class Actor:
    """One process of a worker. It stands still at each `point` until told to go on, and sleeps until ``wakes``."""

    here = threading.local()  #: ``one`` is the actor whose thread this is

    def __init__(self, worker: str, process: str) -> None:
        self.worker, self.process = worker, process
        self.busy = self.dead = False
        self.wakes = 0.0
        self.error: BaseException | None = None
        self._go, self._stands = threading.Lock(), threading.Lock()  # free where there is something to go on with
        self._go.acquire()
        self._stands.acquire()

    def begin(self, work: Callable[[], object]) -> None:
        """Do this, up to its first point."""
        self.busy = True
        threading.Thread(target=self._run, args=(work,), daemon=True).start()
        self._stands.acquire()

    def go_on(self) -> None:
        """Up to the next point, or the end."""
        self._go.release()
        self._stands.acquire()

    def kill(self) -> None:
        """It dies where it stands."""
        self.dead = True
        if self.busy:
            self.go_on()

    def point(self) -> None:
        """Stand still; or die."""
        if not self.dead:
            self._stands.release()
            self._go.acquire()
        if self.dead:
            raise Killed

    def sleep(self, until: float) -> None:
        """Stand still until then at least; or die."""
        self.wakes = until
        self.point()

    def _run(self, work: Callable[[], object]) -> None:
        Actor.here.one = self
        try:
            work()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.busy = False
            self._stands.release()


def point() -> None:
    """Of the actor whose thread this is, if it is one's."""
    one = getattr(Actor.here, "one", None)
    if one is not None:
        one.point()
