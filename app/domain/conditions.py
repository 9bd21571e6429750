"""Rule conditions: CEL expressions, compiled once, with what each one reads known beforehand.

Reading the expression's tokens tells three things that the compiled program does not: which facts it reads (so that
the decision can record them), which of them it cannot do without (so that a rule over facts that a task lacks costs
a dictionary look-up and no evaluation), and mistakes that would otherwise show up only in production.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import cel

from app.domain.constants import Token, constant, deepest_macro, operand, spelled, value_of

ROOTS = frozenset({"process", "tenant", "source", "task", "claims", "now"})
FIELDS = {
    "tenant": frozenset({"service_class", "weight"}),
    "task": frozenset({"type", "cost_class", "submitted_at", "due_at", "valid_until", "group"}),
}
FUNCTIONS = frozenset(
    [
        "has",
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "string",
        "int",
        "uint",
        "double",
        "bytes",
        "duration",
        "timestamp",
        "type",
        "dyn",
        "getFullYear",
        "getMonth",
        "getDayOfYear",
        "getDayOfMonth",
        "getDate",
        "getDayOfWeek",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    ]
)
MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
MAXIMUM_LENGTH = 2_000
MAXIMUM_NESTING = 20
MAXIMUM_MACRO_DEPTH = 1
MAXIMUM_ANSWERS = 1_024
_PLAIN = frozenset({str, bool, int, float, type(None)})
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<text>[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||[=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_ZERO = re.compile(r"(?:0[xX]0+|0*\.?0*(?:[eE][+-]?[0-9]+)?)[uU]?")
_WHEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
_PROBE: dict[str, object] = {
    "process": {},
    "source": {},
    "claims": {},
    "tenant": {"service_class": "standard", "weight": 1.0},
    "task": {
        "type": "t",
        "cost_class": "medium",
        "submitted_at": _WHEN,
        "due_at": _WHEN,
        "valid_until": _WHEN,
        "group": "g",
    },
    "now": _WHEN,
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the conditions of one kind may read: the roots, the fields of those that are closed, and sample facts."""

    roots: frozenset[str]
    fields: Mapping[str, frozenset[str]]
    probe: dict[str, object]


SUBMISSION = Vocabulary(ROOTS, FIELDS, _PROBE)
EFFECT = Vocabulary(
    frozenset({"effect", "task", "tenant", "process", "now"}),
    {
        "effect": frozenset({"type"}),
        "task": frozenset({"type", "cost_class", "priority_class", "attempt"}),
        "tenant": frozenset({"id"}),
    },
    {
        "effect": {"type": "e"},
        "task": {"type": "t", "cost_class": "medium", "priority_class": "c", "attempt": 1},
        "tenant": {"id": "t"},
        "process": {},
        "now": _WHEN,
    },
)


