"""Bodies: what is not JSON, cannot be kept or does not validate; and that text and numbers come back as sent."""

import json
import time
from collections.abc import AsyncIterator

import pytest

from tests.api.world import World, pointers, problem
from tests.support.work import rows

NOT_JSON = [
    b"", b"   ", b"{", b'{"type":"echo",}', b'{"type":"echo","input":NaN}', b'{"type":"echo","input":{"n":Infinity}}',
    b'{"type":"echo","input":[-Infinity]}', b'{"type":"echo","metadata":{"n":NaN}}', b"\xff\xfe", b'{"type":"\xff"}',
    b'\xef\xbb\xbf{"type":"echo"}', b'{"type":"echo"} x', b"{'type':'echo'}", b'{"type":"echo","input":"a\x00b"}',
    b'{"type":"echo","input":01}', b"[" * 20_000 + b"]" * 20_000, b"[" * 20_000,
    b'{"type":"echo","input":' + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"}",
    b'{"type":"echo","input":' + b"[" * 64 + b"]" * 64 + b"}",
    b'{"type":"echo","input":NaN,"metadata":{"a":"\\u00e9"}}',
]  # fmt: skip


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
async def test_what_is_not_json_is_refused_at_once_as_malformed(world: World, body: bytes) -> None:
    began = time.monotonic()
    answer = await world.raw(body)

    problem(answer, 400, "malformed_json")
    assert time.monotonic() - began < 1
    assert not await rows(world.runtime, "SELECT 1 FROM tasks")


async def test_nesting_up_to_the_limit_is_taken(world: World) -> None:
    answer = await world.raw(b'{"type":"echo","input":' + b"[" * 63 + b"]" * 63 + b"}")

    assert answer.status_code == 202


UNKEEPABLE = [
    (b'{"type":"echo","input":{"a":"x\\u0000y"}}', "#/input"),
    (b'{"type":"echo","input":{"a\\u0000":1}}', "#/input"),
    (b'{"type":"echo","input":"\\ud800"}', "#/input"),
    (b'{"type":"echo","input":"\\udc00\\ud800"}', "#/input"),
    (b'{"type":"echo","input":{"\\ud800x":1}}', "#/input"),
    (b'{"type":"echo","input":1e999}', "#/input"),
    (b'{"type":"echo","input":[-1E400]}', "#/input/0"),
    (b'{"type":"echo","input":' + b"9" * 400 + b".5}", "#/input"),
    (b'{"type":"echo","metadata":{"a":1e999}}', "#/metadata"),
    (b'{"type":"echo","group":"a\\u0000b"}', "#/group"),
    (b'{"type":"order","input":{"item":"x","amount":1e999}}', "#/input"),
]


@pytest.mark.parametrize(("body", "pointer"), UNKEEPABLE, ids=range(len(UNKEEPABLE)))
async def test_what_cannot_be_kept_is_refused_with_a_pointer(world: World, body: bytes, pointer: str) -> None:
    answer = await world.raw(body)

    found = problem(answer, 422, "invalid_payload")
    assert pointer in pointers(found)
    assert not await rows(world.runtime, "SELECT 1 FROM tasks")


EXACT = [
    '{"n":1.0,"m":1e22,"z":-0.0,"big":123456789012345678901234567890,"small":1e-7}',
    '{"text":"\\\\u0000 stays six characters","é":"\\u00e9 and é","emoji":"\\ud83d\\ude00"}',
    "[ 1 , 2.50,\t3 ]",
    "null",
    '"just text"',
    '{"a":1,"a":2}',
]


@pytest.mark.parametrize("text", EXACT, ids=range(len(EXACT)))
async def test_numbers_and_text_come_back_exactly_as_sent(world: World, text: str) -> None:
    metadata = '{"x": 1.10, "y":1E5}'
    accepted = await world.raw(f'{{"type":"echo","input":{text},"metadata":{metadata}}}'.encode())

    read = await world.client.get(f"/v1/tasks/{accepted.json()['task_id']}?include=input")

    assert f'"input":{text}' in read.text
    assert f'"metadata":{metadata}' in read.text
    assert f'"metadata":{metadata}' in accepted.text


async def test_of_a_repeated_key_the_last_value_counts(world: World) -> None:
    answer = await world.raw(b'{"type":"nope","type":"echo","input":1,"input":2}')

    read = await world.client.get(f"/v1/tasks/{answer.json()['task_id']}?include=input")
    assert (read.json()["type"], read.json()["input"]) == ("echo", 2)


TIMES = [
    "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:60Z",
    "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-01T00:00:00+25:00", "2026-01-01 00:00:00Z",
    "", "tomorrow", "20260101T000000Z", "２026-01-01T00:00:00Z", "2026-01-01T00:00:00-00:60",
    "2026-01-01T00:00:00Z\n", 1767225600, 1.5, True, {}, [],
]  # fmt: skip


@pytest.mark.parametrize("field", ["not_before", "due_at", "valid_until"])
@pytest.mark.parametrize("value", TIMES, ids=range(len(TIMES)))
async def test_a_time_without_offset_or_that_cannot_be_is_refused(world: World, field: str, value: object) -> None:
    answer = await world.client.post("/v1/tasks", json={"type": "echo", field: value})

    assert pointers(problem(answer, 422, "invalid_payload")) == [f"#/{field}"]


