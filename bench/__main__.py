"""`python -m bench`: run every system and scenario in one go, print the tables, keep the JSON."""

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.embedded.errors import EmbeddedPostgresError
from bench import report
from bench.agents import run_agents
from bench.environments import COMMON, NEWER, EnvironmentMissing, ensure
from bench.flat import run_flat
from bench.options import OURS, Options, parse
from bench.rounds import Sample, run_round
from bench.scenarios import run_memory, run_posts, run_quiet, run_sleepers
from bench.services import Postgres, Rabbit, private_postgres, private_rabbit
from bench.system import RunError, System
from bench.systems import Missing, load
from tests.support.install import MissingProgram


@dataclass(slots=True)
class Run:
    """One run's systems and what came out so far."""

    options: Options
    postgres: Postgres
    rabbit: Rabbit
    systems: list[System] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    drains: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, str] = field(default_factory=dict)
    scenarios: dict[str, object] = field(default_factory=dict)

    def find_systems(self) -> None:
        for name in self.options.systems:
            found = _find(name)
            if isinstance(found, System):
                self.systems.append(found)
            else:
                self.missing.append(found)

    def rounds(self) -> None:
        """Run every system once per round, in an order shuffled anew each round."""
        order = random.Random(self.options.seed)
        for turn in range(1, self.options.rounds + 1):
            for system in order.sample(self.systems, len(self.systems)):
                if system.name in self.errors:
                    continue
                began = time.monotonic()
                try:
                    sample = run_round(system, self.postgres, self.rabbit, self.options.tasks)
                except RunError as error:
                    self.errors[system.name] = str(error)
                    _say(f"round {turn}: {system.spec.title}: ERROR: {error}")
                    continue
                self.drains[system.name].append(sample)
                _say(f"round {turn}: {system.spec.title}: {sample.drain:,.0f}/s ({time.monotonic() - began:.0f} s)")

    def scenario(self, name: str, run: Callable[[System], object]) -> None:
        """Run one scenario of the product alone, if it was chosen."""
        ours = next((system for system in self.systems if system.name == OURS), None)
        if name not in self.options.scenarios or ours is None:
            return
        _say(f"{name} …")
        try:
            self.scenarios[name] = run(ours)
        except RunError as error:
            self.errors[name] = str(error)

    def run_all(self) -> None:
        at, options = (self.postgres, self.rabbit), self.options
        if "drain" in options.scenarios:
            self.rounds()
        self.scenario("sleepers", lambda ours: run_sleepers(ours, *at, max(3, options.rounds)))
        self.scenario("posts", lambda ours: run_posts(ours, *at, options.rounds))
        self.scenario("quiet", lambda ours: run_quiet(ours, *at))
        self.scenario("agents", lambda ours: run_agents(ours, *at, options.rounds, options.tasks))
        self.scenario("memory", lambda ours: run_memory(ours, *at, options.memory_tasks))
        self.scenario("flat", lambda ours: run_flat(ours, *at, options.flat_rows))

    def tables(self) -> list[str]:
        """Return the parts of the printed report, errors as errors."""
        titles = {system.name: system.spec.title for system in self.systems}
        parts = []
        good = {name: samples for name, samples in self.drains.items() if name not in self.errors}
        if good:
            parts += [
                report.drain_table(good, titles),
                "\n".join(report.ratio_lines(good, titles)),
                report.cpu_table(good, titles),
            ]
        printers: dict[str, Callable[..., str]] = {
            "posts": report.posts_table,
            "quiet": report.quiet_table,
            "sleepers": report.sleepers_line,
            "agents": report.agents_table,
            "flat": report.flat_table,
            "memory": report.memory_table,
        }
        parts += [printers[name](figures) for name, figures in self.scenarios.items()]
        parts.append("\n".join(report.setting_lines(self.systems, self.missing)))
        parts += [f"ERROR {titles.get(name, name)}: {text}" for name, text in self.errors.items()]
        return [part for part in parts if part]

    def as_json(self) -> dict[str, object]:
        return {
            "machine": report.machine(),
            "rabbitmq": self.rabbit.version(),
            "options": self.options,
            "systems": self.systems,
            "missing": self.missing,
            "drains": self.drains,
            "scenarios": self.scenarios,
            "errors": self.errors,
        }


def _find(name: str) -> System | Missing:
    if name == OURS:
        return load(name, "bench.ours", Path(sys.executable))
    try:
        python = ensure(NEWER if name == "oban" else COMMON)
    except EnvironmentMissing as error:
        return Missing(name, str(error))
    return load(name, f"bench.peers.{name}", python)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run what the command line asks for; 1 when any row is an error, 0 otherwise."""
    options = parse()
    try:
        with private_postgres() as postgres, private_rabbit() as rabbit:
            run = Run(options, postgres, rabbit)
            run.find_systems()
            run.run_all()
            print("\n\n".join(run.tables()))
            _say(f"kept in {report.keep(run.as_json())}")
    except (EmbeddedPostgresError, MissingProgram) as error:
        _say(f"the benchmark cannot start: {error}")
        return 1
    return 1 if run.errors else 0


if __name__ == "__main__":
    sys.exit(main())
