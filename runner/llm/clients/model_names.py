"""Finds the service and the address of a model by its name, and its context window."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from runner.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class _Service:
    """A service that speaks OpenAI's protocol: its address, and the environment variables for address and key."""

    base_url: str
    url_variables: tuple[str, ...]
    key_variable: str
    needs_key: bool = False


_SECRETS = frozenset({"key", "api_key", "api-key", "access_token", "token", "sig", "signature"})
_OPENAI = "https://api.openai.com/v1"

SERVICES: Mapping[str, _Service] = {
    "openai": _Service(_OPENAI, ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "OPENAI_API_KEY", needs_key=True),
    "ollama": _Service("http://localhost:11434/v1", ("OLLAMA_BASE_URL",), "OLLAMA_API_KEY"),
    "vllm": _Service("http://localhost:8000/v1", ("VLLM_BASE_URL",), "VLLM_API_KEY"),
    "hosted_vllm": _Service("http://localhost:8000/v1", ("VLLM_BASE_URL",), "VLLM_API_KEY"),
    "llamacpp": _Service("http://localhost:8080/v1", ("LLAMACPP_BASE_URL",), "LLAMACPP_API_KEY"),
    "openrouter": _Service(
        "https://openrouter.ai/api/v1", ("OPENROUTER_BASE_URL",), "OPENROUTER_API_KEY", needs_key=True
    ),
}
"""The services that are called with OpenAI's client, by the prefix of a model's name."""


@dataclass(frozen=True, slots=True)
class Target:
    """How a model is called: the client, the model's name there, the address and the key."""

    client: str
    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """Return the address without user and password, to be shown."""
        if self.base_url is None:
            return self.client
        parts = urlsplit(self.base_url)
        return (parts.hostname or self.base_url) + (f":{parts.port}" if parts.port else "")

    @property
    def is_openai(self) -> bool:
        """Whether the service is OpenAI itself, not another server with its protocol."""
        return self.client == "openai" and self.base_url == _OPENAI


def resolve(
    model: str, provider: str | None, base_url: str | None, api_key: str | None, environment: Mapping[str, str]
) -> Target:
    """Return how a model of that name is called from a process with that environment. Raises `ModelError`."""
    kind, model = _kind(model, provider, base_url)
    if kind == "litellm":
        return Target("litellm", model, base_url, api_key)
    if kind == "anthropic":
        base = base_url or environment.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        key = api_key or environment.get("ANTHROPIC_API_KEY")
        if not key:
            raise _no_key(model, "ANTHROPIC_API_KEY")
        return Target("anthropic", model, base, key)
    service = SERVICES.get(kind)
    if service is None:
        if not base_url:
            return Target("litellm", f"{kind}/{model}", None, api_key)
        service = _Service(base_url, (), f"{kind.upper()}_API_KEY")
    named = next(filter(None, map(environment.get, service.url_variables)), None)
    base = base_url or named or service.base_url
    key = api_key or environment.get(service.key_variable)
    if not key and service.needs_key and base == service.base_url:
        raise _no_key(model, service.key_variable)
    return Target("openai", model, base.rstrip("/"), key or "none")


def client_of(model: str, provider: str | None, base_url: str | None) -> str:
    """Return the client of a model of that name, which no environment changes."""
    kind, _ = _kind(model, provider, base_url)
    if kind in ("anthropic", "litellm"):
        return kind
    return "openai" if kind in SERVICES or base_url else "litellm"


@lru_cache(maxsize=64)
def _kind(model: str, provider: str | None, base_url: str | None) -> tuple[str, str]:
    """Return the service, or the client, that a model's name stands for, and its name there."""
    prefix, slash, rest = model.partition("/")
    kind = (provider or "").lower()
    if not kind and slash and prefix.lower() in {*SERVICES, "anthropic", "litellm"}:
        return prefix.lower(), rest
    if kind:
        return kind, rest if slash and prefix.lower() == kind else model
    if base_url:
        return "openai", model  # a server that speaks its protocol; names of models may have slashes there
    if slash:
        return "litellm", model
    return "anthropic" if model.startswith("claude") else "openai", model


@lru_cache(maxsize=64)
def without_secrets(url: str) -> str:
    """Return an address without user, password and keys."""
    parts = urlsplit(url)
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0].lower() not in _SECRETS])
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def _no_key(model: str, variable: str) -> ModelError:
    return ModelError(
        f"there is no key for the model {model!r}: set {variable} in the environment of the workers, "
        "or give it as LLM(api_key=...)"
    )


_WINDOWS: tuple[tuple[str, int], ...] = (
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-5", 400_000),
    (r"gpt-4o|gpt-4-turbo|chatgpt-4o", 128_000),
    (r"gpt-4-32k", 32_768),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5", 16_385),
    (r"o1-mini|o1-preview", 128_000),
    (r"o[134](-|$)", 200_000),
    (r"claude", 200_000),
    (r"gemini", 1_048_576),
    (r"deepseek", 64_000),
    (r"llama-?3\.[123]", 128_000),
)


@lru_cache(maxsize=64)
def context_window(model: str) -> int | None:
    """Return the context window of a model in tokens; None if unknown."""
    name = model.rpartition("/")[2].lower()
    return next((size for pattern, size in _WINDOWS if re.match(pattern, name)), None)
