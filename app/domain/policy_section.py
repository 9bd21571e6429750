"""One table of the policy file, read key by key: each reader checks its value and notes the problem with its line."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from app.domain.durations import parse_duration

Problem = tuple[int, str]
Choice = TypeVar("Choice", bound=StrEnum)


class Problems:
    """What was found wrong so far."""

    def __init__(self) -> None:
        self.found: list[Problem] = []


class Section:
    """A table of the file. Readers return None where the value is missing or wrong, and note why."""

    def __init__(
        self,
        table: str,
        position: int,
        values: Mapping[str, object],
        lines: Mapping[tuple[str, int, str], int],
        problems: Problems,
        label: str,
        inside: str | None = None,
    ) -> None:
        self._table = table
        self.position = position
        self.values = values
        self.label = label
        self._lines = lines
        self._problems = problems
        self._inside = inside
        self._asked: list[str] = []

    def line(self, key: str) -> int:
        """Find the line of `key`, or of the table where the key has none."""
        key = self._inside or key
        for place in ((self._table, self.position, key), (self._table, self.position, ""), (key, 0, "")):
            if place in self._lines:
                return self._lines[place]
        return 1

    def problem(self, key: str, text: str) -> None:
        """Note a problem at `key`: what is wrong and what would be right."""
        self._problems.found.append((self.line(key), f"{self.label}: {text}"))

    def finish(self, also: Iterable[str] = ()) -> None:
        """Note every key that nothing asked for."""
        known = [*self._asked, *also]
        for key in self.values:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                self.problem(key, f"unknown key {key[:64]!r}; {hint}")

    def asked(self, key: str) -> bool:
        """Note that `key` is known, for a reader that looks at the value itself; always False."""
        self._asked.append(key)
        return False

    def _value(self, key: str, wanted: str, required: bool) -> object | None:
        self._asked.append(key)
        value = self.values.get(key)
        if value is None and required:
            self.problem(key, f"{key!r} is missing; give {wanted}")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> None:
        self.problem(key, f"{key!r} is {str(value)[:64]!r}; it must be {wanted}")

    def text(self, key: str, required: bool = True) -> str | None:
        """Read a text that is not empty."""
        wanted = "a text that is not empty"
        value = self._value(key, wanted, required)
        if isinstance(value, str) and value.strip() and "\0" not in value:
            return value
        if value is not None:
            self._wrong(key, value, wanted)
        return None

    def matching(self, key: str, pattern: re.Pattern[str], wanted: str) -> str | None:
        """Read a text that matches `pattern` as a whole."""
        value = self._value(key, wanted, required=True)
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        if value is not None:
            self._wrong(key, value, wanted)
        return None

    def share(self, key: str, default: float | None = None, required: bool = True) -> float | None:
        """Read a share of the seats: a number from 0 to 1."""
        wanted = "a number from 0 to 1"
        value = self._value(key, wanted, required and default is None)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self._wrong(key, value, wanted)
        return None

    def number(self, key: str, least: float, most: float, default: float) -> float | None:
        """Read a number from `least` to `most`."""
        wanted = f"a number from {least:g} to {most:g}"
        value = self._value(key, wanted, required=False)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
            return float(value)
        self._wrong(key, value, wanted)
        return None

    def amount(self, key: str) -> Decimal | None:
        """Read an amount of money, None where it is absent: a text or a number from 0 on, with at most 6 decimals."""
        wanted = 'an amount of dollars such as "10.00", with at most 6 decimals'
        value = self._value(key, wanted, required=False)
        if value is None:
            return None
        try:
            amount = (
                Decimal(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
            )
        except InvalidOperation:
            amount = None
        if amount is not None and amount.is_finite() and 0 <= amount < 10**12 and amount == round(amount, 6):
            return amount
        self._wrong(key, value, wanted)
        return None

    def duration(self, key: str, default: float | None = None, required: bool = True) -> float | None:
        """Read a duration above zero, in seconds."""
        wanted = 'a duration above zero, such as "5s" or "10m"'
        value = self._value(key, wanted, required and default is None)
        if value is None:
            return default
        if not isinstance(value, str):
            self._wrong(key, value, wanted)
            return None
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.problem(key, f"{key!r}: {error}")
            return None
        if seconds <= 0:
            self._wrong(key, value, wanted)
            return None
        return seconds

    def integer(self, key: str, at_most: int, required: bool = True) -> int | None:
        """Read a whole number from 1 to `at_most`."""
        wanted = f"a whole number from 1 to {at_most}"
        value = self._value(key, wanted, required)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= at_most:
            return value
        self._wrong(key, value, wanted)
        return None

    def choice(self, key: str, choices: type[Choice], required: bool = True) -> Choice | None:
        """Read one of the values of `choices`."""
        wanted = f"one of {', '.join(choices)}"
        value = self._value(key, wanted, required)
        if value is None:
            return None
        if isinstance(value, str) and value in list(choices):
            return choices(value)
        self._wrong(key, value, wanted)
        return None

    def names(self, key: str) -> frozenset[str]:
        """Read a list of names, empty where the key is absent."""
        value = self._value(key, "a list of names", required=False)
        if value is None:
            return frozenset()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return frozenset(value)
        self._wrong(key, value, 'a list of names, such as ["a", "b"]')
        return frozenset()

    def one_or_more(self, key: str) -> frozenset[str]:
        """Read one name or a list of names, empty where the key is absent."""
        value = self._value(key, "a name, or a list of names", required=False)
        if value is None:
            return frozenset()
        values = value if isinstance(value, list) else [value]
        if values and all(isinstance(one, str) and one for one in values):
            return frozenset(values)
        self._wrong(key, value, 'a name, or a list of names, such as ["a", "b"]')
        return frozenset()

    def flag(self, key: str) -> bool | None:
        """Read true or false."""
        value = self._value(key, "true or false", required=True)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(key, value, "true or false")
        return None

    def table(self, key: str) -> "Section | None":
        """Read an inner table, None where it is absent."""
        value = self._value(key, "a table", required=False)
        if value is None:
            return None
        if isinstance(value, dict):
            label = f"{self.label}, {key}"
            return Section(self._table, self.position, value, self._lines, self._problems, label, inside=key)
        self._wrong(key, value, 'a table, such as { after = "15m", … }')
        return None

    def class_below(self, key: str, name: str, names: list[str], rank: int) -> None:
        """Note a problem unless `name` is a class that ranks below `rank`."""
        if name not in names:
            self.problem(key, f"unknown class {name!r}; it must be one of {', '.join(names)}")
        elif names.index(name) <= rank:
            self.problem(key, f"class {name!r} does not rank below this one; name only classes further down")
