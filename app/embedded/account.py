"""Which system account the embedded PostgreSQL runs as, and what it needs to reach its files.

PostgreSQL refuses to run as root. A normal user runs it as itself. Root hands it to an unprivileged account that is
already there; nothing is added to the system, and no directory of the user's is opened to others: where the account
cannot enter the way to the files (a clone under /root), it keeps the one capability that lets it pass.
"""

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.embedded.errors import NoAccount

_CANDIDATES = ("postgres", "nobody")
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2


@dataclass(frozen=True, slots=True)
class Account:
    """Who the server runs as: -1 keeps the caller's ids; `capability` is kept when it is not negative."""

    uid: int = -1
    gid: int = -1
    capability: int = -1

    def own(self, path: Path) -> None:
        """Give `path` to the account."""
        if self.uid >= 0:
            os.chown(path, self.uid, self.gid)


def choose_account(cluster: Path, reaches: Iterable[Path]) -> Account:
    """Return who runs the server for the data in `cluster`, able to reach all of `reaches` (existing paths).

    Existing data keeps its owner. Raises NoAccount.
    """
    if os.geteuid() != 0:
        return Account()
    entry = _entry(cluster)
    blocked = [way for path in reaches for way in (path, *path.parents) if not _may_pass(way, entry)]
    return Account(entry.pw_uid, entry.pw_gid, _capability(blocked[0], entry) if blocked else -1)


def _entry(cluster: Path) -> pwd.struct_passwd:
    if cluster.exists() and (owner := cluster.stat().st_uid) != 0:
        try:
            return pwd.getpwuid(owner)
        except KeyError:
            raise NoAccount(
                f"{cluster} belongs to user id {owner}, which has no account on this machine; "
                f"give it to one (chown -R postgres {cluster}) or start as that user"
            ) from None
    for name in _CANDIDATES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoAccount(
        "PostgreSQL does not run as root and this machine has neither the account 'postgres' nor 'nobody'; "
        "start as a normal user, or set DESPACHO_DATABASE_URL to a server of your own"
    )


def _may_pass(way: Path, entry: pwd.struct_passwd) -> bool:
    facts = way.stat()
    if facts.st_uid == entry.pw_uid:
        return bool(facts.st_mode & 0o100)
    if facts.st_gid == entry.pw_gid:
        return bool(facts.st_mode & 0o010)
    return bool(facts.st_mode & 0o001)


def _capability(blocked: Path, entry: pwd.struct_passwd) -> int:
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):
        if _permitted() >> capability & 1:
            return capability
    raise NoAccount(
        f"PostgreSQL does not run as root, and the account {entry.pw_name!r} cannot enter {blocked}; "
        f"choose another place with --data-dir (for example /var/lib/despacho), start as a normal user, "
        f"or let others pass (chmod o+x {blocked})"
    )


def _permitted() -> int:
    """Return the set of capabilities that this process may use, as bits; none where there is no such thing."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next((line for line in status.read_text().splitlines() if line.startswith("CapPrm:")), "CapPrm: 0")
    return int(line.split()[1], 16)
