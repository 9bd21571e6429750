"""`despacho policy`: what it says of files and of the API's answers; nothing real behind it."""

from pathlib import Path
from typing import Any

import pytest

from app.cli import policy as commands
from app.cli.ending import CommandFailed
from app.cli.output import Format
from tests.support.runtimes import POLICY


class Answering:
    """Stands for a client's noun `policy`, with the answers of a script."""

    def __init__(self, **answers: Any) -> None:
        self.policy = self
        self.answers = answers
        self.put_with: list[tuple[str, bool]] = []

    def put(self, document: str, *, dry_run: bool = False) -> Any:
        """Remember what was put."""
        self.put_with.append((document, dry_run))
        return self.answers["put"]

    def explain(self, task_id: str) -> Any:
        """Explain."""
        return self.answers["explain"]


def test_the_shipped_policy_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    commands.check(str(POLICY))

    assert "4 classes (critical, short_deadline, common, deferrable), 7 rules" in capsys.readouterr().out


def test_a_mistake_is_named_with_its_line_and_nothing_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(POLICY.read_text().replace("nominal = 0.20", "nominal = 2", 1))
    client = Answering()

    for doing in (lambda: commands.check(str(file)), lambda: commands.apply(client, str(file))):  # type: ignore[arg-type]
        with pytest.raises(CommandFailed, match="line 22: class 'critical': 'nominal' is '2'; it must be a number"):
            doing()

    assert client.put_with == []


def test_a_dry_run_says_what_would_change(capsys: pytest.CaptureFixture[str]) -> None:
    moved = {"from": "common", "to": "deferrable", "tasks": 3, "examples": ["task_1", "task_2", "task_3"]}
    changes = {"looked_at": 9, "changed": 3, "classes": [moved], "reason_codes": [], "in_use": {"idle": 4}}
    client = Answering(put={"version": "2", "warnings": ["look here"], "changes": changes})

    commands.apply(client, str(POLICY), dry_run=True, output=Format.TABLE)  # type: ignore[arg-type]

    said = capsys.readouterr()
    assert client.put_with == [(POLICY.read_text(), True)]
    assert "3 of the last 9 tasks would have another class" in said.out
    assert "class common -> deferrable: 3  such as task_1, task_2" in said.out
    assert "refused as long as 4 unfinished tasks have the class idle" in said.out
    assert said.err == "warning: look here\n"


def test_an_explanation_shows_every_rule_and_whether_the_facts_give_the_class_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rule = {
        "reason_code": "SLA",
        "priority_class": "critical",
        "outcome": "not_asked",
        "why": "x is not known",
        "read": {},
    }
    task = {
        "task_id": "task_1", "priority_class": "critical", "reason_code": "OVERRIDE", "policy_version": "1",
        "derived_class": "common", "derived_reason_code": "DEFAULT", "agrees": True, "again": {"rules": [rule]},
    }  # fmt: skip
    client = Answering(
        explain={"policy_version": "2", "priority_class": "critical", "reason_code": "SLA", "rules": [], "task": task}
    )

    commands.explain(client, "task_1", output=Format.TABLE)  # type: ignore[arg-type]

    assert capsys.readouterr().out.splitlines() == [
        "task_1 critical (OVERRIDE), policy 1",
        "the rules gave it common (DEFAULT)",
        "its stored facts give that again",
        "  SLA -> critical not_asked: x is not known",
        "policy 2 would give it critical (SLA)",
    ]
