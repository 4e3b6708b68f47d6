"""Masks secrets in text that is stored, logged or shown: error messages, tracebacks, log lines.

It masks keys of known issuers, passwords in URLs and assignments, values that follow the name of a secret, cookies, and
values of environment variables with such names. Mask a text before truncating it: half a key is not recognized.
"""

import base64
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

MASK = "***"

SHORTEST = 8
"""Characters that a variable's value has at least to be masked: shorter ones are parts of ordinary words."""

_NAMED_SECRET = re.compile(r"KEY(?!BOARD|S?PACE)|TOKEN(?!IZER)|SECRET|PASSW|PASSPHRASE|CREDENTIAL", re.IGNORECASE)

_KEYS = re.compile(  # each with an end: a text of megabytes costs what it is long
    r"""
      \b(?!sk_SK\.)(?:sk|rk|gsk|xai)[-_](?:(?=[\w*.-]{0,200}[\d*])[\w*.-]{6,}|[\w*.-]{16,})  # OpenAI and more
    | \b(?:pk|key)[-_](?=[\w*.-]{0,200}\d)[\w*.-]{16,}
    | \b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b                                     # AWS
    | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}    # GitHub, GitLab
    | \bxox[a-z]-[\w-]{8,} | \bxapp-[\w-]{8,} | (?<=hooks\.slack\.com/services/)[\w/]+
    | \bAIza[\w-]{30,} | \bya29\.[\w.-]{16,} | \bGOCSPX-[\w-]{16,}                # Google
    | \bhf_[A-Za-z0-9]{16,} | \bnpm_[A-Za-z0-9]{30,} | \bpypi-[\w-]{30,} | \bdckr_pat_[\w-]{16,}
    | \br8_[A-Za-z0-9]{20,} | \b(?:nvapi|pplx|tvly|lsv2)[-_][\w-]{16,} | \bSG\.[\w-]{16,100}\.[\w-]{16,}
    | \beyJ[\w-]{8,2000}\.eyJ[\w-]{8,}(?:\.[\w-]*)?                               # JSON web tokens
    | -----BEGIN[ ](?:[A-Z0-9]+[ ]){0,3}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----.*?
      (?:-----END[ ](?:[A-Z0-9]+[ ]){0,3}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_SCHEME = re.compile(
    r"(?i:\bAuthorization[\"']?\s{0,4}[:=]\s{0,4}b?[\"']?)(?:Bearer|Token|Basic)\s+"
    r"(?![a-z]{1,20}[.,;:]?(?:[\s\"']|$))[\w.~+/=:-]{8,}|"
    r"\b(?:(?i:Bearer)\s+(?![a-z]{1,15}(?:[\s,.;:]|$))[\w.~+/=-]{8,}|Basic\s+(?=\S{0,200}[\d=])[\w+/]{12,}=*)"
)
_IN_URL = re.compile(  # the word PASSWORD stands in messages that say how a URL is written
    r"\b([a-z][a-z0-9+.-]{1,30}://[^\s/@:?#'\"]{0,200}:)(?!(?-i:PASSWORD)@)[^\s/'\"]{0,300}@", re.IGNORECASE
)
_URL_OF_A_KEY = re.compile(r"(://)(?=[a-z_-]{0,200}\d)[\w-]{20,}@", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"""((?:[?&](?:key|token|sig|signature)
          |(?:api|account|access|private)[_-]?key|secret|passw(?:or)?d|passphrase|(?:access|auth|refresh|session)[_-]?token
          |(?<![a-z])pwd(?!["']?\s{0,4}[:=]\s{0,4}b?["']?[/~.]))  # else a folder
         [\w-]{0,40} (?:['"]\s{0,4}:\s{0,4}|\s{0,4}=\s{0,4}) (?:b?["'])?)
        (?!(?:None|null|True|False|true|false)\b|\.\.\.)
        (?!(?<=\s=\s)[A-Za-z_][\w.]{0,80}[(\[])(?:(?<=["'])[^"']+|[^\s"'&,;)\]}]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_NAMED = re.compile(  # a variable of the environment or a header: a value that is no word of a sentence
    r"""((?:(?-i:(?<!PUBLIC)(?<!PRIMARY)(?<!FOREIGN)(?:(?<=[A-Z0-9])_KEY|(?:\b|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PWD)))
          |(?:api|access|account|private|secret|auth)[_-]?key|(?:access|auth|refresh|session|api|bot|id)[_-]token
          |(?:\b|_)(?:(?:client|app|shared)[_-]?secret|passw(?:or)?d|passphrase|pwd))
         \b ["']?\s{0,4}[:=]\s{0,4}b?["']?)
        (?!https?://|[/~.]|\d+(?:[\s"'&,;)\]}]|$))(?=[^\s"'&,;)\]}]{0,200}\d|(?<=["'])[^"']{6}|[^\s"'&,;)\]}_.-]{16})
        (?:(?<=["'])[^"']{6,}|[^\s"'&,;)\]}]{6,})""",
    re.IGNORECASE | re.VERBOSE,
)
_COOKIE = re.compile(
    r"""(\b(?:set-)?cookie["']?\s{0,4}:\s{0,4}b?["']?)(?=[^\s=:]{1,200}=)(?:(?<=["'])[^"'\r\n]+|[^\r\n]+)""",
    re.IGNORECASE,
)


def redact(text: str, *secrets: str | None) -> str:
    """Mask the secrets in a text. Masking twice has no further effect.

    ``secrets`` are values that the caller knows, such as the key of a model's client.
    """
    for secret in sorted({*_known(), *filter(None, secrets)}, key=len, reverse=True):
        if len(secret) > 4 and secret in text:
            text = text.replace(secret, MASK)
    text = _IN_URL.sub(rf"\1{MASK}@", text)
    text = _URL_OF_A_KEY.sub(rf"\1{MASK}@", text)
    text = _KEYS.sub(MASK, text)
    text = _SCHEME.sub(lambda found: f"{found[0].rsplit(maxsplit=1)[0]} {MASK}", text)
    for named in (_ASSIGNED, _NAMED, _COOKIE):
        text = named.sub(rf"\1{MASK}", text)
    return text


def redact_url(url: str) -> str:
    """Return a URL without its password, wherever that is: before the last ``@``, even mistyped, or in the query."""
    url = re.sub(r"^([a-z+]*:?/*)(?:([^:@/?#]*):)?.*@", _hidden, url, flags=re.IGNORECASE | re.DOTALL)
    return re.sub(r"([?&]\w*password=)[^&]*", rf"\1{MASK}", url)


CLEAN = "clean"
"""The attribute of a log record that says that nothing in it is secret: names and ids, or what is masked already."""


class RedactingFormatter(logging.Formatter):
    """Formats as another formatter does, including tracebacks, and redacts the text."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter
        usual = type(formatter) is logging.Formatter and formatter.datefmt is None
        usual = usual and not vars(formatter._style).get("_defaults")
        self._line = str(formatter._fmt) if usual and type(formatter._style) is logging.PercentStyle else ""
        self._second, self._time = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the masked text of a record."""
        if not getattr(record, CLEAN, False):
            return redact(self._formatter.format(record))
        if not self._line or record.exc_info or record.stack_info:
            return self._formatter.format(record)
        # What logging's own formatter makes of it in eight calls, and by telling the time of day again for each line
        second = int(record.created)
        if second != self._second:
            here = self._formatter.converter(second)
            self._second, self._time = second, time.strftime(self.default_time_format, here)
        record.message, record.asctime = record.getMessage(), f"{self._time},{int(record.msecs):03d}"
        return self._line % record.__dict__


def redact_handlers(logger: logging.Logger) -> None:
    """Make each current handler of a logger redact what it writes."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, RedactingFormatter):
            handler.setFormatter(RedactingFormatter(handler.formatter or logging.Formatter()))


withheld: dict[str, str] = {}
"""What was taken out of this process's environment, and is masked as if it stood there: see `settings.withhold`."""


def _known() -> Iterator[str]:
    """The secrets in this process's environment: unchanged, and as they appear on one line."""
    for name, value in [*os.environ.items(), *withheld.items()]:
        if len(value) < SHORTEST:
            continue
        if "://" in value:
            if found := re.match(r"[a-z][a-z0-9+.-]*://[^/@:?#]*:(.{8,})@", value, re.IGNORECASE):
                yield from _written(found[1])
                yield from _written(unquote(found[1]))
        elif _NAMED_SECRET.search(name) and not _is_path(value):
            yield from _written(value)


@lru_cache(maxsize=256)
def _written(value: str) -> tuple[str, ...]:
    """A value in each form in which errors contain it: unchanged, on one line, quoted, URL-encoded or in base64."""
    plain = value.encode(errors="surrogateescape")
    urls = (quote(plain), quote(plain, safe=""), quote_plus(plain))
    inside = [value, " ".join(value.split())]
    for _ in range(2):  # in the text of an error within the text of another
        for one in tuple(inside):
            inside += [repr(one)[1:-1], repr(f"{one}\"'")[1:-4]]  # where another quote stands beside it
            inside += [json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]]
    spelled = [repr(plain)[2:-1], json.dumps(value)[1:-1].replace("/", "\\/")]
    lower = [re.sub("%..", lambda found: found[0].lower(), one) for one in urls]
    coded = base64.b64encode(plain).decode().rstrip("=")
    return tuple(dict.fromkeys(one for one in (*inside, *spelled, *urls, *lower, coded) if len(one) >= SHORTEST))


def _is_path(value: str) -> bool:
    """Whether a value names a file with a secret in it, as GOOGLE_APPLICATION_CREDENTIALS does."""
    return value.startswith(("/", "~/", "./")) and ("." in value or Path(value).exists())


def _hidden(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] or ''}{':' if found[2] is not None else ''}{MASK}@"
