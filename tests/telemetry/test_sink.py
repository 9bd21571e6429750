import io
import time
from threading import Event

from app.telemetry.sink import Sink


class Stuck(io.StringIO):
    """A pipe that nobody reads until `let_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.let_go = Event(), Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.let_go.wait(10)
        return super().write(text)


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_lines_come_out_whole_and_in_order() -> None:
    stream = io.StringIO()
    sink = Sink(stream)

    for number in range(5000):
        sink.write([f"line {number}"])
    sink.close()

    assert stream.getvalue().splitlines() == [f"line {number}" for number in range(5000)]


def test_a_stuck_pipe_blocks_nobody_and_what_has_no_room_is_counted() -> None:
    stream = Stuck()
    sink = Sink(stream, max_lines=100)
    sink.write(["first"])
    assert stream.reached.wait(5)

    started = time.perf_counter()
    for number in range(1000):
        sink.write([str(number)])
    waited = time.perf_counter() - started

    assert waited < 1.0
    assert sink.dropped == 900
    assert not sink.flush(0.01)

    stream.let_go.set()
    assert sink.flush()
    assert stream.getvalue().splitlines() == ["first", *map(str, range(100))]
    sink.close()


def test_a_broken_pipe_ends_nothing() -> None:
    sink = Sink(Gone())

    sink.write(["a", "b"])

    assert sink.flush()
    assert sink.dropped == 2
    sink.close()
