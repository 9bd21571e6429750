"""Reading a load from TOML or JSON Lines: everything that is wrong is reported at once, each with its line.

TOML has tables; JSON Lines has one table a line, as `{"arrivals": {"type": "report", "at": "3s"}}`. Keys that stand
alone at the top of the TOML file (`title`, `hours` …) are in JSON Lines the line `{"load": {…}}`.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from app.domain.policy_file import line_numbers
from app.domain.policy_section import Problem, Problems, Section
from app.domain.simulation.figures import CLASS_FIGURES, TENANT_FIGURES, TOTAL_FIGURES
from app.domain.simulation.load import (
    START,
    Arrivals,
    Change,
    Expectation,
    Happening,
    Health,
    Load,
    Need,
    Reviewers,
    SeatPool,
    Spread,
    Tenant,
    Work,
)
from app.domain.simulation.load_values import bound, flag, label, moment, whole
from app.domain.task_types import CostClass, TaskTypeSpec

TABLES = ("tenant", "type", "pool", "arrivals", "change", "reviewers", "expect")
MOST_HOURS = 24.0 * 366
MOST_AT_ONCE = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_TYPE = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_PAUSE = re.compile(r"(class|type|tenant|group|dependency):.{1,64}")
_NAMED = "letters, digits, _, ., : and -, at most 64"
_TOP = "load"


class LoadError(ValueError):
    """A load that cannot be run. The text has one line per problem, `line N: what is wrong; what would be right`."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems)
        super().__init__("\n".join(f"line {line}: {text}" for line, text in self.problems))


def parse_load(text: str) -> Load:
    """Read a load from TOML. Raises LoadError."""
    try:
        document: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        raise LoadError(
            [(int(place.group(1)) if place else text.count("\n") + 1, f"not valid TOML: {error}")]
        ) from None
    except RecursionError:
        raise LoadError([(1, "nested too deep; a load is a few flat tables")]) from None
    return _read(document, line_numbers(text), Problems())


def parse_load_lines(text: str) -> Load:
    """Read a load from JSON Lines, one table a line. Raises LoadError."""
    document: dict[str, Any] = {}
    lines: dict[tuple[str, int, str], int] = {}
    problems = Problems()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            problems.found.append((number, "not JSON; each line is one object"))
            continue
        tables = [*TABLES, _TOP]
        if not isinstance(found, dict) or len(found) != 1 or next(iter(found)) not in tables:
            problems.found.append((number, f"a line is one of {', '.join(tables)} with its keys, as {_EXAMPLE}"))
            continue
        ((table, values),) = found.items()
        if not isinstance(values, dict):
            problems.found.append((number, f"{table!r} must be an object of its keys, as {_EXAMPLE}"))
        elif table == _TOP:
            for key, value in values.items():
                if key in document or key in TABLES:
                    problems.found.append((number, f"{key[:64]!r} is there twice, or is no key of the load itself"))
                document[key], lines["", 0, key] = value, number
        else:
            rows = document.setdefault(table, [])
            lines[table, len(rows), ""] = number
            rows.append(values)
    return _read(document, lines, problems)


_EXAMPLE = '{"pool": {"name": "main", "seats": 8}}'


def _read(document: Mapping[str, Any], lines: Mapping[tuple[str, int, str], int], problems: Problems) -> Load:
    load = _Reader(document, lines, problems).load()
    if problems.found or load is None:
        raise LoadError(problems.found)
    return load


