"""The REST API from the client's side: one request at a time, errors as texts for a person.

It waits out what the service says is temporary (429, 503 with Retry-After), for as long as its patience lasts.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from app.cli.ending import CommandFailed
from app.cli.profiles import Target

Json = Any
"""What the API answered: any JSON value, shown and not interpreted."""

Parameters = Mapping[str, str | int | float | bool | Sequence[str] | None]

LONGEST_WAIT_SECONDS = 55
_ANSWER_WITHIN_SECONDS = 30.0
_CONNECT_WITHIN_SECONDS = 5.0
_PAGE_SIZE = 200
_TEMPORARY = (429, 503)


class ApiRefused(CommandFailed):
    """The API answered with a problem; `code` and `status` are its own."""

    def __init__(self, text: str, *, status: int, code: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class Client:
    """One API, one key. Close it at the end."""

    def __init__(
        self, target: Target, *, patience_seconds: float = 30.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers = {"User-Agent": "despacho-cli", "Accept": "application/json"}
        if target.key is not None:
            headers["Authorization"] = f"Bearer {target.key.get_secret_value()}"
        self._target = target
        self._patience_seconds = patience_seconds
        self._http = httpx.Client(
            base_url=target.url,
            headers=headers,
            timeout=httpx.Timeout(_ANSWER_WITHIN_SECONDS, connect=_CONNECT_WITHIN_SECONDS),
            transport=transport,
            # A proxy of the environment is for the outside; a key sent to the wrong place is lost.
            trust_env=not target.url.startswith(("http://127.", "http://localhost", "http://[::1]")),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, parameters: Parameters | None = None, *, wait_seconds: int = 0) -> Json:
        """GET; `wait_seconds` is added to the time an answer may take. Raises CommandFailed."""
        return self._ask("GET", path, parameters=parameters, wait_seconds=wait_seconds)

    def post(self, path: str, body: Json, *, headers: Mapping[str, str] | None = None, wait_seconds: int = 0) -> Json:
        """POST JSON. Raises CommandFailed."""
        return self._ask("POST", path, json=body, headers=headers, wait_seconds=wait_seconds)

    def post_bytes(self, path: str, content: bytes, content_type: str) -> Json:
        """POST a document. Raises CommandFailed."""
        return self._ask("POST", path, content=content, headers={"Content-Type": content_type})

    def delete(self, path: str) -> Json:
        """DELETE. Raises CommandFailed."""
        return self._ask("DELETE", path)

    def pages(self, path: str, parameters: Parameters | None = None, *, at_most: int | None = None) -> Iterator[Json]:
        """Iterate over a list, page by page, until it ends or `at_most` items have come. Raises CommandFailed."""
        token: str | None = None
        left = at_most
        while left is None or left > 0:
            size = _PAGE_SIZE if left is None else min(left, _PAGE_SIZE)
            page = self.get(path, {**(parameters or {}), "page_size": size, "page_token": token})
            yield from page["items"][:size]
            if left is not None:
                left -= len(page["items"])
            token = page.get("next_page_token")
            if token is None:
                return

    def _ask(
        self,
        method: str,
        path: str,
        *,
        parameters: Parameters | None = None,
        json: Json = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: int = 0,
    ) -> Json:
        arguments: dict[str, Any] = {"headers": headers, "params": _spoken(parameters), "content": content}
        if content is None and method == "POST":
            arguments["json"] = json
        if wait_seconds:
            arguments["timeout"] = httpx.Timeout(_ANSWER_WITHIN_SECONDS + wait_seconds, connect=_CONNECT_WITHIN_SECONDS)
        give_up_at = time.monotonic() + self._patience_seconds
        while True:
            answer = self._send(method, path, arguments)
            if answer.is_success:
                return _json(answer) if answer.content else None
            pause = _pause_seconds(answer)
            if answer.status_code not in _TEMPORARY or pause is None or time.monotonic() + pause > give_up_at:
                raise self._refused(answer)
            time.sleep(pause)

    def _send(self, method: str, path: str, arguments: dict[str, Any]) -> httpx.Response:
        url = self._target.url
        try:
            return self._http.request(method, path, **arguments)
        except httpx.ConnectError:
            raise CommandFailed(
                f"nothing answers at {url}: start the service with `despacho up`, or name the right address with "
                "--url (DESPACHO_URL)"
            ) from None
        except httpx.TimeoutException:
            raise CommandFailed(f"{url} did not answer in time; {url}/readyz says how it stands") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise CommandFailed("the URL of the API cannot be read; it should be like http://127.0.0.1:8000") from None
        except httpx.HTTPError as error:
            raise CommandFailed(f"the connection to {url} was lost ({type(error).__name__}); try again") from None

    def _refused(self, answer: httpx.Response) -> ApiRefused:
        problem = _json(answer) if "json" in answer.headers.get("content-type", "") else None
        if not isinstance(problem, dict):
            text = f"{self._target.url} answered {answer.status_code}, and not as Despacho does: is this its address?"
            return ApiRefused(text, status=answer.status_code, code="unknown")
        lines = [f"{problem.get('title', 'refused')}: {problem.get('detail', answer.status_code)}"]
        for error in problem.get("errors") or ():
            lines.append(f"  {error.get('pointer', '#')}: {error.get('detail', '')}")
        if answer.status_code == 401 and self._target.key is None:
            lines.append("give a key with DESPACHO_KEY, --key or --profile")
        if problem.get("retryable") and (retry_after := answer.headers.get("retry-after")):
            lines.append(f"it may work again in {retry_after} s")
        return ApiRefused("\n".join(lines), status=answer.status_code, code=str(problem.get("code", "unknown")))


def part(text: str) -> str:
    """Return `text` as one part of a path, whatever is in it."""
    return quote(text, safe="")


def _spoken(parameters: Parameters | None) -> dict[str, Any]:
    """Leave out what is not set."""
    return {name: value for name, value in (parameters or {}).items() if value is not None and value != ()}


def _pause_seconds(answer: httpx.Response) -> float | None:
    try:
        return max(0.1, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def _json(answer: httpx.Response) -> Json:
    try:
        return answer.json()
    except ValueError:
        raise CommandFailed(f"{answer.request.url.host} answered with something that is not JSON") from None
