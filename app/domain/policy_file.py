"""Reading a policy from its TOML text: everything that is wrong is reported at once, each with its line."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from app.domain.conditions import EFFECT, SUBMISSION, Condition, ConditionError, Vocabulary, compile_condition
from app.domain.effects import EFFECT_TYPE
from app.domain.overrides import CLASS_GONE_REASON, OVERRIDE_REASON
from app.domain.policy import (
    DEFAULT_OVERRIDE_MAXIMUM_SECONDS,
    DEFAULT_REASON,
    Aging,
    EffectRule,
    Limit,
    LimitKind,
    OnSaturation,
    Policy,
    PriorityClass,
    Rule,
)
from app.domain.policy_dependencies import read_budgets, read_dependencies
from app.domain.policy_section import Problem, Problems, Section

MAXIMUM_CLASSES = 10
MAXIMUM_TABLES = 500
MAXIMUM_CHARACTERS = 262_144
DEFAULT_REPUBLISH_SECONDS = 30.0
_KEPT = {
    DEFAULT_REASON: "tasks that no rule matches",
    OVERRIDE_REASON: "classes that people give",
    CLASS_GONE_REASON: "tasks whose class left the policy",
}
_CLASS_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}")
_REASON_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_COMPARED_CLASS = re.compile(
    r"task\.priority_class\s*[!=]=\s*[\"']([^\"']*)[\"']|[\"']([^\"']*)[\"']\s*[!=]=\s*task\.priority_class"
)
ALWAYS = ""
_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.-]+)\s*\]\]?")
_KEY = re.compile(r"\s*\"?([A-Za-z0-9_-]+)\"?\s*=")


class PolicyError(ValueError):
    """A policy that cannot be used. The text has one line per problem, `line N: what is wrong; what would be right`."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems)
        super().__init__("\n".join(f"line {line}: {text}" for line, text in self.problems))


def parse_policy(text: str) -> Policy:
    """Read a policy from TOML; raise PolicyError listing every problem with its line."""
    if len(text) > MAXIMUM_CHARACTERS:
        said = f"the policy has {len(text)} characters; at most {MAXIMUM_CHARACTERS} are read"
        raise PolicyError([(1, said)])
    try:
        document: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = int(place.group(1)) if place else text.count("\n") + 1
        raise PolicyError([(line, f"not valid TOML: {error}")]) from None
    except ValueError:  # of Python's own: an integer with thousands of digits
        raise PolicyError([(1, "not valid TOML: a number has too many digits; numbers here have a few")]) from None
    except RecursionError:
        raise PolicyError([(1, "nested too deep; a policy is a few flat tables")]) from None
    problems = Problems()
    policy = _Reader(document, line_numbers(text), problems).policy()
    if problems.found or policy is None:
        raise PolicyError(problems.found)
    return replace(policy, document=text)


def line_numbers(text: str) -> dict[tuple[str, int, str], int]:
    """Map (table, position among its like, key) to the line; key "" is the table's own line."""
    lines: dict[tuple[str, int, str], int] = {}
    table, position = "", 0
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = header.group(1)
            position = seen.get(table, 0)
            seen[table] = position + 1
            lines.setdefault((table, position, ""), number)
        elif key := _KEY.match(line):
            lines.setdefault((table, position, key.group(1)), number)
    return lines


