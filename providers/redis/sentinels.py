"""Finds the master through Sentinel, and explains why there is none."""

from typing import Any

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from runner.providers.redis.address import Watched
from runner.providers.redis.outages import brief

_REFUSES_US = (AuthenticationError, AuthorizationError, ResponseError)


class NoMaster(MasterNotFoundError):
    """None of the sentinels gives a master."""

    def __init__(self, sentinels: "Sentinels", name: str) -> None:
        super().__init__(f"none of the sentinels {sentinels.addresses} that answers has a master {name!r} that is up")
        self._sentinels, self._name = sentinels, name

    def explained(self, option: str) -> str:
        """Why not, and what to do, where the URL is given with ``option``. Each sentinel is asked again."""
        return self._sentinels.why_none(self._name, option)


class Sentinels(Sentinel):
    """Those of a URL, in their order there until one has answered."""

    @property
    def addresses(self) -> str:
        """Return the addresses of the sentinels that a URL names."""
        return ",".join(map(_address, self.sentinels))

    def discover_master(self, service_name: str) -> Any:
        """Host and port of the master. Raises `NoMaster`."""
        try:
            return super().discover_master(service_name)  # type: ignore[no-untyped-call]  # redis-py is untyped there
        except MasterNotFoundError:
            raise NoMaster(self, service_name) from None

    def why_none(self, name: str, option: str) -> str:
        """Why no sentinel gives a master of that name, and what to do."""
        silent = refused = known = ""
        for sentinel in self.sentinels:
            try:
                masters: Any = sentinel.sentinel_masters()
            except _REFUSES_US as error:
                refused = f"{_address(sentinel)}: {brief(error)}"
                continue
            except (RedisError, OSError) as error:
                silent = f"{_address(sentinel)}: {brief(error)}"
                continue
            if name in masters:
                state = masters[name]
                return (
                    f"the master {name!r} at {state['ip']}:{state['port']} is down, and its sentinels have elected no "
                    "other. Start it, or try again when they have"
                )
            known = ", ".join(map(repr, sorted(masters))) or "none at all"
        if known:
            return f"its sentinels know no master {name!r}, but {known}. Correct the name in the URL"
        if refused:
            return f"its sentinels refuse to authenticate ({refused}). Check sentinel_username and sentinel_password"
        return f"none of its sentinels answers ({silent}). Start them, or name others with {option}"


def connections(watched: Watched, options: dict[str, Any]) -> SentinelConnectionPool:
    """Connections to whichever server the sentinels call the master when each is opened."""
    times = {name: options[name] for name in ("socket_connect_timeout", "socket_keepalive", "retry")}
    # A sentinel that does not answer is not waited for: there are others.
    asked = {**times, **watched.options, **watched.sentinel_login, "socket_timeout": times["socket_connect_timeout"]}
    sentinels = Sentinels(list(watched.sentinels), sentinel_kwargs=asked)  # type: ignore[no-untyped-call]  # redis-py is untyped there
    found = {"db": watched.db, **options, **watched.options, **watched.login}
    return SentinelConnectionPool(watched.name, sentinels, **found)  # type: ignore[no-untyped-call]  # redis-py is untyped there


def _address(sentinel: Any) -> str:
    at = sentinel.connection_pool.connection_kwargs
    return f"[{at['host']}]:{at['port']}" if ":" in at["host"] else f"{at['host']}:{at['port']}"
