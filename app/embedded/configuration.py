"""How the embedded PostgreSQL is set up: safe by default, sized for a small machine that does other work too."""

from collections.abc import Mapping
from typing import Final

from app.embedded.ownership import MARK

SETTINGS: Final[Mapping[str, str]] = {
    # What an accepted task rests on; the others trade nothing of it away.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "password_encryption": "scram-sha-256",
    # A small machine that does other work too.
    "shared_buffers": "128MB",
    "max_connections": "100",
    "jit": "off",
    "huge_pages": "off",
    # Fewer, longer checkpoints: queue rows change often, and each checkpoint makes the first change write a full page.
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "min_wal_size": "128MB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    # Small tables that turn over all the time need vacuum at once, not gently.
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_cost_delay": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}


def server_options(settings: Mapping[str, str], host: str, port: int) -> list[str]:
    """Return the server's command line options; they win over the files in the cluster, so they are always today's."""
    name, _, value = MARK.partition("=")
    fixed = {"listen_addresses": host, "port": str(port), "unix_socket_directories": "", name: value}
    return [part for key, text in {**SETTINGS, **settings, **fixed}.items() for part in ("-c", f"{key}={text}")]
