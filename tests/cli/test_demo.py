"""`despacho demo` as a newcomer runs it."""

import asyncio
import re
import signal
from pathlib import Path

from tests.cli.terminal import shell
from tests.support.processes import RoleProcess


def documents(folder: Path) -> Path:
    """Write two documents, and some files that are none."""
    (folder / "an invoice.txt").write_text("Invoice 12\nTotal due: 12.00 EUR, VAT included, payment within 30 days")
    (folder / "latin.txt").write_bytes("Licença MIT: Permission is hereby granted, free of charge".encode("latin-1"))
    (folder / "picture.bin").write_bytes(b"\x00\x01\x02")
    (folder / "empty.txt").write_text("")
    return folder


async def test_files_are_classified_and_what_is_no_text_is_named_and_left_out(tmp_path: Path) -> None:
    # The address leads nowhere: a demonstration leaves databases of the environment alone.
    nowhere = {"DESPACHO_DATABASE_URL": "postgresql://a:b@127.0.0.1:1/c", "DESPACHO_URL": "http://127.0.0.1:1"}

    ended = await shell(f"despacho demo '{documents(tmp_path)}'", nowhere)

    assert ended.code == 0, ended.err
    assert re.search(r" invoice +common DEFAULT +1 ", ended.out)
    assert "2 documents: 2 done" in ended.out
    assert ended.err.count("left out:") == 2


async def test_tasks_that_cannot_be_submitted_are_exit_code_1_with_the_reason(tmp_path: Path) -> None:
    ended = await shell(f"despacho demo --type nothing_known '{documents(tmp_path) / 'latin.txt'}'")

    assert ended.code == 1
    assert "1 tasks were refused; the first: There is no such task type" in ended.err
    assert "Traceback" not in ended.err


async def test_ctrl_c_ends_a_demonstration_at_any_moment(tmp_path: Path) -> None:
    process = RoleProcess(["demo", str(documents(tmp_path))], {"DESPACHO_LOG_LEVEL": "INFO"}, name="demo")
    await process.says("database_started", within_seconds=60)

    process.process.send_signal(signal.SIGINT)

    assert await asyncio.to_thread(process.process.wait, 40) == 130, process.output()
