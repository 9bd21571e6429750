"""Calls through the guard, against real servers: where they may go, how long they last and how large they get."""

import asyncio
import gzip
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from app.domain.addresses import AddressForbidden
from app.outbound.client import OutboundClient, RedirectForbidden, TooManyRedirects
from app.outbound.guard import InvalidEncoding, Resolve, ResponseTooLarge, resolve
from app.settings import OutboundSettings
from tests.support.certificates import an_authority
from tests.support.http_server import Answer, Request, a_response, serving
from tests.support.ports import free_port


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[..., OutboundClient]]:
    """Make clients that are closed at the end."""
    made: list[OutboundClient] = []

    def make(allowed: str = "127.0.0.1", resolver: Resolve = resolve, **settings: object) -> OutboundClient:
        chosen = OutboundSettings.model_validate({"allowed_networks": allowed, **settings})
        made.append(OutboundClient(chosen, resolver=resolver))
        return made[-1]

    yield make
    for client in made:
        await client.close()


ClientOf = Callable[..., OutboundClient]


def answering(*answers: list[str]) -> Resolve:
    """Resolve every name, to each of the answers in turn; the last one stays."""
    left = list(answers)

    async def answer(host: str, port: int) -> list[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::ffff:7f00:1]", "[::1]", "localhost", "localhost.", "127.1", "0x7f.1", "2130706433", "0"]
)
async def test_a_private_address_gets_no_connection(client_of: ClientOf, host: str) -> None:
    async with serving() as server:
        with pytest.raises(AddressForbidden):
            await client_of("").request("GET", server.url(host=host))

    assert server.connections == 0


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"]])
async def test_a_name_that_leads_inside_gets_no_connection(client_of: ClientOf, addresses: list[str]) -> None:
    async with serving() as server:
        with pytest.raises(AddressForbidden, match="leads to a loopback"):
            await client_of("", answering(addresses)).request("GET", server.url(host="rebound.example"))

    assert server.connections == 0


