"""A small HTTP server for roles without an API: `/metrics`, `/healthz` and `/readyz`.

It runs in threads of its own, not on the event loop: a loop that hangs must not take away the figures and the health
answer that tell of it. Every connection has a deadline and their number is bounded, so that slow or hostile peers cost
at most a few idle threads.
"""

import hmac
import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, socket
from threading import BoundedSemaphore, Thread
from typing import Any

from app.settings import Settings
from app.telemetry.metrics import CONTENT_TYPE, Metrics

MAX_CONNECTIONS = 16
CONNECTION_DEADLINE_SECONDS = 5.0

Checks = Callable[[], Mapping[str, bool]]


def no_checks() -> Mapping[str, bool]:
    """Check nothing: alive is whoever answers."""
    return {}


class Exporter:
    """Serves one process's metrics and health until closed."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        host: str,
        port: int,
        token: str | None = None,
        alive: Checks = no_checks,
        ready: Checks = no_checks,
    ) -> None:
        """Bind and serve at once; port 0 takes a free one. Raises OSError when the address cannot be bound.

        `alive` and `ready` are called from a thread and return named checks; one that is False makes the answer 503.
        `token` guards `/metrics` alone.
        """
        self._server = _Server((host, port), _answers(metrics, token, alive, ready))
        self._thread = Thread(target=self._server.serve_forever, args=(0.2,), name="exporter", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(CONNECTION_DEADLINE_SECONDS)


def start_exporter(
    settings: Settings, metrics: Metrics, *, alive: Checks = no_checks, ready: Checks = no_checks
) -> Exporter | None:
    """Serve where the settings say; None when `metrics_port` is 0. Raises OSError naming settings and address."""
    if settings.metrics_port == 0:
        return None
    host, port = settings.metrics_host, settings.metrics_port
    token = settings.metrics_token.get_secret_value() if settings.metrics_token else None
    try:
        return Exporter(metrics, host=host, port=port, token=token, alive=alive, ready=ready)
    except OSError as error:
        name = "DESPACHO_METRICS_HOST, DESPACHO_METRICS_PORT"
        raise OSError(f"{name}: cannot listen on {host}:{port}: {error.strerror}") from error


Answer = tuple[int, str, bytes]


def _answers(metrics: Metrics, token: str | None, alive: Checks, ready: Checks) -> Callable[[str, str | None], Answer]:
    expected = None if token is None else f"Bearer {token}".encode()

    def answer(path: str, authorization: str | None) -> Answer:
        if path == "/metrics":
            given = (authorization or "").encode("utf-8", "replace")
            if expected is not None and not hmac.compare_digest(given, expected):
                return 401, "text/plain", b"the metrics token is missing or wrong\n"
            return 200, CONTENT_TYPE, metrics.render()
        if path == "/healthz":
            return _verdict("alive", "hanging", alive())
        if path == "/readyz":
            return _verdict("ready", "unavailable", ready())
        return 404, "text/plain", b"only /metrics, /healthz and /readyz are here\n"

    return answer


def _verdict(good: str, bad: str, checks: Mapping[str, bool]) -> Answer:
    passed = all(checks.values())
    body = {"status": good if passed else bad, "checks": {name: bool(value) for name, value in checks.items()}}
    return (200 if passed else 503), "application/json", json.dumps(body).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], answer: Callable[[str, str | None], Answer]) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.answer = answer
        self._room = BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Say nothing: a peer that goes away is not an event."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "despacho"
    sys_version = ""
    timeout = CONNECTION_DEADLINE_SECONDS

    def do_GET(self) -> None:
        try:
            status, content_type, body = self.server.answer(
                self.path.partition("?")[0], self.headers.get("Authorization")
            )
        except Exception:
            status, content_type, body = 500, "text/plain", b"the figures could not be read\n"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape every few seconds is not an event."""
