"""What is masked in the texts of errors, and what stays readable."""

import base64
import json
import logging
import re
import sysconfig
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from runner.core.errors import one_line
from runner.core.redaction import RedactingFormatter, redact, redact_url
from runner.events.work_events import TaskFailedEvent

# Put together here, so that nothing that looks like a key stands in this repository.
A, B = "Ab3dEf6hIj9lMn2p", "QrStUvWxYz0123456789"
SECRETS = [
    f"sk-{A}",
    f"sk-ant-api03-{A}-{B}",
    f"sk-proj-{A}_{B}",
    "AKIA" + "ABCDEFGH12345678",
    f"ghp_{A}{B}",
    f"github_pat_{A}_{B}",
    f"glpat-{A}{B}",
    "xoxb-" + f"123456789012-{A}",
    "AIza" + f"Sy{A}{B}",
    f"hf_{A}{B}",
    f"eyJ{A}.eyJ{A}.{B}",
    f"-----BEGIN RSA PRIVATE {'KEY'}-----\nMIIE{A}\n{B}\n-----END RSA PRIVATE {'KEY'}-----",
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:8])
def test_keys_are_masked_wherever_they_stand(secret: str) -> None:
    for text in (secret, f"refused: {secret}", f"key='{secret}', next", f"Authorization: Bearer {secret}\nmore"):
        masked = redact(text)
        assert "***" in masked
        assert A not in masked
        assert B not in masked
        assert "ABCDEFGH" not in masked
        assert redact(masked) == masked
    assert redact(f"before {secret} after").startswith("before ***")
    assert redact(f"before {secret} after").endswith("*** after")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:hunter2@db.example/x failed", "postgresql://me:***@db.example/x failed"),
        ("redis://:p@ss@cache:6379/0", "redis://:***@cache:6379/0"),
        ("GET https://host/v1?api_key=abcdef&page=2", "GET https://host/v1?api_key=***&page=2"),
        ("GET https://host/v1?key=abcdef", "GET https://host/v1?key=***"),
        ("connect(host='db', password='hunter2', port=1)", "connect(host='db', password='***', port=1)"),
        ('{"client_secret": "abc def", "user": "me"}', '{"client_secret": "***", "user": "me"}'),
        ("DB_PASSWORD=hunter2 host=db", "DB_PASSWORD=*** host=db"),
        ("Authorization: Basic bWU6aHVudGVyMg==", "Authorization: Basic ***"),
        ("refused: OPENAI_API_KEY: PLAINKEYabc12345, try", "refused: OPENAI_API_KEY: ***, try"),
        ("BILLING_TOKEN=abc12345 SIGNING_KEY=correcthorsebattery", "BILLING_TOKEN=*** SIGNING_KEY=***"),
        ("x-api-key: abc12345\nhost: h", "x-api-key: ***\nhost: h"),
        ("{'x-api-key': 'abc12345', 'n': 1}", "{'x-api-key': '***', 'n': 1}"),
        ("{'BILLING_TOKEN': 'correct horse', 'n': 1}", "{'BILLING_TOKEN': '***', 'n': 1}"),
        ("DB_PASSWORD: hunter2 and password: hunter2", "DB_PASSWORD: *** and password: ***"),
        ("Cookie: session=abc; theme=dark\nHost: h", "Cookie: ***\nHost: h"),
        ("{'Set-Cookie': 'a=b; c=d', 'Host': 'h'}", "{'Set-Cookie': '***', 'Host': 'h'}"),
        ("connect(user='me', pwd='pass')", "connect(user='me', pwd='***')"),
        ("uid=me;pwd=pass;db=x", "uid=me;pwd=***;db=x"),
        ("pwd: hunter22", "pwd: ***"),
        ("Authorization: Bearer abc.def-ghi_123", "Authorization: Bearer ***"),
        ("{'authorization': 'Bearer opaque.word.only'}", "{'authorization': 'Bearer ***'}"),
        ("cloning https://a1b2c3d4e5f6a7b8c9d0e1@github.com/x", "cloning https://***@github.com/x"),
        ("snowflake://me:hunter2@account/db", "snowflake://me:***@account/db"),
        (f"-----BEGIN PGP PRIVATE {'KEY'} BLOCK-----\nlQ\n-----END PGP PRIVATE {'KEY'} BLOCK-----.", "***."),
    ],
)
def test_passwords_are_masked(text: str, masked: str) -> None:
    assert redact(text) == masked
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'key_lookup_table' (crew.py:7)",
        "No module named 'sk-learn'",
        "the bearer authentication failed. Basic information is missing",
        "password: Field required; password=None; max_tokens=4096; unexpected token: end",
        "https://example.org:8080/users/joe@example.org is not found",
        "ConnectionError: redis://cache:6379/0 and ssh://git@github.com/a/b",
        "tokens: 12; TOKEN: 12; max_token: 123456; {'key': 'value12', 'tokens': 1234567, 'sort_key': 'user_12345'}",
        "api_key: Field required; OPENAI_API_KEY: is not set; api-key: authentication_error; secret: nothing here",
        "PRIMARY_KEY: user_12345 PWD=/home/me pwd: /home/me; Cookie: it is stale; cookie: Field required",
        "OPENAI_API_KEY: https://example.org/account/keys1 tells how",
        "task-0123456789abcdef of run r-0123456789ab",
        "Authorization: Bearer authentication is needed; Authorization: Basic credentials",
        "    password = getpass.getpass('Password: ')",
        "    self.password = config['password']",
        "OPENAI_API_KEY=... runner submit crew.py",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_values_of_variables_named_as_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLING_TOKEN", "correct horse")
    monkeypatch.setenv("SIGNING_KEY", "first line\nsecond line")
    monkeypatch.setenv("APP_SECRET", "short")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/etc/account.json")
    monkeypatch.setenv("CACHE_URL", "redis://:battery-staple@cache/0")
    monkeypatch.setenv("COLOUR", "burgundy-red")
    text = "correct horse; first line second line; short; /etc/account.json; battery-staple; burgundy-red"
    assert redact(text) == "***; ***; short; /etc/account.json; ***; burgundy-red"
    assert one_line(ValueError("of correct\n")) == "of correct"
    assert one_line(ValueError("correct horse\n")) == "***"
    assert redact("a key of the caller's", "caller's") == "a key of the ***"