async def test_times_are_returned_in_utc(world: World) -> None:
    task = await world.submitted(due_at="2027-01-01T02:00:00+02:00", not_before="2027-01-01t00:00:00.25z")

    assert task["due_at"] == "2027-01-01T00:00:00Z"
    assert task["not_before"] == "2027-01-01T00:00:00.250000Z"
    assert task["status"] == "scheduled"


INVALID: list[tuple[dict[str, object], list[str]]] = [
    ({}, ["#/type"]),
    ({"type": "echo", "unknown": 1}, ["#"]),
    ({"type": "echo", "supersede_key": "x"}, ["#/supersede_key"]),
    ({"type": "echo", "max_attempts": "3"}, ["#/max_attempts"]),
    ({"type": "echo", "max_attempts": 0}, ["#/max_attempts"]),
    ({"type": "echo", "max_attempts": 6}, ["#/max_attempts"]),
    ({"type": "echo", "timeout_seconds": 301}, ["#/timeout_seconds"]),
    ({"type": "echo", "timeout_seconds": True}, ["#/timeout_seconds"]),
    ({"type": "echo", "metadata": [1]}, ["#/metadata"]),
    ({"type": "echo", "source": {"version": "1"}}, ["#/source/ref"]),
    ({"type": "echo", "source": {"ref": "x", "extra": 1}}, ["#/source"]),
    ({"type": "echo", "valid_until": "2020-01-01T00:00:00Z"}, ["#/valid_until"]),
    ({"type": "echo", "input": 1, "input_ref": "input_x"}, ["#/input_ref"]),
    ({"type": "order", "input": {"item": "x"}}, ["#/input/amount"]),
    ({"type": "order", "input": {"item": 1, "amount": 1}}, ["#/input/item"]),
    ({"type": "order", "input": {"item": "x", "amount": 1, "tags": ["a", 2]}}, ["#/input/tags/1"]),
    ({"type": "order"}, ["#/input"]),
]


@pytest.mark.parametrize(("body", "expected"), INVALID, ids=range(len(INVALID)))
async def test_what_does_not_validate_is_pointed_at(world: World, body: dict[str, object], expected: list[str]) -> None:
    answer = await world.client.post("/v1/tasks", json=body)

    assert pointers(problem(answer, 422, "invalid_payload")) == expected


async def test_an_unknown_type_is_told_from_a_body_that_does_not_validate(world: World) -> None:
    answer = await world.client.post("/v1/tasks", json={"type": "sk-CANARY-1"})

    found = problem(answer, 422, "unknown_task_type")
    assert pointers(found) == ["#/type"]
    assert "CANARY" not in answer.text


async def test_an_unknown_input_ref_is_refused(world: World) -> None:
    for reference in ("../../etc/passwd", "input_01M8PG4HPGRDN6JZN5ZSRA6C31", "x"):
        answer = await world.client.post("/v1/tasks", json={"type": "echo", "input_ref": reference})

        assert pointers(problem(answer, 422, "unknown_input_ref")) == ["#/input_ref"]


SECRET = "sk-CANARY-1"
LEAKS: list[dict[str, object]] = [
    {"type": "order", "input": {"api_key": SECRET}},
    {"type": "order", "input": {"item": SECRET, "amount": SECRET}},
    {"type": "order", "input": {SECRET: 1, "item": "x", "amount": 1, "tags": SECRET}},
    {"type": "order", "input": SECRET},
    {"type": SECRET},
    {"type": "echo", SECRET: 1},
    {"type": "echo", "due_at": SECRET},
    {"type": "echo", "claims": {SECRET: {}, "": 1}},
    {"type": "echo", "source": {SECRET: SECRET}},
    {"type": "echo", "input_ref": SECRET},
    {"type": "echo", "max_attempts": SECRET},
]


@pytest.mark.parametrize("body", LEAKS, ids=range(len(LEAKS)))
async def test_nothing_that_was_submitted_is_repeated(
    world: World, body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    answer = await world.client.post("/v1/tasks", json=body)

    assert answer.status_code == 422
    assert "CANARY" not in answer.text + str(answer.headers)
    assert "CANARY" not in caplog.text


async def test_queries_and_paths_and_keys_are_not_repeated_either(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [
        await world.client.get(f"/v1/tasks/{SECRET}"),
        await world.client.get(f"/v1/tasks?page_size={SECRET}"),
        await world.client.get(f"/v1/tasks?{SECRET}=1"),
        await world.client.get(f"/v1/tasks?status={SECRET}"),
        await world.client.get(f"/{SECRET}"),
        await world.client.get("/v1/tasks", headers={"Authorization": f"Bearer {SECRET}"}),
        await world.client.get("/v1/tasks", headers={"Authorization": SECRET}),
        await world.client.post("/v1/tasks", json={"type": "echo"}, headers={"Idempotency-Key": f"{SECRET} \t"}),
    ]

    assert all(400 <= answer.status_code < 500 for answer in answers[:-1])
    assert not [answer.text for answer in answers if "CANARY" in answer.text]
    assert "CANARY" not in "".join(record.getMessage() for record in caplog.records if record.name != "httpx")


async def test_a_body_above_the_limit_is_refused(world: World) -> None:
    text = json.dumps({"type": "echo", "input": "x" * 1024 * 1024}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 65536):
            yield text[start : start + 65536]

    declared = await world.raw(text)
    chunked = await world.client.post("/v1/tasks", content=chunks())

    problem(declared, 413, "payload_too_large")
    problem(chunked, 413, "payload_too_large")
