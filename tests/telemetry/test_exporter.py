import asyncio
import socket
import time
from collections.abc import Iterator, Mapping

import httpx
import pytest

from app.telemetry.exporter import MAX_CONNECTIONS, Exporter
from app.telemetry.metrics import CONTENT_TYPE, Metrics
from app.telemetry.pulse import Pulse
from tests.support.metrics import value


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def exporter(metrics: Metrics) -> Iterator[Exporter]:
    served = Exporter(metrics, host="127.0.0.1", port=0)
    yield served
    served.close()


def get(exporter: Exporter, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{exporter.port}{path}", headers=headers, timeout=10, trust_env=False)


def test_the_metrics_are_served_as_prometheus_wants_them(metrics: Metrics, exporter: Exporter) -> None:
    metrics.tasks_submitted("common", "classify_document")

    answer = get(exporter, "/metrics?name=x")

    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    assert 'despacho_tasks_submitted_total{priority_class="common",type="classify_document"} 1.0' in answer.text


@pytest.mark.parametrize(
    ("checks", "status", "word"),
    [({}, 200, "ready"), ({"database": True}, 200, "ready"), ({"database": True, "broker": False}, 503, "unavailable")],
)
def test_readiness_says_which_check_failed(
    metrics: Metrics, checks: Mapping[str, bool], status: int, word: str
) -> None:
    exporter = Exporter(metrics, host="127.0.0.1", port=0, ready=lambda: checks)

    answer = get(exporter, "/readyz")

    assert (answer.status_code, answer.json()) == (status, {"status": word, "checks": checks})
    assert get(exporter, "/healthz").json() == {"status": "alive", "checks": {}}
    exporter.close()


def test_a_check_that_raises_is_no_crash_and_no_leak(metrics: Metrics) -> None:
    def alive() -> Mapping[str, bool]:
        raise RuntimeError("CANARY")

    exporter = Exporter(metrics, host="127.0.0.1", port=0, alive=alive)

    answer = get(exporter, "/healthz")

    assert answer.status_code == 500
    assert "CANARY" not in answer.text
    exporter.close()


@pytest.mark.parametrize(
    ("header", "status"), [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer tök"}, 401)]
)
def test_the_token_guards_the_metrics_alone(metrics: Metrics, header: dict[str, str], status: int) -> None:
    exporter = Exporter(metrics, host="127.0.0.1", port=0, token="right-token")
    encoded = {name: text.encode() for name, text in header.items()}

    answer = httpx.get(f"http://127.0.0.1:{exporter.port}/metrics", headers=encoded, timeout=10, trust_env=False)

    assert answer.status_code == status
    assert get(exporter, "/metrics", Authorization="Bearer right-token").status_code == 200
    assert get(exporter, "/healthz").status_code == 200
    exporter.close()


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../etc/passwd", "/%2e%2e"])
def test_there_is_nothing_else(exporter: Exporter, path: str) -> None:
    assert get(exporter, path).status_code == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /metrics",
        b"\x00\xff\r\n\r\n",
        b"GET " + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_does_no_harm(exporter: Exporter, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=10) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        answer = peer.recv(100)

    assert b" 200 " not in answer
    assert get(exporter, "/healthz").status_code == 200


def test_peers_that_say_nothing_take_the_room_for_a_bounded_time(exporter: Exporter) -> None:
    idle = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(MAX_CONNECTIONS)]
    try:
        started = time.monotonic()
        while not _answers(exporter):
            assert time.monotonic() - started < 15
    finally:
        for peer in idle:
            peer.close()


def test_metrics_and_health_answer_while_the_event_loop_hangs(metrics: Metrics) -> None:
    pulse = Pulse(metrics, beat_seconds=0.01)
    exporter = Exporter(
        metrics, host="127.0.0.1", port=0, alive=lambda: {"event_loop": pulse.beating(within_seconds=0.2)}
    )
    seen: list[int] = []

    async def hang() -> None:
        beating = asyncio.create_task(pulse.run())
        while value(metrics, "despacho_event_loop_lag_seconds_count") is None:  # noqa: ASYNC110 - a metric has no event
            await asyncio.sleep(0)
        seen.append((await asyncio.to_thread(get, exporter, "/healthz")).status_code)
        while pulse.beating(within_seconds=0.2):
            pass
        seen.append(get(exporter, "/healthz").status_code)
        seen.append(get(exporter, "/metrics").status_code)
        count = value(metrics, "despacho_event_loop_lag_seconds_count")
        while value(metrics, "despacho_event_loop_lag_seconds_count") == count:  # noqa: ASYNC110 - a metric has no event
            await asyncio.sleep(0)
        seen.append(get(exporter, "/healthz").status_code)
        beating.cancel()

    asyncio.run(hang())

    assert seen == [200, 503, 200, 200]
    assert (value(metrics, "despacho_event_loop_lag_seconds_sum") or 0) >= 0.15
    exporter.close()


def test_an_address_that_is_taken_is_an_error_and_a_closed_one_is_free(metrics: Metrics) -> None:
    first = Exporter(metrics, host="127.0.0.1", port=0)
    port = first.port
    with pytest.raises(OSError, match="in use"):
        Exporter(metrics, host="127.0.0.1", port=port)

    first.close()

    Exporter(metrics, host="127.0.0.1", port=port).close()


def _answers(exporter: Exporter) -> bool:
    try:
        return get(exporter, "/healthz").status_code == 200
    except httpx.TransportError:
        return False
