"""A server that answers by a script, in a thread of its own: errors, silence, broken answers."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TASK = {"task_id": "task_1", "type": "echo", "status": "queued"}
DONE = {**TASK, "status": "done", "result": {"n": 1}}


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        """Return the idempotency key."""
        return self.headers.get("Idempotency-Key")


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do with a request: answer it, whole or cut, or drop it."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    drop: bool = False
    silent: bool = False


DROPPED = Answer(drop=True)
SILENT = Answer(silent=True)


def said(body: object, status: int = 200, **headers: str) -> Answer:
    """Answer with JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json", **named})


def problem(status: int, code: str, retryable: bool | None = None, **headers: str) -> Answer:
    """Answer with a problem."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"title": f"Refused: {code}", "status": status, "detail": "Because.", "code": code}
    if retryable is not None:
        body["retryable"] = retryable
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/problem+json", **named})


def page(items: list[Any], token: str | None = None) -> Answer:
    """Answer with a page of a list."""
    return said({"items": items, "next_page_token": token})


@dataclass(slots=True)
class Script:
    """The server: where it is, what it saw, and what it says next. The last answer is repeated."""

    url: str
    answers: Iterator[Answer]
    respond: Callable[[Seen], Answer] | None
    seen: list[Seen] = field(default_factory=list)
    last: Answer = field(default_factory=lambda: said({}))
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, seen: Seen) -> Answer:
        """Note a request and say what to do with it."""
        with self.lock:
            self.seen.append(seen)
            if self.respond is not None:
                return self.respond(seen)
            self.last = next(self.answers, self.last)
            return self.last


@contextmanager
def scripted(answers: Iterable[Answer] | Callable[[Seen], Answer]) -> Iterator[Script]:
    """Serve a script, or what a function makes of each request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen = Seen(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)
            self._give(script.next(seen))

        do_GET = do_POST = do_DELETE = do_PUT = _serve  # noqa: N815 - the names that http.server looks for

        def _give(self, answer: Answer) -> None:
            self.close_connection = answer.drop or answer.silent or answer.cut
            if answer.silent:
                script.ended.wait(20)
            if answer.drop or answer.silent:
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) + 100 * answer.cut))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    respond = answers if callable(answers) else None
    listed = iter(()) if callable(answers) else iter(answers)
    script = Script(f"http://127.0.0.1:{server.server_address[1]}", listed, respond)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield script
    finally:
        script.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
