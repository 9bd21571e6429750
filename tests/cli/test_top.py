"""What `despacho top` makes of the figures."""

import io

from rich.console import Console

from app.cli.top import view


def shown(waiting: int, consumers: int | None) -> str:
    """Return the view of one class, with its styles."""
    one = {"name": "common", "waiting": waiting, "running": 1, "maximum": 16, "consumers": consumers}
    written = io.StringIO()
    console = Console(width=120, force_terminal=True, color_system="standard", file=written)
    console.print(view([one], [{"count": 7, "error_type": "timeout", "type": "a"}]))
    return written.getvalue()


def test_waiting_work_that_nobody_serves_stands_out() -> None:
    assert "\x1b[31m" in shown(3, 0)


def test_what_is_served_or_unknown_does_not() -> None:
    assert "\x1b[31m" not in shown(3, 2) + shown(0, 0) + shown(3, None)


def test_dead_letters_are_counted_under_the_classes() -> None:
    assert "dead letters: 7, most of all 7 timeout (a)" in shown(0, 1)
