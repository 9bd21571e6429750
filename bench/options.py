"""The command line of the benchmark: what can be chosen, and clear errors for what cannot."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from bench.systems import SHARES

OURS = "despacho"
SYSTEMS = (OURS, *SHARES)
SCENARIOS = ("drain", "sleepers", "posts", "quiet", "agents", "memory", "flat")


@dataclass(frozen=True, slots=True)
class Options:
    """What one run does."""

    rounds: int
    tasks: int
    systems: tuple[str, ...]
    scenarios: tuple[str, ...]
    memory_tasks: int
    flat_rows: int
    seed: int


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the options; ends the process with code 2 and a reason for what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of about 3 minutes: 1 round, fewer tasks and rows")
    parser.add_argument("--rounds", type=int, help="rounds of every system, interleaved (default 3; quick 1)")
    parser.add_argument("--tasks", type=int, help="tasks per drain; slow peers get a part (default 20000; quick 6000)")
    parser.add_argument("--only", help=f"comma-separated systems: {', '.join(SYSTEMS)} (default all)")
    parser.add_argument("--scenarios", help=f"comma-separated: {', '.join(SCENARIOS)} (default all)")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which systems take their turns")
    given = parser.parse_args(arguments)
    quick = bool(given.quick)
    rounds = given.rounds if given.rounds is not None else (1 if quick else 3)
    tasks = given.tasks if given.tasks is not None else (6_000 if quick else 20_000)
    if not 1 <= rounds <= 50:
        parser.error(f"--rounds should be 1 to 50, not {rounds}")
    if not 1_000 <= tasks <= 1_000_000:
        parser.error(f"--tasks should be 1000 to 1000000, not {tasks}")
    return Options(
        rounds=rounds,
        tasks=tasks,
        systems=_chosen(parser, "--only", given.only, SYSTEMS),
        scenarios=_chosen(parser, "--scenarios", given.scenarios, SCENARIOS),
        memory_tasks=40_000 if quick else 200_000,
        flat_rows=100_000 if quick else 1_000_000,
        seed=given.seed,
    )


def _chosen(parser: argparse.ArgumentParser, flag: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return known
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        parser.error(f"{flag}: {', '.join(unknown) or 'nothing given'}; there are {', '.join(known)}")
    return names
