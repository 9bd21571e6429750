"""How a command ends when it cannot do what was asked: a text for a person, and the exit code."""

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130


class CommandFailed(Exception):
    """The command did not do what was asked; the text says why, and what would help."""

    exit_code = FAILED


class WrongUsage(CommandFailed):
    """The command cannot be run as it was given; the text says what would be right."""

    exit_code = WRONG_USAGE


class Interrupted(CommandFailed):
    """Somebody pressed Ctrl-C, or the process was told to end, before the work was done."""

    exit_code = INTERRUPTED
