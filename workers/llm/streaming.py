"""Server-sent events, byte by byte: whatever the pieces are that the network hands over. Bounded by the caller."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(slots=True)
class EventReader:
    """Turns bytes into (event, data) pairs; comments (keep-alives), ids and retry fields are left out."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )
    _rest: str = ""
    _scanned: int = 0
    _event: str = ""
    _data: list[str] = field(default_factory=list)
    _first: bool = True

    def feed(self, chunk: bytes, *, final: bool = False) -> Iterator[tuple[str, str]]:
        """Take the next bytes in and give the events that are complete; with `final` also one without an empty line."""
        self._rest += self._decoder.decode(chunk, final)
        if self._first and self._rest:
            self._rest, self._first = self._rest.removeprefix("\ufeff"), False
        lines = self._lines(final)
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                yield self._event, "\n".join(self._data)
                self._event, self._data = "", []
            else:
                self._event = ""
        if final and self._data:
            yield self._event, "\n".join(self._data)
            self._data = []

    @property
    def pending(self) -> int:
        """How many characters of an unfinished line are held."""
        return len(self._rest)

    def _lines(self, final: bool) -> list[str]:
        # A CR at the very end may be half of a CRLF. What was looked at without a line's end is not looked at again.
        text = self._rest
        begin, found = 0, []
        for match in _LINE_END.finditer(text, self._scanned):
            if match.end() == len(text) and match.group() == "\r" and not final:
                break
            found.append(text[begin : match.start()])
            begin = match.end()
        self._rest = text[begin:]
        self._scanned = max(0, len(self._rest) - 1)
        if final and self._rest:
            found.append(self._rest)
            self._rest, self._scanned = "", 0
        return found

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