class ConditionError(ValueError):
    """A condition that cannot be used; `problems` says each thing that is wrong and what would be right."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Read:
    """One fact that a condition reads: `root.field`, or the whole root where the field is not spelled out."""

    root: str
    field: str | None

    def __str__(self) -> str:
        return self.root if self.field is None else f"{self.root}.{self.field}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled expression with the facts it reads and those without which it can never hold."""

    program: cel.Program
    reads: tuple[Read, ...]
    required: tuple[tuple[str, str], ...]
    constant: bool | None = None
    """What it gives whatever the facts are, where that is known."""
    spelling: str = ""
    """The expression without its layout: two of the same spelling say the same."""
    answers: dict[tuple[object, ...], bool] = field(default_factory=dict, compare=False, repr=False)

    def lacks(self, facts: Mapping[str, Mapping[str, object]]) -> str | None:
        """Name a fact that is missing (or None) and without which the condition cannot hold, else None."""
        for root, name in self.required:
            if facts[root].get(name) is None:
                return f"{root}.{name}"
        return None

    def key(self, facts: Mapping[str, Mapping[str, object]]) -> tuple[object, ...] | None:
        """Give all that the answer depends on, where that is a few plain values, else None.

        The types belong to the key: to Python 1, 1.0 and True are equal, to CEL they are not.
        """
        values: list[object] = []
        for read in self.reads:
            if read.field is None:
                return None
            value = facts[read.root].get(read.field)
            kind = type(value)
            if kind not in _PLAIN:
                return None
            values += (kind, value)
        return tuple(values)

    def holds(self, context: cel.Context, key: tuple[object, ...] | None = None) -> bool:
        """Evaluate; raise whatever the evaluation raises, and TypeError where the answer is no truth value.

        With a `key` the answer is remembered in `answers`: the same values always give the same one.
        """
        answer = self.program.execute(context)
        if answer is not True and answer is not False:
            raise TypeError(f"the condition gives {type(answer).__name__}, not true or false")
        if key is not None:
            if len(self.answers) >= MAXIMUM_ANSWERS:
                self.answers.clear()
            self.answers[key] = answer
        return answer


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def compile_condition(when: str, words: Vocabulary = SUBMISSION) -> Condition:
    """Compile one CEL expression over `words`; raise ConditionError with every problem found."""
    tokens = _tokens(when)
    program = _compile(when, tokens)
    bound = _bound_names(tokens)
    reads, guarded = _reads(tokens, bound, words.roots)
    problems = [
        *_unknown_names(program, bound, words.roots),
        *_unknown_fields(reads | guarded, words.fields),
        *_constant_mistakes(tokens, words.roots),
        *_costs(tokens),
    ]
    problems = problems or _probe(program, words.probe)
    if problems:
        raise ConditionError(problems)
    required = {(read.root, read.field) for read in reads if read.field is not None} if _strict(tokens) else set()
    always = constant(tokens, lambda part: _reads_facts(part, words.roots))
    every = tuple(sorted(reads | guarded, key=str))
    return Condition(program, every, tuple(sorted(required)), always, spelled(tokens))


def _tokens(when: str) -> list[_Token]:
    if len(when) > MAXIMUM_LENGTH:
        raise ConditionError([f"the condition has {len(when)} characters; at most {MAXIMUM_LENGTH} are allowed"])
    found = [_Token(str(match.lastgroup), match.group()) for match in _TOKEN.finditer(when)]
    return [token for token in found if token.kind != "space"]


def _compile(when: str, tokens: list[_Token]) -> cel.Program:
    depth = deepest = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}")) if token.kind == "sign" else 0
        deepest = max(deepest, depth)
    if deepest > MAXIMUM_NESTING:
        raise ConditionError([f"the condition nests {deepest} deep; at most {MAXIMUM_NESTING} levels are allowed"])
    try:
        return cel.compile(when)
    except ValueError as error:
        lines = str(error).splitlines()
        reason = next((line.split("ERROR: ", 1)[1] for line in lines if "ERROR: " in line), lines[0])
        raise ConditionError([f"the condition is not valid CEL: {reason.removeprefix('<input>:')}"]) from error


def _bound_names(tokens: list[_Token]) -> frozenset[str]:
    """Names that a macro binds, such as `i` in `list.exists(i, i > 1)`."""
    return frozenset(
        tokens[at + 3].text
        for at in range(len(tokens) - 3)
        if tokens[at].text == "." and tokens[at + 1].text in MACROS and tokens[at + 2].text == "("
    )


def _reads(tokens: list[_Token], bound: frozenset[str], roots: frozenset[str]) -> tuple[set[Read], set[Read]]:
    """Find the facts read, and apart from them those read only inside `has(…)`, which may be missing."""
    reads: set[Read] = set()
    guarded: set[Read] = set()
    texts = [token.text for token in tokens] + ["", "", "", ""]
    for at, token in enumerate(tokens):
        if token.kind != "word" or token.text not in roots or token.text in bound or (at and texts[at - 1] == "."):
            continue
        name: str | None = None
        if texts[at + 1] == "." and texts[at + 3] != "(":
            name = texts[at + 2]
        elif texts[at + 1] == "[" and texts[at + 3] == "]" and tokens[at + 2].kind == "text":
            name = texts[at + 2].strip("\"'")
        only_asked = at >= 2 and texts[at - 2] == "has" and texts[at - 1] == "(" and texts[at + 3] == ")"
        (guarded if only_asked else reads).add(Read(token.text, name))
    return reads, guarded


