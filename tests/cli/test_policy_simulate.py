"""`despacho policy simulate` in this process: what it prints, and how it ends."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from app.cli.program import run

SMALL = """title = "small"
hours = 0.5
[[pool]]
name = "main"
seats = 2
[[type]]
name = "report"
run = "30s"
[[arrivals]]
type = "report"
tenants = 2
count = 40
[[expect]]
class = "common"
figure = "wait_max_seconds"
at_most = "{bound}"
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run where no `.env` is, and without a policy of the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("DESPACHO_POLICY_FILE", "DESPACHO_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """Return a load whose expectation holds."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(bound="1h"))
    return path


def test_a_load_of_ones_own_is_shown(load: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "simulate", "--load", str(load), "--chart"]) == 0

    shown = capsys.readouterr()
    assert "small.toml: small" in shown.out
    assert "wait_p99_seconds" in shown.out and "tenant-2" in shown.out
    assert "passed: common wait_max_seconds" in shown.out
    assert "waiting █" in shown.out


def test_a_failed_expectation_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(bound="1s"))

    assert run(["policy", "simulate", "--load", str(path)]) == 1

    shown = capsys.readouterr()
    assert "failed: common wait_max_seconds" in shown.out
    assert "1 expectations failed" in shown.err


def test_json_holds_every_figure(load: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "simulate", "--load", str(load), "-o", "json", "--hours", "1", "--seed", "7"]) == 0

    (found,) = json.loads(capsys.readouterr().out)
    assert (found["hours"], found["seed"]) == (1, 7)
    assert found["classes"]["common"]["arrived"] == 40
    assert found["expectations"][0]["verdict"] == "passed"


def test_what_is_not_decided_yet_is_said_and_not_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "simulate", "--scenario", "source_changes"]) == 0

    shown = capsys.readouterr()
    assert "not yet decided by this version: it needs sources" in shown.out
    assert "passed" not in shown.out


def test_two_policies_stand_side_by_side(load: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = (Path(__file__).resolve().parents[2] / "policy.toml").read_text()
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    a.write_text(shipped)
    b.write_text(shipped.replace('"2026-11-30.1"', '"capped"') + '\n[[limit]]\non = "type:report"\nconcurrency = 1\n')
    load.write_text(SMALL.format(bound="1h").replace("seats = 2", "seats = 6"))

    assert run(["policy", "simulate", "--load", str(load), "--compare", str(a), str(b)]) == 0

    row = next(line for line in capsys.readouterr().out.splitlines() if "wait_max_seconds" in line)
    assert row.rstrip().endswith("▲")


def test_a_plot_is_an_svg_file(load: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"

    assert run(["policy", "simulate", "--load", str(load), "--plot", str(plot)]) == 0

    drawn = ET.fromstring(plot.read_text())  # noqa: S314 - written by us a moment ago
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--scenario nothing", "it must be one of all_at_once"),
        ("--load missing.toml", "missing.toml: No such file"),
        ("--load small.toml --scenario all_at_once", "not both"),
        ("--load small.toml -o ids", "take table or json"),
        ("--load small.toml --plot x.png", "ends in .svg"),
        ("--plot x.svg", "draws one load"),
        ("--load small.toml --hours 0", "--hours"),
        ("--load small.toml --hours nan", "--hours"),
        ("--load small.toml --policy small.toml", "small.toml: line"),
        ("--load small.toml --compare small.toml", "--compare"),
        ("--load big.toml", "take fewer hours or a lower rate"),
        ("--from-history yesterday", "such as 2026-01-31"),
        ("--from-history 2026-01-31 --load small.toml", "not both"),
        ("--from-history 2026-01-31", "set DESPACHO_DATABASE_URL"),
        ("--seats 3", "go with --from-history"),
        ("--load bad.toml", "bad.toml: line 1: not valid TOML"),
    ],
)
def test_wrong_usage_says_what_would_be_right(
    line: str, says: str, load: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.toml").write_text("=")
    (tmp_path / "big.toml").write_text(SMALL.format(bound="1h").replace("count = 40", 'count = 900000\nevery = "1s"'))

    assert run(["policy", "simulate", *line.split()]) == 2

    assert says in capsys.readouterr().err


def test_a_class_that_the_policy_does_not_have_is_said(load: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load.write_text(SMALL.format(bound="1h").replace("seats = 2", 'seats = 2\nclasses = ["common", "vip"]'))

    assert run(["policy", "simulate", "--load", str(load)]) == 0

    assert "pools serve classes that the policy does not have (vip)" in capsys.readouterr().err