@pytest.mark.parametrize("secret", ["pa$$ w/ord+'q\"uote\\x", "it's ünicode", "first\nsecond", 'a"b/c=d+e'])
@pytest.mark.parametrize(
    "written",
    [str, repr, json.dumps, lambda one: repr(repr(one)), lambda one: repr(one.encode()), quote, quote_plus,
     lambda one: quote(one, safe=""), lambda one: quote(one, safe="").lower(), lambda one: repr([one, "\"'"]),
     lambda one: repr(f"failed with {one} and \" and '"), lambda one: json.dumps({"a": json.dumps(one)}),
     lambda one: base64.b64encode(one.encode()).decode()],
)  # fmt: skip
def test_the_value_of_a_variable_is_masked_however_it_is_written(
    secret: str, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = written(secret)
    monkeypatch.setenv("BILLING_TOKEN", secret)
    masked = redact(f"<{text}>")
    assert "***" in masked
    assert text[3:-3] not in masked
    assert redact(masked) == masked


def test_the_password_of_a_url_is_masked_decoded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_URL", "redis://:battery%40staple@cache/0")
    assert redact("with battery@staple and battery%40staple") == "with *** and ***"


@pytest.mark.slow
def test_ordinary_text_stays_as_it_is() -> None:
    """Nothing is masked in sources and pages but behind the name of a secret."""
    root = Path(__file__).parents[3]
    pages = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    named = re.compile(r"passw|pwd|cookie|[a-z]key|_key|://", re.IGNORECASE)
    for file in [*pages, *sorted(Path(sysconfig.get_path("stdlib")).glob("[h-m]*.py"))]:
        before = file.read_text(encoding="utf-8", errors="replace")
        plain = "\n".join(line for line in before.splitlines() if not named.search(line))
        assert redact(plain) == plain, file


def test_stored_events_and_log_lines_are_masked() -> None:
    event = TaskFailedEvent(error=f"ValueError: {SECRETS[0]}")
    assert A not in json.dumps(event.stored())
    formatter = RedactingFormatter(logging.Formatter("%(message)s"))
    try:
        raise ValueError(SECRETS[0])
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("n", logging.ERROR, "f", 1, "with %s", (SECRETS[1],), info)
    line = formatter.format(record)
    assert line.startswith("with ***\nTraceback")
    assert A not in line


def test_urls_are_masked_wherever_the_password_stands() -> None:
    assert redact_url("redis://u:p/w@h/0?password=x") == "redis://u:***@h/0?password=***"


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "eyJab.",
        "a.",
        "secret",
        "x://",
        "-----BEGIN PRIVATE ",
        "a:",
        "Bearer ",
        " ",
        "_KEY:",
        "pwd:1",
        "cookie:",
        "TOKEN: ",
    ],
)
def test_a_long_text_costs_what_it_is_long(piece: str) -> None:
    def cost(size: int) -> float:
        text = piece * (size // len(piece))
        began = time.process_time()
        redact(text)
        return time.process_time() - began

    assert cost(100_000) < 40 * max(cost(10_000), 0.0025)  # quadratic: 100 times


@pytest.mark.parametrize("line", ["[%(asctime)s: %(levelname)s/%(processName)s] %(message)s", "%(message)s", None])
def test_a_line_without_secrets_is_as_logging_formats_it(line: str | None) -> None:
    usual = logging.Formatter(line)
    ours = RedactingFormatter(usual)
    for created in (1795792802.0, 1795792802.7519, 1795792803.0004, 1795792802.9):
        record = logging.LogRecord("runner.tasks", logging.INFO, __file__, 1, "%s of %d", ("half", 2), None)
        record.created, record.msecs, record.clean = created, created % 1 * 1000 // 1, True
        assert ours.format(record) == usual.format(record)
    record.exc_info = (ValueError, ValueError("no"), None)
    assert ours.format(record) == usual.format(record)


def test_a_formatter_that_was_set_up_otherwise_stays_so() -> None:
    in_utc = logging.Formatter("%(asctime)s %(message)s")
    in_utc.converter = lambda seconds: time.gmtime(9 * 3600 + (seconds or 0))  # no zone that a machine has
    for usual in (in_utc, logging.Formatter("%(host)s %(message)s", defaults={"host": "h"})):
        record = logging.LogRecord("runner.tasks", logging.INFO, __file__, 1, "said", (), None)
        record.clean = True
        assert RedactingFormatter(usual).format(record) == usual.format(record)