def _strict(tokens: list[_Token]) -> bool:
    """Say whether a missing fact always means "does not hold".

    CEL's `||`, `?:` and the macros can come to an answer although one side failed, and so can `&&` (false wins over
    an error) where its own answer is used further; a plain chain of `&&` at the top cannot become true that way.
    """
    depth = 0
    for token in tokens:
        if token.kind == "word" and token.text in MACROS:
            return False
        if token.kind != "sign":
            continue
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text in ("||", "?") or (token.text == "&&" and depth > 0):
            return False
    return True


def _unknown_names(program: cel.Program, bound: frozenset[str], roots: frozenset[str]) -> list[str]:
    variables = sorted(set(program.variables()) - roots - bound)
    functions = sorted(
        name
        for name in set(program.functions()) - FUNCTIONS - MACROS
        if name.replace(".", "").isidentifier() and not name.startswith("_")
    )
    return [
        *(f"unknown name {name!r}; a condition may read {', '.join(sorted(roots))}" for name in variables),
        *(f"unknown function {name!r}; known are {', '.join(sorted(FUNCTIONS))}" for name in functions),
    ]


def _unknown_fields(reads: set[Read], fields: Mapping[str, frozenset[str]]) -> list[str]:
    return [
        f"unknown fact {read}; {read.root} has {', '.join(sorted(fields[read.root]))}"
        for read in sorted(reads, key=str)
        if read.field is not None and read.root in fields and read.field not in fields[read.root]
    ]


def _reads_facts(tokens: Sequence[Token], roots: frozenset[str]) -> bool:
    return any(token.kind == "word" and token.text in roots for token in tokens)


def _costs(tokens: list[_Token]) -> list[str]:
    """Bound what one evaluation costs: it grows with a list's length, and not with a power of it."""
    if (depth := deepest_macro(tokens, MACROS)) > MAXIMUM_MACRO_DEPTH:
        return [
            f"{', '.join(sorted(MACROS))} are nested {depth} deep; one inside another is too dear for every task: "
            "write them one after the other"
        ]
    return []


def _constant_mistakes(tokens: list[_Token], roots: frozenset[str]) -> list[str]:
    """Find what fails whatever the facts are: a division by zero, a duration or a time that cannot be read."""
    problems: list[str] = []
    for at in range(len(tokens) - 1):
        here, following = tokens[at], tokens[at + 1]
        if here.kind == "sign" and here.text in ("/", "%"):
            divisor = operand(tokens, at + 1)
            if _is_zero(divisor, roots):
                said = f"{here.text} {spelled(divisor)}"[:64]
                problems.append(f"division by zero in '{said}'; divide by a number other than 0")
        literal = at + 3 < len(tokens) and following.text == "(" and tokens[at + 2].kind == "text"
        if here.text in ("duration", "timestamp") and literal and tokens[at + 3].text == ")":
            call = f"{here.text}({tokens[at + 2].text})"
            try:
                cel.evaluate(call)
            except Exception:
                good = '"2h" or "90s"' if here.text == "duration" else '"2026-01-31T12:00:00Z"'
                problems.append(f"{call} cannot be read; write it like {good}")
    return problems


def _is_zero(divisor: Sequence[Token], roots: frozenset[str]) -> bool:
    if len(divisor) == 1 and divisor[0].kind == "number":
        return _ZERO.fullmatch(divisor[0].text) is not None
    value = None if _reads_facts(divisor, roots) else value_of(divisor)
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _probe(program: cel.Program, facts: dict[str, object]) -> list[str]:
    """Run the condition over sample facts: what fails there for another reason than an open fact fails always."""
    try:
        answer = program.execute(facts)
    except KeyError:
        return []
    except Exception as error:
        return [f"the condition fails on ordinary facts: {str(error).splitlines()[0][:200]}"]
    if isinstance(answer, bool):
        return []
    return [f"the condition gives {type(answer).__name__}; it must give true or false"]