async def test_the_connection_goes_to_the_address_that_was_checked(client_of: ClientOf) -> None:
    asked: list[str] = []

    async def changing(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    async with serving() as server:
        response = await client_of("127.0.0.1", changing).request("GET", server.url(host="rebound.example"))

    assert response.status_code == 200
    assert asked == ["rebound.example"]
    assert server.requests[0].headers["host"] == f"rebound.example:{server.port}"


async def test_every_new_connection_is_checked_anew(client_of: ClientOf) -> None:
    client = client_of("127.0.0.1", answering(["127.0.0.1"], ["10.0.0.1"]))
    async with serving() as server:
        await client.request("GET", server.url(host="rebound.example"))
        with pytest.raises(AddressForbidden):
            await client.request("GET", server.url(host="rebound.example"))

    assert server.connections == 1


async def test_the_next_address_is_tried_when_one_refuses(client_of: ClientOf) -> None:
    client = client_of("127.0.0.0/8", answering(["127.0.0.2", "127.0.0.1"]))
    async with serving() as server:
        response = await client.request("GET", server.url(host="two.example"))

    assert response.status_code == 200


async def test_a_proxy_of_the_environment_is_not_used(client_of: ClientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as proxy, serving() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        response = await client_of().request("GET", server.url())

    assert response.status_code == 200
    assert proxy.connections == 0


async def test_redirects_are_not_followed_by_themselves(client_of: ClientOf) -> None:
    async with serving(lambda request: a_response(302, headers=[("Location", "/other")])) as server:
        response = await client_of().request("GET", server.url())

    assert response.status_code == 302
    assert server.connections == 1


@pytest.mark.parametrize("location", ["http://localhost:{}/", "http://127.2:{}/", "//[::1]:{}/", "file:///etc/passwd"])
async def test_a_redirect_to_a_forbidden_address_gets_no_connection(client_of: ClientOf, location: str) -> None:
    async with serving() as inside, serving() as server:
        server.answer = lambda request: a_response(307, headers=[("Location", location.format(inside.port))])
        with pytest.raises(RedirectForbidden) as refused:
            await client_of().request("GET", server.url(), follow_redirects=True)

    assert refused.value.error_type == "forbidden_address"
    assert inside.connections == 0


async def test_a_redirect_that_fails_does_not_look_like_nothing_sent(client_of: ClientOf) -> None:
    location = [("Location", f"http://127.0.0.1:{free_port()}/")]
    async with serving(lambda request: a_response(307, headers=location)) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await client_of().request("POST", server.url(), follow_redirects=True)


async def test_a_redirect_to_another_origin_takes_no_credentials_along(client_of: ClientOf) -> None:
    async with serving() as other, serving() as server:
        server.answer = lambda request: a_response(307, headers=[("Location", other.url("/there"))])
        headers = {"Authorization": "Bearer canary", "X-Api-Key": "canary", "Cookie": "a=canary", "Traceparent": "00-1"}
        response = await client_of().request(
            "POST", server.url(), headers=headers, json={"a": 1}, follow_redirects=True
        )

    assert response.status_code == 200
    assert server.requests[0].headers["x-api-key"] == "canary"
    assert "canary" not in str(other.requests[0].headers)
    assert other.requests[0].headers["traceparent"] == "00-1"
    assert other.requests[0].headers["host"] == f"127.0.0.1:{other.port}"
    assert other.requests[0].json() == {"a": 1}


async def test_a_redirect_on_the_same_origin_keeps_headers_and_a_303_asks_without_a_body(client_of: ClientOf) -> None:
    def answer(request: Request) -> Answer:
        return a_response(303, headers=[("Location", "/there")]) if request.path == "/" else a_response()

    async with serving(answer) as server:
        await client_of().request("POST", server.url(), headers={"X-A": "1"}, json={}, follow_redirects=True)

    assert (server.requests[1].method, server.requests[1].body) == ("GET", b"")
    assert server.requests[1].headers["x-a"] == "1"


async def test_redirects_end_at_their_limit(client_of: ClientOf) -> None:
    async with serving(lambda request: a_response(302, headers=[("Location", "/again")])) as server:
        with pytest.raises(TooManyRedirects):
            await client_of(max_redirects=5).request("GET", server.url(), follow_redirects=True)

    assert server.connections == 6


async def test_cookies_are_not_kept(client_of: ClientOf) -> None:
    async with serving(lambda request: a_response(headers=[("Set-Cookie", "a=b")])) as server:
        client = client_of()
        await client.request("GET", server.url())
        await client.request("GET", server.url())

    assert "cookie" not in server.requests[1].headers


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_server_that_drips_is_left_at_the_deadline(client_of: ClientOf, part: str) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\n" + (b"Content-Length: 1000000\r\n\r\n" if part == "body" else b""))
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(lambda request: drip) as server:
        started = time.monotonic()
        with pytest.raises(httpx.TimeoutException):
            await client_of().request("GET", server.url(), timeout_seconds=0.3)

    assert time.monotonic() - started < 5


async def test_a_resolver_that_does_not_answer_is_left_at_the_connect_timeout(client_of: ClientOf) -> None:
    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(httpx.ConnectTimeout):
        await client_of("", silent, connect_timeout_seconds=0.1).request("GET", "http://slow.example/")


async def test_a_name_that_cannot_be_resolved_is_a_connection_failure(client_of: ClientOf) -> None:
    async def nothing(host: str, port: int) -> list[str]:
        raise OSError("canary")

    with pytest.raises(httpx.ConnectError, match="cannot be resolved"):
        await client_of("", nothing).request("GET", "http://missing.example/")


@pytest.mark.parametrize("announced", [True, False])
async def test_a_large_body_is_left_at_the_limit(client_of: ClientOf, announced: bool) -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        head = b"Content-Length: 5000000\r\n" if announced else b"Connection: close\r\n"
        writer.write(b"HTTP/1.1 200 X\r\n" + head + b"\r\n" + b"a" * 5_000_000)
        await writer.drain()

    async with serving(lambda request: flood) as server:
        with pytest.raises(ResponseTooLarge, match="1000000 bytes"):
            await client_of(max_response_bytes=1_000_000).request("GET", server.url())
        assert len((await client_of().request("GET", server.url())).content) == 5_000_000


async def test_a_small_body_that_unfolds_to_a_large_one_is_left_at_the_limit(client_of: ClientOf) -> None:
    folded = gzip.compress(b"0" * 50_000_000)
    async with serving(lambda request: a_response(body=folded, headers=[("Content-Encoding", "gzip")])) as server:
        with pytest.raises(ResponseTooLarge):
            await client_of(max_response_bytes=1_000_000).request("GET", server.url())

    assert len(folded) < 1_000_000


@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress])
async def test_an_encoded_body_is_decoded(client_of: ClientOf, encode: Callable[[bytes], bytes]) -> None:
    headers = [("Content-Encoding", "gzip" if encode is gzip.compress else "deflate")]
    async with serving(lambda request: a_response(body=encode(b"x" * 200_000), headers=headers)) as server:
        response = await client_of().request("GET", server.url())

    assert response.content == b"x" * 200_000


@pytest.mark.parametrize(
    ("encoding", "body"), [("br", b"x"), ("gzip, gzip", b"x"), ("gzip", b"no gzip"), ("gzip", gzip.compress(b"x")[:-9])]
)
async def test_a_body_that_is_not_encoded_as_it_says_is_a_failure(
    client_of: ClientOf, encoding: str, body: bytes
) -> None:
    async with serving(lambda request: a_response(body=body, headers=[("Content-Encoding", encoding)])) as server:
        with pytest.raises(InvalidEncoding):
            await client_of().request("GET", server.url())


async def test_a_response_without_a_body_may_name_an_encoding(client_of: ClientOf) -> None:
    async with serving(lambda request: a_response(204, headers=[("Content-Encoding", "gzip")])) as server:
        assert (await client_of().request("HEAD", server.url())).content == b""


async def test_nonsense_instead_of_http_is_a_connection_failure(client_of: ClientOf) -> None:
    async with serving(lambda request: b"SSH-2.0-nonsense\r\n\r\n") as server:
        with pytest.raises(httpx.TransportError):
            await client_of().request("GET", server.url())


async def test_a_certificate_is_checked_against_the_name_and_the_authority(client_of: ClientOf, tmp_path: Path) -> None:
    authority = an_authority(tmp_path, "right.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate_file, authority.key_file)
    resolver = answering(["127.0.0.1"])
    async with serving(context=context) as server:
        trusting = client_of("127.0.0.1", resolver, ca_file=authority.ca_file)
        response = await trusting.request("GET", server.url(host="right.example"))
        with pytest.raises(httpx.ConnectError):
            await trusting.request("GET", server.url(host="wrong.example"))
        with pytest.raises(httpx.ConnectError):
            await client_of("127.0.0.1", resolver).request("GET", server.url(host="right.example"))

    assert response.status_code == 200
    assert len(server.requests) == 1
