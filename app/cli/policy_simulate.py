"""`despacho policy simulate`: a policy tried in virtual time, without a database or a service."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from app import scenarios
from app.cli.ending import CommandFailed, WrongUsage
from app.cli.output import Format, remark
from app.cli.policy_history import history
from app.cli.policy_plot import bars, svg
from app.cli.policy_report import Run, as_json, show, show_compared
from app.domain.policy import Policy
from app.domain.policy_file import PolicyError, parse_policy
from app.domain.simulation.engine import simulate
from app.domain.simulation.figures import check
from app.domain.simulation.hooks import THIS_VERSION
from app.domain.simulation.load import Load, expected_tasks
from app.domain.simulation.load_file import MOST_HOURS, LoadError, parse_load, parse_load_lines
from app.runtime import policy_document
from app.settings import Settings

_SHIPPED = ", ".join(scenarios.names())

MOST_TASKS = 5_000_000
MOST_REPLAYED = 1_000_000

PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="The policy. [default: the scenario's own, else the shipped one]"),
]
Scenario = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario", metavar="NAME", help=f"A shipped load; may be repeated. [default: all] One of {_SHIPPED}."
    ),
]
LoadFile = Annotated[
    Path | None,
    typer.Option("--load", metavar="FILE", help="A load of your own: .toml, or .jsonl with one table a line."),
]
Hours = Annotated[
    float | None,
    typer.Option("--hours", min=1 / 3600, max=MOST_HOURS, help="How long in virtual time. [default: as the load says]"),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**31, help="What draws begin with. [default: as the load says]")
]
History = Annotated[
    str | None,
    typer.Option(
        "--from-history",
        metavar="WHEN",
        help="Replay what came from this day (or instant, UTC) on, 24 h unless --hours says otherwise. Reads the "
        "database of DESPACHO_DATABASE_URL, and writes nothing.",
    ),
]
Seats = Annotated[
    int | None,
    typer.Option("--seats", min=1, max=100_000, help="With --from-history. [default: those of the live workers]"),
]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="With --from-history: number tenants and groups.")]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="POLICY_A POLICY_B", help="Two policies side by side; what differs is marked."),
]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to show it: table or json.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw waiting and running by class, as an .svg file.")
]
Chart = Annotated[bool, typer.Option("--chart", help="Draw waiting and running by class in the terminal.")]


def add_to(group: typer.Typer) -> None:
    """Register the command in the group `policy`."""
    group.command("simulate")(simulate_command)


def simulate_command(
    policy: PolicyFile = None,
    scenario: Scenario = None,
    load: LoadFile = None,
    from_history: History = None,
    seats: Seats = None,
    anonymous: Anonymous = False,
    hours: Hours = None,
    compare: Compare = None,
    seed: Seed = None,
    output: Output = Format.TABLE,
    plot: Plot = None,
    chart: Chart = False,
) -> None:
    """Run a policy against a load in virtual time, with the decisions of production.

    Exit code 1 when an expectation of the load fails.
    """
    if output is Format.IDS:
        raise WrongUsage("a simulation has no ids; take table or json")
    if (bool(scenario) + (load is not None) + (from_history is not None)) > 1:
        raise WrongUsage("name either --scenario, --load or --from-history, not both")
    if from_history is None and (seats is not None or anonymous):
        raise WrongUsage("--seats and --anonymous go with --from-history")
    if policy is not None and compare is not None:
        raise WrongUsage("name either --policy or --compare, not both")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise WrongUsage(f"--plot: {plot.name}: plots are drawn as SVG; name a file that ends in .svg")
    if from_history is not None:
        replayed = history(from_history, hours, seats, anonymous, MOST_REPLAYED)
        loads: Mapping[str, tuple[Load, Path]] = {"history": (replayed, Path())}
    else:
        loads = {load.name: (_load(load), load.parent)} if load is not None else _scenarios(scenario)
    if plot is not None and len(loads) > 1:
        raise WrongUsage("--plot draws one load; name one --scenario or a --load")
    _refuse_too_many(loads, hours)
    given = [_policy(path) for path in compare or ((policy,) if policy is not None else ())]
    runs = []
    for name, (one, folder) in loads.items():
        policies = given or [_own_policy(one, folder)]
        together = [_run(name, one, each, hours, seed) for each in policies]
        runs += together
        if output is Format.TABLE:
            show_compared(*together) if len(together) == 2 else show(together[0])
            if chart:
                bars(together)
    if output is Format.JSON:
        sys.stdout.write(json.dumps(as_json(runs), ensure_ascii=False, indent=2) + "\n")
    if plot is not None:
        _write(plot, svg(runs))
    _end(runs)


def _refuse_too_many(loads: Mapping[str, tuple[Load, Path]], hours: float | None) -> None:
    for name, (load, _) in loads.items():
        tasks = expected_tasks(load, hours or load.hours)
        if tasks > MOST_TASKS:
            raise WrongUsage(
                f"{name}: about {tasks:,.0f} tasks would arrive, and at most {MOST_TASKS:,} can be simulated at once; "
                "take fewer hours or a lower rate"
            )


def _run(name: str, load: Load, policy: Policy, hours: float | None, seed: int | None) -> Run:
    draw = Random(load.seed if seed is None else seed)
    result = simulate(policy, load, draw, hours=hours)
    lacking = THIS_VERSION.lacks(load.needs)
    _warn(name, load, policy)
    return Run(
        name, load, result, check(result, load.expectations, lacking), lacking, load.seed if seed is None else seed
    )


def _warn(name: str, load: Load, policy: Policy) -> None:
    """Say what of the policy and the load has no effect in virtual time, or no counterpart."""
    called = {dependency for one in load.work.values() for dependency in one.spec.depends_on}
    rated = [
        one.name
        for one in policy.dependencies
        if one.name in called and (one.requests_per_minute is not None or one.tokens_per_minute is not None)
    ]
    if rated:
        remark(f"{name}: rates per minute are not simulated ({', '.join(rated)}); concurrency and breakers are")
    if policy.budgets:
        remark(f"{name}: budgets are not simulated")
    strangers = sorted({label for pool in load.pools for label in pool.classes} - set(policy.by_name))
    if strangers:
        known = ", ".join(policy.by_name)
        remark(f"{name}: pools serve classes that the policy does not have ({', '.join(strangers)}); it has {known}")


def _end(runs: Sequence[Run]) -> None:
    failed = sum(one.holds is False for run in runs for one in run.checked)
    undecided = sorted({run.name for run in runs if run.lacking})
    held = sum(one.holds is True for run in runs for one in run.checked)
    if undecided:
        remark(f"not yet decided by this version, and not counted as passed: {', '.join(undecided)}")
    if failed:
        raise CommandFailed(f"{failed} expectations failed, {held} held")
    if held:
        remark(f"{held} expectations held")


def _scenarios(chosen: Sequence[str] | None) -> Mapping[str, tuple[Load, Path]]:
    found = {}
    for name in chosen or scenarios.names():
        path = scenarios.path_of(name)
        if path is None:
            raise WrongUsage(f"--scenario: there is no {name[:64]!r}; it must be one of {_SHIPPED}")
        found[name] = (_load(path), path.parent)
    return found


def _load(path: Path) -> Load:
    text = _text(path, "--load")
    try:
        return parse_load_lines(text) if path.suffix.lower() in (".jsonl", ".ndjson") else parse_load(text)
    except LoadError as error:
        raise WrongUsage(_placed(path, error)) from None


def _policy(path: Path) -> Policy:
    try:
        return parse_policy(_text(path, "the policy"))
    except PolicyError as error:
        raise WrongUsage(_placed(path, error)) from None


def _own_policy(load: Load, folder: Path) -> Policy:
    if load.policy_file is not None:
        return _policy(folder / load.policy_file)
    try:
        return parse_policy(policy_document(Settings()))
    except PolicyError as error:
        raise WrongUsage(f"the policy of DESPACHO_POLICY_FILE:\n{error}") from None


def _placed(path: Path, error: ValueError) -> str:
    return "\n".join(f"{path}: {line}" for line in str(error).splitlines())


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{what}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{what}: {path}: not text in UTF-8") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"--plot: {path}: {error.strerror}") from None
