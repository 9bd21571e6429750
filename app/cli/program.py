"""The tree of commands, and how every one of them ends.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. What went wrong is on stderr, results are on stdout.
"""

import os
import sys
import traceback

import typer

from app.cli import mcp, operation, overrides, policy_simulate, service_commands
from app.cli.approvals import approvals
from app.cli.bulk import bulk
from app.cli.dead_letters import dlq
from app.cli.effects import effects
from app.cli.ending import FAILED, INTERRUPTED, WRONG_USAGE, CommandFailed
from app.cli.keys import keys, tenants
from app.cli.output import printable
from app.cli.policy import policy
from app.cli.tasks import tasks
from app.cli.webhooks import webhooks
from app.settings import SettingsError

program = typer.Typer(
    name="despacho",
    help="A self-hosted job service: accepted is kept, and every place in the queue has a written reason.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
service_commands.add_to(program)
for group in (tasks, approvals, dlq, effects, bulk, webhooks, policy, keys, tenants):
    program.add_typer(group)
operation.add_to(program)
policy_simulate.add_to(policy)
overrides.add_to(program)
mcp.add_to(program)


def main() -> None:
    """Run the command line of this process and exit."""
    # A user's task modules are found beside where the command is given, as with `python -m`; last, so that nothing
    # there can stand in for a library.
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.append(os.getcwd())  # noqa: PTH109
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        program(arguments, prog_name="despacho", standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except CommandFailed as failure:
        return _say(str(failure), failure.exit_code)
    except SettingsError as wrong:
        return _say(str(wrong), WRONG_USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough, as `head` does. Nothing more may be flushed there at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("DESPACHO_LOG_LEVEL") == "DEBUG":
            traceback.print_exc()
        kind = type(error).__name__
        return _say(f"unexpected {kind}; DESPACHO_LOG_LEVEL=DEBUG shows where it comes from", FAILED)
    return 0


def _say(text: str, exit_code: int) -> int:
    sys.stderr.write("".join(f"despacho: {line}\n" for line in printable(text).splitlines()))
    return exit_code
