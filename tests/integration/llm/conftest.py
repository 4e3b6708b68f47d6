"""A task whose calls of models are journaled, a server that counts them, and the account of both."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import current_journal
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.llm.recording import journaled
from runner.testing import ModelServer

from ...support.later import Later

openai = Later("openai")
GPT = AccountKey("model", "", "gpt")


class Account(OneByOne):
    """Keeps steps as a store would, and their account."""

    can_wait = False

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.open, self.paid, self.replayed = Counters(), Counters(), Counters()
        self.tokens = 0
        self.past: list[str] = []  #: where calls went that nothing records

    def begin_step(self, entry: AccountKey = STEP, *, supersedes=(), intent_only=False) -> None:
        self.open.subtract(supersedes)
        self.open[entry] += 1

    def mark_sent(self, entry) -> None: ...

    def drop_step(self, entry: AccountKey = STEP, *, intent_only=False) -> None:
        self.open[entry] -= 1

    def record_step(self, step, value, *, replayed, entry=STEP, usage=NO_TOKENS, reported=False) -> None:
        assert step not in self.recorded
        self.recorded[step] = value
        self.replayed.add(replayed)
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        if entry is not None:
            self.open[entry] -= 1
            self.paid[entry] += 1

    @property
    def in_doubt(self) -> int:
        assert min(self.open.values(), default=0) >= 0, self.open
        return self.open.total()


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def attempt(account):
    """Does a task with what was recorded so far; gives what it returned. What it raises is the attempt's end."""

    def do(task, *, cancel_scope: CancelScope | None = None, lose: int = 0, **options: Any) -> Any:
        for key in list(account.recorded)[len(account.recorded) - lose :]:
            del account.recorded[key]
        account.open.clear()
        about = {"watched": options.pop("watched", False), "code": options.pop("code", "")}
        journal = Journal(account.recorded, account, cancel_scope or CancelScope(), **about)
        journal.on_unrecorded = account.past.append
        with journaled(journal, **options):
            try:
                return task()
            except BaseException as error:
                if journal.cancel_scope.stopping is None:
                    journal.ends_by(error)
                raise
            finally:
                account.replayed.add(journal.take_replayed())
                assert not journal.cancel_scope.in_call, "the task is in no call"

    return do


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """For this machine, by itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now, here = datetime.datetime.now(datetime.UTC), ipaddress.ip_address("127.0.0.1")
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now - datetime.timedelta(1), now + datetime.timedelta(1)
    )
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(here)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "here.pem"
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def server():
    with ModelServer() as one:
        yield one


@pytest.fixture
def ask(server):
    """Asks by OpenAI's client; gives the text."""
    with openai.OpenAI(base_url=server.url, api_key="sk-secret", max_retries=0, timeout=20) as client:

        def one(text: str, **options: Any) -> str:
            said = client.with_options(**options).chat.completions.create(model="gpt", messages=user(text))
            return said.choices[0].message.content or ""

        yield one


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def journal_now() -> Journal:
    found = current_journal()
    assert found is not None
    return found[0]
