"""The settings of model providers: which there are, how they are reached, what they cost, who stands in for whom."""

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from app.domain.llm import FALLBACK_KINDS, RETRYABLE

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Usd = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelPrice(_Group):
    """What a model costs, in USD for a million tokens, where the shipped price list does not know it."""

    input_usd_per_million_tokens: Usd
    output_usd_per_million_tokens: Usd
    cached_usd_per_million_tokens: Usd | None = Field(None, description="default: as other input")
    cache_write_usd_per_million_tokens: Usd | None = Field(None, description="default: as other input")
    as_of: date = Field(description="the date of the price, stored with every call")


class Fallback(_Group):
    """What is asked instead: another model, of this provider or of the one that is named."""

    model: str | None = Field(None, min_length=1, max_length=200)
    provider: str | None = None

    @model_validator(mode="after")
    def _names_something(self) -> "Fallback":
        if self.model is None and self.provider is None:
            raise ValueError("a fallback should name a model, a provider or both")
        return self


class ProviderSettings(_Group):
    """One provider: an OpenAI-compatible endpoint or Anthropic's Messages API."""

    kind: Literal["openai", "anthropic"]
    base_url: str
    model: str = Field(min_length=1, max_length=200)
    api_key: SecretStr | None = None
    api_key_env: str | None = Field(None, min_length=1)
    api_key_file: Path | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    dependency: str | None = Field(None, min_length=1, max_length=64)
    structured: Literal["json_schema", "json_object", "tool", "prompt"] | None = None
    stream: bool = False
    stream_usage: bool = True
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    max_output_tokens: int = Field(4096, ge=1, le=10_000_000)
    connect_timeout_seconds: Seconds = 5.0
    silence_timeout_seconds: Seconds = 120.0
    deadline_seconds: Seconds = 600.0
    price_provider: str | None = None
    prices: dict[str, ModelPrice] = Field(default_factory=dict)
    fallbacks: list[Fallback] = Field(default_factory=list, max_length=10)
    fallback_on: list[str] = list(FALLBACK_KINDS)

    @field_validator("base_url")
    @classmethod
    def _is_a_base_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable or parts.username or parts.query or parts.fragment:
            raise ValueError("should be http(s)://host[:port][/path] without user, query and fragment")
        return value.rstrip("/")

    @field_validator("fallback_on")
    @classmethod
    def _are_kinds(cls, value: list[str]) -> list[str]:
        if not set(value) <= RETRYABLE.keys():
            raise ValueError(f"should be kinds of failures: {', '.join(RETRYABLE)}")
        return value

    @model_validator(mode="after")
    def _has_one_key(self) -> "ProviderSettings":
        if sum(one is not None for one in (self.api_key, self.api_key_env, self.api_key_file)) > 1:
            raise ValueError("should have one of api_key, api_key_env and api_key_file")
        return self

    @property
    def way_of_structure(self) -> str:
        """How a schema is asked for: as set, else what the kind of provider is known to support."""
        return self.structured or ("tool" if self.kind == "anthropic" else "json_schema")

    def read_key(self) -> str | None:
        """Read the key from where it is; None where the provider takes none.

        Raises LookupError, which names the place, when there is no usable key in it.
        """
        if self.api_key is not None:
            return _usable(self.api_key.get_secret_value(), "api_key")
        if self.api_key_env is not None:
            return _usable(os.environ.get(self.api_key_env, ""), f"the environment variable {self.api_key_env}")
        if self.api_key_file is not None:
            try:
                return _usable(self.api_key_file.read_text("utf-8"), f"the file {self.api_key_file}")
            except (OSError, UnicodeDecodeError):
                raise LookupError(f"the file {self.api_key_file} cannot be read") from None
        return None


def _usable(key: str, place: str) -> str:
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise LookupError(f"{place} should hold a key of visible ASCII characters")
    return key


class SubmittersSettings(_Group):
    """What those who submit tasks of the built-in types may choose: they spend the operator's money."""

    providers: list[str] = Field(["*"], description="providers that a task may name; * stands for all")
    models: list[str] = Field(
        default_factory=list, description="models that a task may name beside those that the provider's settings name"
    )
    prompts: list[str] = Field(
        ["*"], description="prompts that `llm_completion` may name, as <name> or <name>@<version>; * stands for all"
    )
    own_words: bool = Field(True, description="whether `llm_completion` takes text and messages of the submitter's own")


class LlmSettings(_Group):
    """Which models can be called, and how much one call may take."""

    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict,
        description='by name, for example {"local": {"kind": "openai", "base_url": "http://127.0.0.1:8080/v1", '
        '"model": "smollm2"}}; kinds: openai (any compatible endpoint), anthropic; every field: workers/llm/README.md',
    )
    provider: str | None = Field(
        None, description="the one that is asked where nothing else is said; default: the first"
    )
    prompts_dir: Path | None = Field(None, description="own prompt files, <name>@<version>.md, before the shipped ones")
    max_prompt_bytes: int = Field(4 * 1024 * 1024, ge=1024, description="a longer request is not sent")
    max_answer_bytes: int = Field(1024 * 1024, ge=1024, description="a longer answer is cut off, and a failure")
    max_connections: int = Field(100, ge=1, le=10_000, description="open to providers at the same time, per process")

    chunk_characters: int = Field(
        24_000, ge=500, le=4_000_000, description="longer documents are read in parts; about 4 characters are a token"
    )
    max_chunks: int = Field(200, ge=1, le=10_000, description="a document of more parts is a failure")
    submitters: SubmittersSettings = SubmittersSettings()

    def refuses_provider(self, provider: str | None) -> str | None:
        """Say why a task may not name this provider (None: the default one); None where it may."""
        if not self.providers:
            return "no model provider is configured here (DESPACHO_LLM__PROVIDERS)"
        given = self.submitters.providers
        opened = [name for name in self.providers if "*" in given or name in given]
        if provider is None or provider in opened:
            return None
        return f"should be a provider that is open to tasks here: {', '.join(opened) or 'there is none'}"

    def refuses_model(self, provider: str | None, model: str | None) -> str | None:
        """Say why a task may not name this model of this provider; None where it may."""
        chosen = self.providers.get(provider or self.provider or next(iter(self.providers), ""))
        if model is None or chosen is None:
            return None
        known = {
            chosen.model,
            *chosen.prices,
            *(one.model for one in chosen.fallbacks if one.model and not one.provider),
        }
        if model in known or model in self.submitters.models:
            return None
        return f"should be a model that is open to tasks here: {', '.join(sorted(known | set(self.submitters.models)))}"

    def refuses_prompt(self, prompt: str) -> str | None:
        """Say why a task may not name this prompt; None where it may."""
        given = self.submitters.prompts
        if "*" in given or prompt in given or prompt.partition("@")[0] in given:
            return None
        return f"should be a prompt that is open to tasks here: {', '.join(given) or 'there is none'}"

    @model_validator(mode="after")
    def _knows_its_names(self) -> "LlmSettings":
        named = {fallback.provider for one in self.providers.values() for fallback in one.fallbacks} - {None}
        if self.provider is not None:
            named.add(self.provider)
        if not named <= self.providers.keys():
            raise ValueError("provider, and the provider of each fallback, should be one of the names in providers")
        return self
