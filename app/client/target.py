"""Where a client goes and with which key: argument, then environment, then `.env`, then the named profile.

Profiles are tables of a TOML file in the user's configuration directory:

    [production]
    url = "https://despacho.example.org"
    key = "dsp_…"

It holds keys, so a file that others may read is refused.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from app.client.errors import WrongConfiguration

DEFAULT_URL = "http://127.0.0.1:8000"
_LOOPBACK = ("127.", "localhost", "::1")


class Secret:
    """A text that no repr, log line or traceback shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        """Show that there is one."""
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        """Compare by text."""
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        """Hash by text."""
        return hash(self._text)


@dataclass(frozen=True, slots=True)
class Target:
    """The API to call; `key` is None when none was given."""

    url: str
    key: Secret | None = None

    @property
    def is_local(self) -> bool:
        """Say whether it is on this machine."""
        return (urlsplit(self.url).hostname or "").startswith(_LOOPBACK)

    @property
    def is_local_http(self) -> bool:
        """Say whether it is on this machine and no TLS is spoken."""
        return self.is_local and self.url.startswith("http://")


def profiles_file() -> Path:
    """Return the path of the profiles: $XDG_CONFIG_HOME/despacho/profiles.toml, or the same under ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "despacho" / "profiles.toml"


def choose_target(url: str | None = None, key: str | None = None, profile: str | None = None) -> Target:
    """Say where to go, from the arguments (or None) and the rest. Raises WrongConfiguration."""
    told = _told()
    name = profile or told.get("PROFILE")
    # A profile that is asked for by hand outranks an address of the environment.
    named = _profile(name) if name is not None else Target(DEFAULT_URL)
    if profile is None:
        from_environment = told.get("KEY")
        named = Target(told.get("URL") or named.url, Secret(from_environment) if from_environment else named.key)
    chosen = Secret(key) if key else named.key
    return Target(checked_url(url or named.url), None if chosen is None else _checked_key(chosen))


def checked_url(url: str) -> str:
    """Return the address without a slash at its end. Raises WrongConfiguration, which never shows it."""
    url = url.strip()
    if not url.startswith(("http://", "https://")):
        raise WrongConfiguration("the URL of the API should start with http:// or https:// (DESPACHO_URL)")
    try:
        parts = urlsplit(url)
        readable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        readable = False
    if not readable or any(char.isspace() or not char.isprintable() for char in url):
        raise WrongConfiguration(f"the URL of the API cannot be read; it should be like {DEFAULT_URL}")
    if parts.username is not None or parts.password is not None:
        raise WrongConfiguration("the URL of the API should hold no user and password: the key stands for both")
    if parts.query or parts.fragment:
        raise WrongConfiguration(f"the URL of the API should end before ? and #, like {DEFAULT_URL}")
    return url.rstrip("/")


def _checked_key(key: Secret) -> Secret:
    text = key.get_secret_value().strip()
    if not text or not all("!" <= char <= "~" for char in text):
        raise WrongConfiguration("the key should be as it was shown: visible ASCII characters without spaces")
    return Secret(text)


def _told() -> Mapping[str, str]:
    """Read DESPACHO_URL, _KEY and _PROFILE; the environment wins over `.env`."""
    found: dict[str, str] = {}
    for source in (_dotenv(), os.environ):
        for name, value in source.items():
            if value and name.upper().startswith("DESPACHO_"):
                found[name.upper().removeprefix("DESPACHO_")] = value
    return found


def _dotenv() -> Mapping[str, str | None]:
    path = Path(".env")
    try:
        if not path.is_file():
            return {}
        from dotenv import dotenv_values  # most programs have no such file, and need not pay for reading one

        return dotenv_values(path)
    except OSError as error:
        raise WrongConfiguration(f".env cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrongConfiguration(".env is not text in UTF-8") from None


def _profile(name: str) -> Target:
    path = profiles_file()
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise WrongConfiguration(f"{path} holds keys and others may read it: run chmod 600 {path}")
            tables = tomllib.load(file)
    except FileNotFoundError:
        raise WrongConfiguration(f"there is no profile {name!r}: {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise WrongConfiguration(
            f"{path} is not TOML: it should hold tables such as [{name}] with url and key"
        ) from None
    except OSError as error:
        raise WrongConfiguration(f"{path} cannot be read: {error.strerror}") from None
    table = tables.get(name)
    if not isinstance(table, dict):
        there = ", ".join(sorted(tables)) or "none"
        raise WrongConfiguration(f"there is no profile {name!r} in {path}; there are: {there}")
    if sorted(set(table) - {"url", "key"}) or not all(isinstance(value, str) for value in table.values()):
        raise WrongConfiguration(f"profile {name!r} in {path} should hold the texts url and key and nothing else")
    return Target(table.get("url", DEFAULT_URL), Secret(table["key"]) if table.get("key") else None)
