"""Tables for people, JSON and ids for pipes."""

import json
from collections.abc import Iterator

import pytest

from app.cli.each import each
from app.cli.ending import CommandFailed
from app.cli.output import Format, cell, show_list, wanted
from app.client.errors import ApiError, Problem


def items(count: int) -> Iterator[dict[str, object]]:
    """Make items with an id and a name."""
    return ({"task_id": f"task_{number}", "name": f"n{number}"} for number in range(count))


def show(count: int, output: Format, limit: int | None = None) -> None:
    """Show that many items."""
    show_list(items(count), output=output, columns=("task_id", "name"), id_of=lambda i: str(i["task_id"]), limit=limit)


def test_ids_stand_one_a_line_and_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    show(120, Format.IDS)

    assert capsys.readouterr().out.split("\n") == [f"task_{n}" for n in range(120)] + [""]


@pytest.mark.parametrize("count", [0, 1, 120])
def test_json_is_one_array(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    show(count, Format.JSON)

    assert json.loads(capsys.readouterr().out) == list(items(count))


def test_a_table_that_ends_early_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(51, Format.TABLE)

    said = capsys.readouterr()
    assert said.out.count("task_") == 51, "50 rows and the heading"
    assert "the first 50" in said.err


def test_a_table_that_is_complete_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show(50, Format.TABLE)

    assert capsys.readouterr().err == ""


def test_an_empty_list_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    show(0, Format.TABLE)

    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "nothing found\n")


def test_pipes_ask_for_everything_and_tables_for_one_page() -> None:
    assert [wanted(output, None) for output in (Format.IDS, Format.JSON, Format.TABLE)] == [None, None, 51]
    assert wanted(Format.IDS, 3) == 3


def test_what_a_terminal_would_act_on_is_not_shown() -> None:
    assert "\x1b" not in cell("\x1b]0;title\x07 red\x1b[31m").plain


def test_one_that_is_refused_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    acted: list[str] = []

    def act(one: str) -> None:
        if one == "b":
            raise ApiError(Problem(title="gone", code="not_found"), status=404)
        acted.append(one)

    with pytest.raises(CommandFailed, match="1 of 3 failed"):
        each(["a", "b", "c"], act, doing="cancel")

    assert acted == ["a", "c"]
    assert capsys.readouterr().err == "b: gone\n"
