"""Reading loads: everything that is wrong is said at once, with its line."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.simulation.load import Need, expected_tasks
from app.domain.simulation.load_file import LoadError, parse_load, parse_load_lines

GOOD = """title = "t"
hours = 2
needs = ["aging"]
[[pool]]
name = "main"
seats = 8
[[type]]
name = "report"
run = "5s"
[[arrivals]]
type = "report"
per_minute = 30
until = "1h"
"""


def problems(text: str) -> str:
    with pytest.raises(LoadError) as caught:
        parse_load(text)
    return str(caught.value)


def test_a_load_is_read_with_its_defaults() -> None:
    load = parse_load(GOOD)

    assert (load.hours, load.needs, load.pools[0].seats) == (2, (Need.AGING,), 8)
    assert load.work["report"].spec.timeout_seconds == 60
    assert load.arrivals[0].every_seconds == 2
    assert load.arrivals[0].tenants == ("tenant-1",)
    assert expected_tasks(load, load.hours) == pytest.approx(1_801)


def test_json_lines_say_the_same() -> None:
    lines = """{"load": {"title": "t", "hours": 2, "needs": ["aging"]}}

{"pool": {"name": "main", "seats": 8}}
{"type": {"name": "report", "run": "5s"}}
{"arrivals": {"type": "report", "per_minute": 30, "until": "1h"}}"""

    assert parse_load_lines(lines) == parse_load(GOOD)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('title = "t"', "", 1, "'title' is missing"),
        ("hours = 2", "hours = 0", 2, "a number from"),
        ("hours = 2", "hours = nan", 2, "a number from"),
        ('["aging"]', '["agin"]', 3, "one of aging, preemption"),
        ("seats = 8", "seats = 0", 6, "a whole number from 1"),
        ("seats = 8", "seats = true", 6, "a whole number from 1"),
        ("seats = 8", 'seats = 8\nclases = ["a"]', 7, "did you mean 'classes'"),
        ('run = "5s"', "run = 5", 9, 'such as "5s"'),
        ('run = "5s"', 'run = "5s"\ntimeout = "8d"', 8, "at most 604800"),
        ('run = "5s"', 'run = "5s"\nfails = 2', 10, "from 0 to 1"),
        ('type = "report"', 'type = "repot"', 11, "one of report"),
        ("per_minute = 30", "", 13, "give 'every' or 'per_minute'"),
        ("per_minute = 30", 'per_minute = 30\nevery = "2s"', 12, "keep one"),
        ("per_minute = 30", 'per_minute = 30\ntenant = "a"\ntenants = 3', 14, "keep one"),
        ('until = "1h"', 'until = "1h"\nat = "2h"', 13, "not later than 'at'"),
        (
            'until = "1h"',
            'until = "1h"\n[[change]]\nat = "1m"\nwhat = "die"\nname = "x"\ncount = 1',
            17,
            "unknown pool",
        ),
        ('until = "1h"', 'until = "1h"\n[[change]]\nat = "1m"\nwhat = "pause"\nname = "common"', 17, "class:"),
        (
            'until = "1h"',
            'until = "1h"\n[[change]]\nat = "1m"\nwhat = "dependency"\nname = "x"',
            14,
            "'health' is missing",
        ),
        ('until = "1h"', 'until = "1h"\n[[expect]]\nfigure = "wait"\nat_most = 1', 15, "unknown figure"),
        ('until = "1h"', 'until = "1h"\n[[expect]]\nfigure = "done"', 15, "bounds nothing"),
        ('until = "1h"', 'until = "1h"\n[[expect]]\nfigure = "done"\nat_most = "x"', 16, "is not a duration"),
        ('until = "1h"', 'until = "1h"\n[extra]\nx = 1', 14, "unknown key 'extra'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, line: int, says: str) -> None:
    found = problems(GOOD.replace(old, new))

    assert any(one.startswith(f"line {line}: ") and says in one for one in found.splitlines()), found


def test_everything_wrong_is_said_at_once() -> None:
    assert len(problems("hours = 'x'\n[[pool]]\nseats = 0\n[[arrivals]]\n").splitlines()) >= 5


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[]", "a line is one of"),
        ('{"pool": {}, "type": {}}', "a line is one of"),
        ('{"pool": 3}', "must be an object"),
        ('{"load": {"title": "t"}}\n{"load": {"title": "u"}}', "is there twice"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_line_is_named(line: str, says: str) -> None:
    with pytest.raises(LoadError, match=says):
        parse_load_lines(line)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_no_text_brings_the_reader_down(text: str) -> None:
    for read in (parse_load, parse_load_lines):
        with pytest.raises(LoadError):
            read(text)


def test_a_missing_table_kind_is_named_and_not_a_stack_trace() -> None:
    assert "[[pool]] tables" in problems('title = "t"\npool = 3\n')


def test_the_readme_of_loads_is_a_load() -> None:
    text = (Path(__file__).resolve().parents[3] / "app" / "scenarios" / "README.md").read_text()

    assert parse_load(text.split("```toml\n", 1)[1].split("```", 1)[0]).arrivals
    assert parse_load_lines(text.split("```json\n", 1)[1].split("```", 1)[0]).arrivals