class _Reader:
    """The tables of one document, read in the order in which they refer to each other."""

    def __init__(
        self, document: Mapping[str, object], lines: Mapping[tuple[str, int, str], int], problems: Problems
    ) -> None:
        self.document = document
        self.lines = lines
        self.problems = problems

    def policy(self) -> Policy | None:
        top = Section("", 0, self.document, self.lines, self.problems, "the policy")
        wanted = "a text of at most 64 letters, digits, _.:+-, such as '2026-11-30.1'"
        version = top.matching("version", _VERSION, wanted)
        owner, default = top.text("owner"), top.text("default_class")
        override_maximum = top.duration("override_maximum", default=DEFAULT_OVERRIDE_MAXIMUM_SECONDS)
        sections = {
            name: list(self._tables(top, name)) for name in ("class", "rule", "limit", "effect", "dependency", "budget")
        }
        top.finish(also=sections)
        classes = self._classes(top, sections["class"])
        names = self._class_names(sections["class"])
        rules = self._rules(sections["rule"], names)
        limits = self._limits(sections["limit"])
        effects = self._effects(sections["effect"], names)
        dependencies = read_dependencies(sections["dependency"], names)
        budgets = read_budgets(sections["budget"])
        if default and default not in names:
            top.problem("default_class", f"unknown class {default!r}; it must be one of {', '.join(names) or 'none'}")
        if version is None or owner is None or default is None or self.problems.found:
            return None
        return Policy(
            version,
            owner,
            default,
            tuple(classes),
            tuple(rules),
            tuple(limits),
            tuple(effects),
            tuple(dependencies),
            tuple(budgets),
            override_maximum or DEFAULT_OVERRIDE_MAXIMUM_SECONDS,
        )

    def _tables(self, top: Section, name: str) -> Iterator[Section]:
        found = top.values.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            top.problem(name, f"{name!r} must be written as [[{name}]] tables")
            return
        if len(found) > MAXIMUM_TABLES:
            top.problem(name, f"{len(found)} [[{name}]] tables; at most {MAXIMUM_TABLES} are read")
            return
        for position, values in enumerate(found):
            label = values.get("name") or values.get("reason_code") or values.get("on") or f"number {position + 1}"
            yield Section(name, position, values, self.lines, self.problems, f"{name} {str(label)[:64]!r}")

    def _classes(self, top: Section, sections: list[Section]) -> list[PriorityClass]:
        if not 1 <= len(sections) <= MAXIMUM_CLASSES:
            top.problem("class", f"{len(sections)} classes; a policy has 1 to {MAXIMUM_CLASSES} [[class]] tables")
        names = self._class_names(sections)
        classes = [one for rank, section in enumerate(sections) if (one := self._class(section, rank, names))]
        shares = [section.values.get("nominal") for section in sections]
        total = sum(share for share in shares if isinstance(share, int | float) and 0 <= share <= 1)
        if total > 1 + 1e-9:
            top.problem("class", f"the nominal shares add up to {total:.4g}; together they may be at most 1")
        self._aging_loops(sections, {one.name: one.aging.to for one in classes if one.aging})
        return classes

    def _class_names(self, sections: list[Section]) -> list[str]:
        return [str(section.values.get("name")) for section in sections]

    def _class(self, section: Section, rank: int, names: list[str]) -> PriorityClass | None:
        name = section.matching("name", _CLASS_NAME, "lower-case letters, digits and _, at most 32, such as 'common'")
        if name is not None and names.index(name) != rank:
            section.problem("name", f"the class {name!r} is there twice; each class has one table")
        owner = section.text("owner")
        start_within = section.duration("start_within")
        reclaim_within = section.duration("reclaim_within")
        republish = section.duration("republish_after", default=DEFAULT_REPUBLISH_SECONDS)
        nominal, maximum = section.share("nominal"), section.share("maximum", default=1.0)
        lendable = section.share("lendable", default=1.0)
        if maximum == 0:
            section.problem("maximum", "maximum is 0, so nothing of this class would ever run; give a share above 0")
        elif nominal is not None and maximum is not None and nominal > maximum:
            section.problem("nominal", f"nominal {nominal:g} is above maximum {maximum:g}; it may be at most that")
        valid_for = section.duration("valid_for", required=False)
        attempts = section.integer("max_attempts", required=False, at_most=1000)
        saturation = section.choice("on_saturation", OnSaturation, required=False)
        contingency = section.text("contingency", required=False)
        may_preempt = section.names("may_preempt")
        for victim in sorted(may_preempt):
            section.class_below("may_preempt", victim, names, rank)
        aging = self._aging(section, rank, names)
        approve_within = section.duration("approve_within", required=False)
        section.finish()
        if None in (name, owner, start_within, reclaim_within, republish, nominal, maximum, lendable):
            return None
        return PriorityClass(
            name or "", rank, owner or "", start_within or 0.0, nominal or 0.0, maximum or 0.0, lendable or 0.0,
            reclaim_within or 0.0, republish or 0.0, valid_for, attempts, saturation, contingency, may_preempt, aging,
            approve_within,
        )  # fmt: skip

    def _aging(self, section: Section, rank: int, names: list[str]) -> Aging | None:
        inner = section.table("aging")
        if inner is None:
            return None
        after, to = inner.duration("after"), inner.text("to")
        due_share = inner.share("or_due_share", required=False)
        remaining = inner.duration("only_if_remaining", default=0.0)
        share = inner.share("share", default=0.2)
        inner.finish()
        if to is not None and to not in names:
            inner.problem("aging", f"aging.to names the unknown class {to!r}; it must be one of {', '.join(names)}")
            return None
        if after is None or to is None or remaining is None or share is None:
            return None
        return Aging(after, to, due_share, remaining, share)

    def _aging_loops(self, sections: list[Section], targets: Mapping[str, str]) -> None:
        ranks = {str(section.values.get("name")): section.position for section in sections}
        for name, to in targets.items():
            path = [name, to]
            while path[-1] in targets and targets[path[-1]] not in path:
                path.append(targets[path[-1]])
            looped = path[-1] == name or targets.get(path[-1]) == name
            section = sections[ranks[name]]
            if looped:
                chain = " → ".join([*dict.fromkeys(path), name])
                section.problem("aging", f"aging loops: {chain}; let it lead to a class of higher rank")
            elif ranks[to] > ranks[name]:
                section.problem("aging", f"aging.to {to!r} ranks below {name!r}; let it lead to a class of higher rank")

    def _rules(self, sections: list[Section], names: list[str]) -> list[Rule]:
        codes: dict[str, int] = {}
        before: dict[str, int] = {}
        rules = []
        for section in sections:
            code = section.matching("reason_code", _REASON_CODE, "capitals, digits and _, such as 'DUE_SOON'")
            if code in _KEPT:
                section.problem("reason_code", f"{code} is kept for {_KEPT[code]}; use another")
            elif code in codes:
                section.problem("reason_code", f"{code} is already used in line {codes[code]}; each rule has its own")
            elif code is not None:
                codes[code] = section.line("reason_code")
            target = section.text("class")
            if target is not None and target not in names:
                section.problem("class", f"unknown class {target!r}; it must be one of {', '.join(names) or 'none'}")
            when, trusts = section.text("when"), section.names("trusts")
            condition = self._condition(section, when, trusts) if when is not None else None
            section.finish()
            if condition is not None:
                self._reachable(section, condition, before)
            if code and target and when and condition:
                rules.append(Rule(code, target, when, trusts, condition))
        return rules

    def _reachable(self, section: Section, condition: Condition, before: dict[str, int]) -> None:
        """Note a problem where the rule can never decide; `before` has the conditions above it with their lines."""
        line = section.line("when")
        if condition.constant is False:
            section.problem("when", "it never holds, whatever the facts are; mend the condition, or leave the rule out")
        elif ALWAYS in before:
            section.problem("when", f"it is never asked: the condition in line {before[ALWAYS]} always holds")
        elif condition.spelling in before:
            said = f"it never decides: line {before[condition.spelling]} has the same condition and comes first"
            section.problem("when", f"{said}; leave one out")
        before.setdefault(ALWAYS if condition.constant is True else condition.spelling, line)

    def _effects(self, sections: list[Section], names: list[str]) -> list[EffectRule]:
        codes: dict[str, int] = {}
        rules = []
        for section in sections:
            code = section.matching("reason_code", _REASON_CODE, "capitals, digits and _, such as 'NO_REFUNDS'")
            if code is not None and code in codes:
                section.problem("reason_code", f"{code} is already used in line {codes[code]}; each rule has its own")
            elif code is not None:
                codes[code] = section.line("reason_code")
            types, tenants = section.one_or_more("type"), section.one_or_more("tenants")
            for wrong in sorted(one for one in types if not EFFECT_TYPE.fullmatch(one)):
                section.problem("type", f"{wrong[:64]!r} is no effect type; it should be like 'send_email'")
            when, allow = section.text("when", required=False), section.flag("allow")
            condition = self._compiled(section, when, EFFECT) if when is not None else None
            if condition is not None and condition.constant is False:
                section.problem("when", "it never holds, whatever the facts are; mend it, or leave the rule out")
            if condition is not None and when is not None:
                self._known_classes(section, when, names)
            section.finish()
            if code is not None and allow is not None and (when is None or condition is not None):
                rules.append(EffectRule(code, allow, types, tenants, when, condition))
        return rules

    def _known_classes(self, section: Section, when: str, names: list[str]) -> None:
        """Note every class that a condition compares with and that there is not."""
        for match in _COMPARED_CLASS.finditer(when):
            name = match.group(1) or match.group(2) or ""
            if name not in names:
                known = ", ".join(names) or "none"
                section.problem("when", f"unknown class {name[:64]!r}; it must be one of {known}")

    def _compiled(self, section: Section, when: str, words: Vocabulary) -> Condition | None:
        try:
            return compile_condition(when, words)
        except ConditionError as error:
            for problem in error.problems:
                section.problem("when", problem)
            return None

    def _condition(self, section: Section, when: str, trusts: frozenset[str]) -> Condition | None:
        condition = self._compiled(section, when, SUBMISSION)
        if condition is None:
            return None
        claims = {str(read) for read in condition.reads if read.root == "claims"}
        for claim in sorted(claims - trusts):
            what = "add it to trusts" if "." in claim else "name the claim, as in claims.x, and add that to trusts"
            section.problem("when", f"{claim} is what the requester says and is not trusted; {what}")
        for trusted in sorted(trusts - claims):
            section.problem("trusts", f"{trusted!r} is trusted but not read; list only claims.x that `when` reads")
        return condition

    def _limits(self, sections: list[Section]) -> list[Limit]:
        limits: dict[str, Limit] = {}
        kinds = ", ".join(f"{kind}:name" for kind in LimitKind)
        for section in sections:
            on, concurrency = section.text("on"), section.integer("concurrency", at_most=1_000_000)
            section.finish()
            kind, _, name = (on or "").partition(":")
            if on is not None and (kind not in list(LimitKind) or not name):
                section.problem("on", f"{on!r} is not something to limit; write one of {kinds}")
            elif on is not None and on in limits:
                section.problem("on", f"{on!r} is limited twice; keep one")
            elif on is not None and concurrency is not None:
                limits[on] = Limit(LimitKind(kind), name, concurrency)
        return list(limits.values())
