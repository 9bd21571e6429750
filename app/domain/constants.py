"""What a condition says whatever the facts are: parts that read none, parts that contradict each other.

Works on the tokens of a condition that compiles; where it cannot tell, it says so with None.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import cel


class Token(Protocol):
    """A token of a condition: its kind (text, number, word, sign) and how it is spelled."""

    @property
    def kind(self) -> str:
        """Tell the kind."""
        ...

    @property
    def text(self) -> str:
        """Spell it."""
        ...


_OPEN, _CLOSED = ("(", "[", "{"), (")", "]", "}")
Tokens = Sequence[Token]


def constant(tokens: Tokens, reads: Callable[[Tokens], bool]) -> bool | None:
    """Say that a condition is always true, or never, as far as its parts tell; None where it depends on facts."""
    tokens = _stripped(tokens)
    if len(parts := _split(tokens, "||")) > 1 and not _has_choice(tokens):
        found = [constant(part, reads) for part in parts]
        return True if True in found else False if all(one is False for one in found) else None
    if len(parts := _split(tokens, "&&")) > 1 and not _has_choice(tokens):
        found = [constant(part, reads) for part in parts]
        if False in found or _contradict(parts):
            return False
        return True if all(one is True for one in found) else None
    return None if reads(tokens) else _value(tokens)


def value_of(tokens: Tokens) -> object:
    """Evaluate tokens that read no fact; None where that fails."""
    try:
        return cel.evaluate(spelled(tokens))
    except Exception:
        return None


def spelled(tokens: Tokens) -> str:
    """Spell tokens again, with one blank between them."""
    return " ".join(token.text for token in tokens)


def operand(tokens: Tokens, at: int) -> Tokens:
    """Give the operand that begins at a position: a literal, a name, a call or what is in brackets, with its sign."""
    end = at
    while end < len(tokens) and tokens[end].text in ("-", "!"):
        end += 1
    end += 1 if end < len(tokens) and tokens[end].text not in _OPEN else 0
    while end < len(tokens) and (tokens[end].text in (".", "(", "[") or tokens[end - 1].text == "."):
        end = _closing(tokens, end) + 1 if tokens[end].text in _OPEN else end + 1
    return tokens[at:end]


def deepest_macro(tokens: Tokens, macros: frozenset[str]) -> int:
    """Tell how deep macros are nested: each level multiplies how often the innermost part is evaluated."""
    deepest = 0
    inside: list[bool] = []
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in _OPEN:
            is_macro = at >= 2 and tokens[at - 1].text in macros and tokens[at - 2].text == "."
            inside.append(is_macro)
            deepest = max(deepest, sum(inside))
        elif token.text in _CLOSED and inside:
            inside.pop()
    return deepest


def _value(tokens: Tokens) -> bool | None:
    found = value_of(tokens)
    return found if isinstance(found, bool) else None


def _closing(tokens: Tokens, at: int) -> int:
    depth = 0
    for place in range(at, len(tokens)):
        if tokens[place].kind == "sign":
            depth += (tokens[place].text in _OPEN) - (tokens[place].text in _CLOSED)
        if depth == 0:
            return place
    return len(tokens) - 1


def _stripped(tokens: Tokens) -> Tokens:
    while len(tokens) > 2 and tokens[0].text == "(" and _closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _split(tokens: Tokens, sign: str) -> list[Tokens]:
    parts: list[Tokens] = []
    depth = start = 0
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        depth += (token.text in _OPEN) - (token.text in _CLOSED)
        if depth == 0 and token.text == sign:
            parts.append(tokens[start:at])
            start = at + 1
    return [*parts, tokens[start:]]


def _has_choice(tokens: Tokens) -> bool:
    return len(_split(tokens, "?")) > 1


def _contradict(parts: Sequence[Tokens]) -> bool:
    """Say that two parts want one fact to equal different literals."""
    wanted: dict[str, object] = {}
    for part in map(_stripped, parts):
        sides = _split(part, "==")
        if len(sides) != 2:
            continue
        for fact, literal in (sides, sides[::-1]):
            is_fact = len(fact) == 3 and fact[0].kind == "word" and fact[1].text == "." and fact[2].kind == "word"
            if is_fact and len(literal) == 1 and literal[0].kind in ("text", "number"):
                value = value_of(literal)
                if value is not None and wanted.setdefault(spelled(fact), value) != value:
                    return True
    return False
