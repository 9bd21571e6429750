from decimal import Decimal
from io import StringIO

from rich.console import Console

from app.cli.demo_documents import Document
from app.cli.demo_results import TaskJson, render_results, row_of, summary_lines

DISAGREEMENT = "declared as bsd (0 points), but the text reads as isc (23 points)"


def a_task(*, status: str = "done", result: TaskJson | None = None, **fields: object) -> TaskJson:
    return {
        "task_id": "task_1",
        "status": status,
        "priority_class": "common",
        "priority_reason_code": "DEFAULT",
        "attempts": 1,
        "started_at": "2026-11-30T10:00:00.100000Z",
        "finished_at": "2026-11-30T10:00:00.120000Z",
        "result": result,
        "error": None,
        "usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": "0", "prompt_versions": []},
        **fields,
    }


def a_result(category: str = "mit", *, consistent: bool | None = True, alert: str | None = None) -> TaskJson:
    return {"category": category, "expected": "bsd", "consistent": consistent, "alert": alert}


def printed(*results: tuple[Document, TaskJson], width: int = 140) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_results(results))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_row_shows_what_the_contract_asks_for() -> None:
    usage = {"input_tokens": 900, "output_tokens": 34, "cost_usd": "0.01230"}
    out = printed((Document("fastapi: licence", ""), a_task(result=a_result(), attempts=2, usage=usage)))

    row = next(line for line in out.splitlines() if line.lstrip().startswith("fastapi"))
    assert row.split() == ["fastapi:", "licence", "mit", "common", "DEFAULT", "2", "0.020", "934", "$0.0123"]


def test_a_disagreement_is_marked_and_told_in_full_under_the_table() -> None:
    differing = a_task(result=a_result("isc", consistent=False, alert=DISAGREEMENT))
    out = printed((Document("good: licence", ""), a_task(result=a_result())), (Document("odd: licence", ""), differing))

    lines = out.splitlines()
    assert any(line.startswith("≠") and "odd: licence" in line and "declared bsd" in line for line in lines)
    assert not any(line.startswith("≠") and "good" in line for line in lines)
    assert "declared and found: 1 agree, 1 disagree" in lines
    assert f"≠ odd: licence: {DISAGREEMENT}" in lines


def test_a_task_that_is_not_done_shows_its_status_and_its_error() -> None:
    dead = a_task(
        status="dead_lettered", error={"type": "corrupted_input", "message": "the document is empty"}, finished_at=None
    )
    out = printed((Document("x.txt", ""), dead))

    assert "dead_lettered" in out
    assert "! x.txt: corrupted_input: the document is empty" in out.splitlines()


def test_the_summary_adds_up_and_keeps_cents_exact() -> None:
    paid = a_task(result=a_result(), usage={"input_tokens": 1, "output_tokens": 2, "cost_usd": "0.1"})
    rows = [row_of(Document(f"d{number}", ""), paid) for number in range(3)]

    assert summary_lines(rows)[0] == "3 documents: 3 done; 3 attempts, 0.06 s of work, 9 tokens, $0.3"
    assert sum((row.cost_usd for row in rows), Decimal(0)) == Decimal("0.3")
    assert summary_lines(rows)[1] == "categories: 3 mit"


def test_many_alerts_are_counted_instead_of_listed() -> None:
    differing = a_task(result=a_result("isc", consistent=False, alert=DISAGREEMENT))
    rows = [row_of(Document(f"d{number}", ""), differing) for number in range(25)]

    assert summary_lines(rows)[-1] == "… and 5 more"
    assert len(summary_lines(rows)) == 3 + 20 + 1


def test_names_and_messages_cannot_steer_the_terminal() -> None:
    out = printed(
        (
            Document("\x1b[2Jevil [red]name[/red]", ""),
            a_task(status="dead_lettered", error={"type": "x\r", "message": "\x07"}),
        )
    )

    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[red]name[/red]" in out


def test_a_task_with_nothing_in_it_still_makes_a_row() -> None:
    row = row_of(Document("x", ""), {"task_id": "task_1", "usage": None, "attempts": None})

    assert (row.attempts, row.seconds, row.tokens, row.cost_usd, row.differs) == (0, None, 0, Decimal(0), False)


def test_the_table_fits_a_narrow_terminal() -> None:
    differing = a_task(result=a_result("isc", consistent=False, alert=DISAGREEMENT))

    out = printed((Document("a-long-package-name: description", ""), differing), width=80)

    assert all(len(line) <= 80 for line in out.splitlines())
    assert "bsd" in out
    assert "$0" in out
