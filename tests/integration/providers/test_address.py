"""What the URLs of a Redis say, and how those that say nothing are refused: in one line, without their password."""

from typing import Any

import pytest
from kombu.connection import Connection

from runner.core.errors import UsageError
from runner.core.redaction import redact_url
from runner.providers.redis import address
from runner.providers.redis.connection import connect
from runner.providers.redis.locations import parse_location, without_password
from runner.tasks import app

FULL = "redis+sentinel://me:p%40ss%2Fw@h1,h2:26380,[::1]:5/store/3?sentinel_username=s&sentinel_password=hid-den"


def test_sentinels() -> None:
    found = address.watched(address.standard(FULL))
    assert found is not None
    assert found.sentinels == (("h1", 26379), ("h2", 26380), ("::1", 5))
    assert (found.name, found.db, found.options) == ("store", 3, {})
    assert found.login == {"username": "me", "password": "p@ss/w"}
    assert found.sentinel_login == {"username": "s", "password": "hid-den"}


def test_sentinels_in_short_and_with_tls() -> None:
    found = address.watched(
        address.standard("valkeys+sentinel://h/store?ssl_ca_certs=/ca.pem&ssl_check_hostname=false")
    )
    assert found is not None
    assert (found.sentinels, found.name, found.db, found.login) == ((("h", 26379),), "store", 0, {})
    assert found.options == {"ssl": True, "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}


@pytest.mark.parametrize(
    ("url", "kwargs"),
    [
        ("valkey://u:p@h:7/2", {"host": "h", "port": 7, "db": 2, "username": "u", "password": "p"}),
        ("valkeys://h?ssl_ca_certs=/ca&ssl_certfile=/c&ssl_keyfile=/k", {"ssl_ca_certs": "/ca", "ssl_keyfile": "/k"}),
        ("rediss://h/1?ssl_ca_certs=/ca", {"ssl_ca_certs": "/ca", "db": 1}),
    ],
)
def test_valkey_and_tls(url: str, kwargs: dict[str, Any]) -> None:
    with connect(url) as client:
        pool = client.connection_pool
        assert kwargs.items() <= pool.connection_kwargs.items()
        assert ("SSL" in pool.connection_class.__name__) == (url.partition(":")[0] in ("valkeys", "rediss"))


def test_a_client_behind_sentinels() -> None:
    with connect(FULL.replace("redis+", "rediss+"), timeout=3) as client:
        pool = client.connection_pool
        assert "Sentinel" in pool.connection_class.__name__
        assert "SSL" in pool.connection_class.__name__
        assert {
            "db": 3,
            "username": "me",
            "password": "p@ss/w",
            "socket_timeout": 3,
        }.items() <= pool.connection_kwargs.items()
        asked = pool.sentinel_manager.sentinels[1].connection_pool.connection_kwargs
        assert {"host": "h2", "port": 26380, "username": "s", "password": "hid-den"}.items() <= asked.items()


@pytest.mark.parametrize(
    ("url", "kombus"),
    [
        ("redis://h/0?db=3&username=u&password=a/b&socket_timeout=3", "redis://u:a%2Fb@h/3"),
        ("valkeys://u:p@h/1?client_name=x&ssl_ca_certs=/ca.pem", "rediss://u:p@h/1?ssl_ca_certs=/ca.pem"),
        ("unix://u:p@/s/r.sock?db=3&health_check_interval=5", "redis+socket://u:p@/s/r.sock?virtual_host=3"),
    ],
)
def test_the_broker_is_told_what_kombu_knows(url: str, kombus: str) -> None:
    with connect(url) as client:
        client.connection_pool.make_connection()  # redis-py knows all of it
    assert app.kombu_url(url) == kombus
    Connection(kombus).release()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:hid-den@h1,h2",
        "redis+sentinel://:hid-den@h1,h2/",
        "redis+sentinel://:hid-den@h1,h2/store/x",
        "redis+sentinel://:hid-den@h1,h2/store/0/1",
        "redis+sentinel://:hid-den@h1:port/store",
        "redis+sentinel://:hid-den@h1,/store",
        "redis+sentinel://:hid-den@/store",
        "redis+sentinel://:hid/den@h1/store",
        "redis+sentinel://h1/store?password=hid-den",
        "redis+sentinel://h1/store?sentinel_password=hid-den&nothing=1",
        "unix+sentinel://:hid-den@h1/store",
        "valkey://:hid-den@h:port",
        "valkey://:hid-den@h/name",
        "valkey://:hid-den@h?ssl_ca_certs=/ca.pem",
        "valkey://[:hid-den@h",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        connect(url)
    assert "\n" not in str(raised.value)
    assert "hid" not in str(raised.value)
    assert "den" not in str(raised.value)


def test_no_password_is_shown() -> None:
    for shown in (redact_url(FULL), parse_location(f"{FULL}&prefix=x").shown, without_password(FULL)):
        assert "p%40" not in shown
        assert "hid-den" not in shown
        assert "h1,h2:26380,[::1]:5/store/3" in shown


def test_as_the_broker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_REDIS_URL", FULL.replace("redis+", "rediss+") + "&ssl_ca_certs=/ca.pem")
    monkeypatch.delenv("RUNNER_BROKER_URL", raising=False)
    assert app.broker_url().split(";")[1] == "sentinel://me:p%40ss%2Fw@h2:26380/3"
    assert app.own_broker()
    options = app.transport_options()
    assert options["master_name"] == "store"
    assert options["sentinel_kwargs"].items() >= {"password": "hid-den", "ssl": True, "ssl_ca_certs": "/ca.pem"}.items()
    assert app.transport_security() == {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem"}
    monkeypatch.setenv("RUNNER_BROKER_URL", "valkeys://h/1?ssl_ca_certs=/ca.pem")
    assert app.broker_url() == "rediss://h/1?ssl_ca_certs=/ca.pem"
    assert app.transport_options() == {}
    assert app.transport_security() == {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem"}, "for Flower's client"
    monkeypatch.setenv("RUNNER_BROKER_URL", "redis://h/1")
    assert app.transport_security() is None


@pytest.mark.parametrize(
    "same",
    [
        ["redis://h", "redis://me:one@H:6379/0", "rediss://:two@h/?db=0", "valkey://h:6379?password=three"],
        ["redis://h/3", "redis://h:6379/?db=3&username=me"],
        ["unix:///run/redis.sock", "unix://me:one@/run/redis.sock?db=0", "unix:///run/redis.sock?password=two"],
        [FULL, FULL.replace("me:p%40ss%2Fw@h1,h2:26380", "you:new@h2:26380,H1:26379"), FULL.replace("hid-den", "x")],
    ],
)
def test_who_a_store_is_has_no_password_in_it(same: list[str]) -> None:
    # Folders of runs were named by the whole URL: with a new password nobody found them again.
    assert len({address.identity(url) for url in same}) == 1
    assert not any(secret in address.identity(same[-1]) for secret in ("p%40ss", "one", "two", "me:", "hid"))


def test_stores_of_one_server_are_several() -> None:
    urls = ("redis://h", "redis://h/1", "redis://h:6380", "redis://g", "unix:///h", "unix:///h?db=1", FULL)
    assert len({address.identity(url) for url in urls}) == len(urls)
