"""Where the values of secrets come from: the environment, a directory of files, a command. First found, first given.

Every value is registered with the redactor before anybody gets it, so that no log line, error or dead letter shows it.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from app.domain.errors import DeadLetter, Retry
from app.domain.secret_names import SECRET_NAME
from app.settings import SecretsSettings
from app.telemetry.logs import redact

MAXIMUM_BYTES = 64 * 1024
MINIMUM_CHARACTERS = 4
"""A shorter value cannot be hidden in texts without shredding them."""


class SecretMissing(DeadLetter):
    """No provider has the secret, or what it has cannot be one; the operator has to act, so no retry helps."""

    def __init__(self, message: str) -> None:
        super().__init__("missing_secret", message)

    def __reduce__(self) -> tuple[type["SecretMissing"], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


class SecretUnavailable(Retry):
    """A provider did not answer, which may mend itself."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message, "secret_unavailable")

    def __reduce__(self) -> tuple[type["SecretUnavailable"], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


class SecretProviders:
    """Gives the values of secrets by name; knows nothing of who may have them. Its text never shows a value."""

    def __init__(self, settings: SecretsSettings) -> None:
        self._settings = settings
        self._kept: dict[str, tuple[str, float]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def value(self, name: str) -> str:
        """Give a secret's value, without the line's end after it.

        Raises SecretMissing where nobody has it, SecretUnavailable where a provider fails.
        """
        if not SECRET_NAME.fullmatch(name):
            raise SecretMissing("a secret's name should be a letter and then up to 63 letters, digits, _ or -")
        raw = os.environb.get(os.fsencode(self._settings.environment_prefix + name))
        if raw is None:
            raw = await asyncio.to_thread(self._of_file, name)
        if raw is None and self._settings.command:
            return await self._of_command(name)
        if raw is None:
            raise SecretMissing(f"there is no secret {name}: {self._whereabouts(name)}")
        return _given(name, raw)

    def _of_file(self, name: str) -> bytes | None:
        if self._settings.directory is None:
            return None
        path = Path(self._settings.directory) / name
        try:
            with path.open("rb") as file:
                return file.read(MAXIMUM_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretUnavailable(f"the file of the secret {name} cannot be read ({type(error).__name__})") from None

    async def _of_command(self, name: str) -> str:
        """Ask the command, or take what it said lately; one question per name at a time."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            kept = self._kept.get(name)
            if kept is not None and time.monotonic() < kept[1]:
                return kept[0]
            value = _given(name, await self._asked(name))
            self._kept[name] = value, time.monotonic() + self._settings.command_cache_seconds
            return value

    async def _asked(self, name: str) -> bytes:
        argv = [part.replace("{name}", name) for part in self._settings.command]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise SecretUnavailable(f"the command for secrets cannot be started ({type(error).__name__})") from None
        try:
            async with asyncio.timeout(self._settings.command_timeout_seconds):
                output = await _read_some(process)
                status = await process.wait()
        except TimeoutError:
            raise SecretUnavailable(f"the command for secrets did not answer in time for {name}") from None
        finally:
            _end(process)
            await process.wait()
        if status != 0:
            raise SecretUnavailable(f"the command for secrets failed for {name} (exit status {status})")
        return output

    def _whereabouts(self, name: str) -> str:
        places = [f"set {self._settings.environment_prefix}{name} in the worker's environment"]
        if self._settings.directory is not None:
            places.append(f"put a file {name} into DESPACHO_SECRETS__DIRECTORY")
        return ", or ".join(places)


async def _read_some(process: asyncio.subprocess.Process) -> bytes:
    """Read the command's output to its end, or until it is more than any secret."""
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    output = b""
    while len(output) <= MAXIMUM_BYTES and (part := await process.stdout.read(MAXIMUM_BYTES)):
        output += part
    if len(output) > MAXIMUM_BYTES:
        _end(process)
    return output


def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the command with all that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _given(name: str, raw: bytes) -> str:
    """Check a value, register it with the redactor, and give it. Raises SecretMissing."""
    if len(raw) > MAXIMUM_BYTES:
        raise SecretMissing(f"the secret {name} is larger than {MAXIMUM_BYTES} bytes")
    try:
        value = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretMissing(f"the secret {name} is not UTF-8 text: encode it, for example as base64") from None
    if len(value) < MINIMUM_CHARACTERS:
        raise SecretMissing(f"the secret {name} is shorter than {MINIMUM_CHARACTERS} characters")
    redact(value)
    for part in value.split():  # several keys, or the lines of a PEM file, may be shown apart
        if len(part) >= 2 * MINIMUM_CHARACTERS:
            redact(part)
            redact(part.removeprefix("whsec_"))
    return value
