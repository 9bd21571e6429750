"""Where the client's commands go and with which key: flag, then environment, then `.env`, then the named profile.

Profiles are tables of a TOML file in the user's configuration directory:

    [production]
    url = "https://despacho.example.org"
    key = "dsp_…"

It holds keys, so a file that others may read is refused.
"""

import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.cli.ending import WrongUsage

DEFAULT_URL = "http://127.0.0.1:8000"


class ClientSettings(BaseSettings):
    """What the environment and `.env` say to a client."""

    model_config = SettingsConfigDict(
        env_prefix="DESPACHO_", env_file=".env", extra="ignore", hide_input_in_errors=True
    )

    url: str | None = Field(None, description="address of the API")
    key: SecretStr | None = Field(None, description="the key to call it with")
    profile: str | None = Field(None, description="the profile to take both from")


@dataclass(frozen=True, slots=True)
class Target:
    """The API to call; `key` is None when none was given."""

    url: str
    key: SecretStr | None


def profiles_file() -> Path:
    """Return the path of the profiles: $XDG_CONFIG_HOME/despacho/profiles.toml, or the same under ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "despacho" / "profiles.toml"


def choose_target(url: str | None, key: str | None, profile: str | None) -> Target:
    """Say where to go, from the flags (or None) and the rest. Raises WrongUsage."""
    told = ClientSettings()
    name = profile or told.profile
    # A profile that is named by a flag outranks an address of the environment: it was asked for by hand.
    named = _profile(name) if name is not None else Target(DEFAULT_URL, None)
    from_environment = Target(told.url or named.url, told.key or named.key) if profile is None else named
    target = url or from_environment.url
    if not target.startswith(("http://", "https://")):
        raise WrongUsage("the URL of the API should start with http:// or https:// (--url, DESPACHO_URL)")
    return Target(target.rstrip("/"), SecretStr(key) if key else from_environment.key)


def _profile(name: str) -> Target:
    path = profiles_file()
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise WrongUsage(f"{path} holds keys and others may read it: run chmod 600 {path}")
            tables = tomllib.load(file)
    except FileNotFoundError:
        raise WrongUsage(f"there is no profile {name!r}: {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise WrongUsage(f"{path} is not TOML: it should hold tables such as [{name}] with url and key") from None
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}") from None
    table = tables.get(name)
    if not isinstance(table, dict):
        raise WrongUsage(f"there is no profile {name!r} in {path}; there are: {', '.join(sorted(tables)) or 'none'}")
    unknown = sorted(set(table) - {"url", "key"})
    if unknown or not all(isinstance(value, str) for value in table.values()):
        raise WrongUsage(f"profile {name!r} in {path} should hold the texts url and key and nothing else")
    return Target(table.get("url", DEFAULT_URL), SecretStr(table["key"]) if table.get("key") else None)
