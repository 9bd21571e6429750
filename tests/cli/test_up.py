"""`despacho up` and the client's commands against it, all as real processes."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.cli.terminal import KEY, Up, shell
from tests.support.eventually import eventually
from tests.support.reaper import reaper


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def up() -> AsyncIterator[Up]:
    """A first start."""
    running = await Up.start(reaper().directory("up") / "data")
    yield running
    await running.process.kill()


def client(up: Up) -> dict[str, str]:
    """Return the environment of somebody who was given the key."""
    return {"DESPACHO_URL": up.url, "DESPACHO_KEY": up.printed_key or ""}


async def test_the_printed_curl_line_works_as_printed(up: Up) -> None:
    answer = await shell(up.curl)

    task = json.loads(answer.out)
    assert (task["status"], task["result"]["category"]) == ("done", "invoice")


async def test_a_task_is_submitted_and_waited_for_in_one_command(up: Up) -> None:
    line = """despacho tasks submit --type classify_document --input '{"text": "invoice, total due"}' --wait -o json"""

    ended = await shell(line, client(up))

    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["status"] == "done"


async def test_waiting_for_a_task_that_fails_is_exit_code_1_and_says_why(up: Up) -> None:
    body = '{"text": "invoice", "expected": "no_such_category"}'

    ended = await shell(f"despacho tasks submit --type classify_document --input '{body}' --wait -o ids", client(up))

    assert ended.code == 1
    assert ended.out.startswith("task_")
    assert "dead_lettered" in ended.err


async def test_ids_go_from_one_command_into_the_next(up: Up) -> None:
    body = '{"text": "contract", "expected": "no_such_category"}'
    submitted = await shell(
        f"for n in 1 2 3; do despacho tasks submit --type classify_document --input '{body}' --group pipes -o ids; done"
        " | despacho tasks wait - -o ids",
        client(up),
    )
    assert submitted.code == 1, "they cannot be done"
    dead = sorted(submitted.out.split())

    ended = await shell(
        "despacho dlq list --error-type invalid_payload --group pipes -o ids "
        "| despacho dlq reprocess - --reason 'taxonomy mended' -o ids",
        client(up),
    )

    assert ended.code == 0, ended.err
    assert len(dead) == 3
    assert sorted(ended.out.split()) == dead


async def test_what_the_api_refuses_is_told_with_its_pointers(up: Up) -> None:
    ended = await shell("""despacho tasks submit --type classify_document --input '{"text": 7}'""", client(up))

    assert (ended.code, ended.out) == (1, "")
    assert "#/input/text" in ended.err
    assert "Traceback" not in ended.err


async def test_a_wrong_key_is_refused_and_never_shown(up: Up) -> None:
    ended = await shell("despacho tasks list", {**client(up), "DESPACHO_KEY": "dsp_wrong-one"})

    assert ended.code == 1
    assert "dsp_wrong-one" not in ended.out + ended.err


async def test_a_new_key_stands_alone_on_stdout_and_works(up: Up) -> None:
    made = await shell("despacho keys create --platform --role reader --expires 1h", client(up))

    key = made.out.strip()
    assert made.code == 0, made.err
    assert key.startswith("dsp_")
    assert " " not in key
    listed = await shell("despacho tasks list", {**client(up), "DESPACHO_KEY": key})
    assert listed.code == 0, listed.err


async def test_a_pause_is_ended_by_the_name_it_was_made_with(up: Up) -> None:
    line = "despacho pause class:deferrable --reason 'looking into it' -o ids && despacho resume class:deferrable"

    ended = await shell(f"{line} && despacho pauses -o json", client(up))

    pause_id, resumed, left = ended.out.splitlines()
    assert ended.code == 0, ended.err
    assert (resumed, left) == (f"{pause_id} ended", "[]")


async def test_how_things_stand_is_shown_once_where_nobody_watches(up: Up) -> None:
    ended = await shell("despacho top && despacho classes -o ids && despacho workers -o json", client(up))

    assert ended.code == 0, ended.err
    assert "oldest waiting s" in ended.out
    assert "dead letters: " in ended.out
    assert "critical\nshort_deadline\ncommon\ndeferrable\n" in ended.out
    assert '"slots": 16' in ended.out


async def test_a_second_up_on_the_same_data_says_so_and_stops(up: Up) -> None:
    data_dir = up.process.output().split("data  ")[1].split("\n")[0].strip()

    ended = await shell(f"despacho up --port 0 --data-dir {data_dir}")

    assert ended.code == 1
    assert f"in use by process {up.process.pid}" in ended.err
    assert "Traceback" not in ended.err


async def test_a_taken_port_is_told_with_the_flag_that_helps(up: Up) -> None:
    port = up.url.rsplit(":", 1)[1]

    ended = await shell(f"despacho up --port {port} --data-dir {reaper().directory('up') / 'other'}")

    assert ended.code == 1
    assert f"port {port}" in ended.err
    assert "--port" in ended.err


async def test_sigterm_ends_it_well_and_the_next_start_finds_the_task(up: Up) -> None:
    data_dir = reaper().directory("up") / "kept"
    first = await Up.start(data_dir, DESPACHO_BOOTSTRAP_KEY="dsp_chosen-by-hand-0123456789")
    environment = {"DESPACHO_KEY": "dsp_chosen-by-hand-0123456789"}
    submitted = await shell(
        f"""despacho tasks submit --url {first.url} --type classify_document --input '{{"text": "invoice"}}' -o ids""",
        environment,
    )
    task_id = submitted.out.strip()
    assert await first.process.stop() == 0
    assert first.printed_key is None, "who chose the key knows it"

    second = await Up.start(data_dir)

    found = await shell(f"despacho tasks wait {task_id} --url {second.url} -o json", environment)
    assert json.loads(found.out)["status"] == "done", found.err
    assert second.printed_key is None
    assert "$DESPACHO_KEY" in second.curl
    assert (await shell(second.curl, environment)).code == 0
    assert await second.process.stop() == 0


async def test_a_second_ctrl_c_does_not_wait_for_what_runs_and_who_waits_is_answered_first() -> None:
    marks = reaper().directory("up")
    running = await Up.start(
        marks / "data", DESPACHO_BOOTSTRAP_KEY=KEY, DESPACHO_TASK_MODULES="tests.support.tasks",
        DESPACHO_WORKER__DRAIN_GRACE_SECONDS="60",
    )  # fmt: skip
    line = f"""despacho tasks submit --type hold --input '{{"at": "{marks}"}}' -o ids"""
    task_id = (await shell(line, {"DESPACHO_URL": running.url, "DESPACHO_KEY": KEY})).out.strip()
    await eventually(lambda: (marks / "starts").exists())
    url = f"{running.url}/v1/tasks/{task_id}?wait=50"
    waiting = asyncio.create_task(shell(f"curl -sS -v -H 'Authorization: Bearer {KEY}' '{url}' 2>{marks}/curl"))
    await eventually(lambda: (marks / "curl").exists() and "> GET" in (marks / "curl").read_text())

    process = running.process.process
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    answer = await waiting

    assert json.loads(answer.out)["status"] == "running"
    assert process.poll() is None, "two at once are one"

    def ended_by_another() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    await eventually(ended_by_another, every_seconds=0.1)
    assert process.returncode == 130
