"""What can go wrong with the embedded PostgreSQL. Every text says what is wrong and what to do about it."""


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot do what was asked."""


class AlreadyRunning(EmbeddedPostgresError):
    """The data directory is in use by somebody else."""


class DataVersionMismatch(EmbeddedPostgresError):
    """The data was written by another major version of PostgreSQL."""


class StartFailed(EmbeddedPostgresError):
    """The server ended while starting or never answered; the text has the end of its log."""


class StopFailed(EmbeddedPostgresError):
    """The server still runs after the time given to stop it."""


class NoAccount(EmbeddedPostgresError):
    """Root cannot hand the server to an unprivileged account."""


class NoBinaries(EmbeddedPostgresError):
    """The wheel with PostgreSQL is missing or holds no programs that run on this machine."""