class _Reader:
    """The tables of one document, in the order in which they refer to each other."""

    def __init__(
        self, document: Mapping[str, Any], lines: Mapping[tuple[str, int, str], int], problems: Problems
    ) -> None:
        self.document = document
        self.lines = lines
        self.problems = problems

    def load(self) -> Load | None:
        top = Section("", 0, self.document, self.lines, self.problems, "the load")
        title = top.text("title")
        hours = top.number("hours", 1 / 3600, MOST_HOURS, 1.0)
        seed = top.integer("seed", at_most=2**31, required=False) or 1
        policy_file = top.text("policy", required=False)
        start_at = self._start_at(top)
        needs = self._needs(top)
        sections = {name: self._tables(top, name) for name in TABLES}
        top.finish(also=TABLES)
        tenants = self._unique([self._tenant(one) for one in sections["tenant"]])
        work = {one.spec.name: one for one in map(self._work, sections["type"]) if one is not None}
        pools = [one for one in map(self._pool, sections["pool"]) if one is not None]
        arrivals = [one for section in sections["arrivals"] if (one := self._arrivals(section, tenants, work))]
        changes = [one for one in (self._change(section, pools) for section in sections["change"]) if one is not None]
        reviewers = [self._reviewers(one) for one in sections["reviewers"]]
        expectations = [one for one in map(self._expect, sections["expect"]) if one is not None]
        if not sections["pool"]:
            top.problem("pool", 'nobody works; give at least one [[pool]] with seats, such as name = "main", seats = 8')
        if not sections["arrivals"]:
            top.problem("arrivals", "nothing arrives; give at least one [[arrivals]] with a type")
        if len(reviewers) > 1:
            sections["reviewers"][1].problem("", "there is one [[reviewers]] table at most")
        if title is None or hours is None or self.problems.found:
            return None
        return Load(
            title, hours, tenants, work, tuple(pools), tuple(arrivals),
            tuple(sorted(changes, key=lambda one: one.at_seconds)), reviewers[0] if reviewers else Reviewers(),
            tuple(expectations), needs, seed, start_at, policy_file,
        )  # fmt: skip

    def _tables(self, top: Section, name: str) -> list[Section]:
        found = top.values.get(name, [])
        found = [found] if isinstance(found, dict) else found
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            top.problem(name, f"{name!r} must be written as [[{name}]] tables")
            return []
        return [
            Section(name, at, values, self.lines, self.problems, f"{name} {label(values, at)}")
            for at, values in enumerate(found)
        ]

    def _start_at(self, top: Section) -> datetime:
        top.asked("start_at")
        value = top.values.get("start_at", START)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = None
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(UTC)
        top.problem("start_at", "'start_at' must be a time with its offset, such as 2026-01-05T09:00:00Z")
        return START

    def _needs(self, top: Section) -> tuple[Need, ...]:
        names = top.names("needs")
        for wrong in sorted(names - set(Need)):
            top.problem("needs", f"unknown need {wrong[:64]!r}; it must be one of {', '.join(Need)}")
        return tuple(need for need in Need if need in names)

    def _unique(self, tenants: Sequence[Tenant | None]) -> dict[str, Tenant]:
        return {one.name: one for one in tenants if one is not None}

    def _tenant(self, section: Section) -> Tenant | None:
        name = section.matching("name", _NAME, _NAMED)
        weight = section.number("weight", 0.001, 1_000_000, 1.0)
        service = section.text("service_class", required=False) or "standard"
        may_claim = flag(section, "may_claim")
        section.finish()
        return Tenant(name, weight or 1.0, service, may_claim) if name is not None else None

    def _work(self, section: Section) -> Work | None:
        name = section.matching("name", _TYPE, "1 to 64 of a-z, 0-9, _, . and -, starting with a letter")
        run = section.duration("run")
        timeout = section.duration("timeout", required=False)
        cost = section.choice("cost_class", CostClass, required=False) or CostClass.MEDIUM
        attempts = section.integer("max_attempts", at_most=100, required=False) or 5
        base, cap = section.duration("backoff_base", default=5.0), section.duration("backoff_cap", default=900.0)
        preemptible = flag(section, "preemptible")
        depends_on = tuple(sorted(section.names("depends_on")))
        process = section.table("process")
        spread = section.choice("spread", Spread, required=False) or Spread.FIXED
        fails, loses = section.share("fails", default=0.0), section.share("loses_checkpoint", default=0.0)
        every = section.duration("checkpoint_every", required=False)
        asks = section.share("asks_approval", default=0.0)
        after = section.duration("after_approval", default=1.0)
        section.finish()
        if name is None or run is None or None in (base, cap, fails, loses, asks, after):
            return None
        usual = max(60.0, 10 * run) if spread is Spread.EXPONENTIAL else max(60.0, 2 * run)
        try:
            spec = TaskTypeSpec(
                name, max_attempts=attempts, timeout_seconds=timeout or min(usual, 7 * 86400.0), cost_class=cost,
                preemptible=preemptible, depends_on=depends_on, backoff_base_seconds=base or 5.0,
                backoff_cap_seconds=cap or 900.0, process=dict(process.values) if process else {},
            )  # fmt: skip
        except ValueError as error:
            section.problem("name", str(error))
            return None
        return Work(spec, run, spread, fails or 0.0, every, loses or 0.0, asks or 0.0, after or 1.0)

    def _pool(self, section: Section) -> SeatPool | None:
        name = section.matching("name", _NAME, _NAMED)
        seats = section.integer("seats", at_most=100_000)
        classes = section.names("classes")
        section.finish()
        return SeatPool(name, seats, classes) if name is not None and seats is not None else None

    def _arrivals(self, section: Section, tenants: dict[str, Tenant], work: Mapping[str, Work]) -> Arrivals | None:
        task_type = section.text("type")
        if task_type is not None and task_type not in work:
            known = ", ".join(sorted(work)) or "none"
            section.problem("type", f"unknown type {task_type[:64]!r}; it must be one of {known}")
        names = self._tenants_of(section, tenants)
        at, until = moment(section, "at"), moment(section, "until")
        count = section.integer("count", at_most=MOST_AT_ONCE, required=False) or 1
        every = section.duration("every", required=False)
        per_minute = section.number("per_minute", 0.000_1, 1_000_000, 0.0) if "per_minute" in section.values else None
        section.asked("per_minute")
        if every is not None and per_minute is not None:
            section.problem("per_minute", "'every' and 'per_minute' say the same; keep one")
        every = 60.0 / per_minute if per_minute else every
        if until is not None and every is None:
            section.problem("until", "'until' ends what repeats; give 'every' or 'per_minute' too, or leave it out")
        if at is not None and until is not None and until <= at:
            section.problem("until", "'until' is not later than 'at', so nothing would repeat; give a later time")
        spread = section.choice("spread", Spread, required=False) or Spread.FIXED
        group = section.text("group", required=False) or ""
        due, valid = section.duration("due_in", required=False), section.duration("valid_for", required=False)
        not_before = section.duration("not_before", required=False) or 0.0
        claims, source = section.table("claims"), section.table("source")
        closes = section.duration("source_closes_after", required=False)
        run = section.duration("run", required=False)
        section.finish()
        if task_type is None or task_type not in work:
            return None
        return Arrivals(
            task_type, names, at or 0.0, count, every, until, spread, group, due, valid, not_before,
            dict(claims.values) if claims else {}, dict(source.values) if source else {}, closes, run,
        )  # fmt: skip

    def _tenants_of(self, section: Section, tenants: dict[str, Tenant]) -> tuple[str, ...]:
        """Name who submits: `tenant`, or as many as `tenants` says; whoever has no table has the usual standing."""
        many = section.integer("tenants", at_most=100_000, required=False)
        name = section.text("tenant", required=False)
        if many is not None and name is None:
            names = tuple(f"tenant-{number}" for number in range(1, many + 1))
        else:
            if many is not None:
                section.problem("tenants", "'tenant' and 'tenants' are both there; keep one")
            names = (name or "tenant-1",)
        for one in names:
            tenants.setdefault(one, Tenant(one))
        return names

    def _change(self, section: Section, pools: Sequence[SeatPool]) -> Change | None:
        at = moment(section, "at", required=True)
        what = section.choice("what", Happening)
        name = section.text("name", required=what is not Happening.REVIEWERS) or ""
        needs_count = what in (Happening.SEATS, Happening.DIE, Happening.REVIEWERS)
        count = whole(section, "count", required=needs_count)
        health = section.choice("health", Health, required=what is Happening.DEPENDENCY) or Health.UP
        slower = section.number("slower", 1, 10_000, 1.0) or 1.0
        section.finish()
        if name and what in (Happening.SEATS, Happening.DIE) and name not in {pool.name for pool in pools}:
            known = ", ".join(pool.name for pool in pools) or "none"
            section.problem("name", f"unknown pool {name[:64]!r}; it must be one of {known}")
        if what in (Happening.PAUSE, Happening.RESUME) and name and not _PAUSE.fullmatch(name):
            section.problem(
                "name", f"{name[:64]!r} cannot be paused; write class:, type:, tenant:, group: or dependency:"
            )
        return Change(at or 0.0, what, name, count or 0, health, slower) if what is not None else None

    def _reviewers(self, section: Section) -> Reviewers:
        count = whole(section, "count", required=True)
        takes = section.duration("takes", default=60.0)
        spread = section.choice("spread", Spread, required=False) or Spread.FIXED
        denies = section.share("denies", default=0.0)
        section.finish()
        return Reviewers(count or 0, takes or 60.0, spread, denies or 0.0)

    def _expect(self, section: Section) -> Expectation | None:
        name, tenant = section.text("class", required=False), section.text("tenant", required=False)
        figure = section.text("figure")
        at_least, at_most = bound(section, "at_least"), bound(section, "at_most")
        section.finish()
        if name is not None and tenant is not None:
            section.problem("tenant", "an expectation is of a class or of a tenant; keep one")
        known = CLASS_FIGURES if name is not None else TENANT_FIGURES if tenant is not None else TOTAL_FIGURES
        if figure is not None and figure not in known:
            section.problem("figure", f"unknown figure {figure[:64]!r}; it must be one of {', '.join(known)}")
        if at_least is None and at_most is None:
            section.problem("figure", "it bounds nothing; give 'at_least', 'at_most' or both")
        return Expectation(figure, name, tenant, at_least, at_most) if figure is not None else None
