"""Inputs are kept once per tenant and content, within the limit, and referred to only where they exist."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.runtime import Runtime
from app.services import inputs
from app.services.actors import ServiceActor
from app.services.errors import Invalid, NotFound
from app.services.inputs import InputTooLarge
from tests.support.work import rows

ACME = ServiceActor("ana", "key_1", "acme")
GLOBEX = ServiceActor("eve", "key_2", "globex")
PLATFORM = ServiceActor("root")


async def a_stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_the_same_content_is_kept_once_per_tenant(runtime: Runtime) -> None:
    first = await inputs.keep(runtime, ACME, a_stream(b"\x00one ", b"two"), "text/plain; charset=utf-8")
    again = await inputs.keep(runtime, ACME, a_stream(b"\x00one two"), "text/plain; charset=utf-8")
    other = await inputs.keep(runtime, GLOBEX, a_stream(b"\x00one two"), "text/plain; charset=utf-8")

    assert (first.created, again.created, other.created) == (True, False, True)
    assert first.stored == again.stored
    assert first.stored.input_ref != other.stored.input_ref
    stored, content = await inputs.fetch(runtime, ACME, first.stored.input_ref)
    assert (stored.size_bytes, stored.content_type, content) == (8, "text/plain; charset=utf-8", b"\x00one two")
    with pytest.raises(NotFound):
        await inputs.fetch(runtime, GLOBEX, first.stored.input_ref)
    with pytest.raises(NotFound):
        await inputs.fetch(runtime, PLATFORM, "../../etc/passwd")


async def test_twenty_uploads_at_once_of_one_document_make_one(runtime: Runtime) -> None:
    kept = await asyncio.gather(*(inputs.keep(runtime, ACME, a_stream(b"x" * 100_000), None) for _ in range(20)))

    assert len({one.stored.input_ref for one in kept}) == 1
    assert [one.created for one in kept].count(True) == 1


async def test_what_is_too_large_is_refused_while_it_streams(runtime: Runtime) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1024 * 1024
            yield bytes(1024 * 1024)

    with pytest.raises(InputTooLarge) as refused:
        await inputs.keep(runtime, ACME, endless(), None)
    assert refused.value.limit_bytes == 25 * 1024 * 1024
    assert read == 26 * 1024 * 1024
    assert await rows(runtime, "SELECT 1 FROM inputs") == []


@pytest.mark.parametrize("content_type", ["text", "text/html\r\nX: y", "a/b;" + "x" * 500, "té/xt", ""])
async def test_a_content_type_that_is_none_is_refused(runtime: Runtime, content_type: str) -> None:
    with pytest.raises(Invalid):
        await inputs.keep(runtime, ACME, a_stream(b"x"), content_type)


async def test_a_reference_has_to_exist_for_the_tenant(runtime: Runtime) -> None:
    kept = await inputs.keep(runtime, ACME, a_stream(b"x"), None)
    await rows(runtime, "UPDATE inputs SET used_at = used_at - interval '30 days'")

    await inputs.check_refs(runtime, "acme", {"#/input_ref": kept.stored.input_ref})

    (used,) = await rows(runtime, "SELECT used_at > clock_timestamp() - interval '1 minute' AS lately FROM inputs")
    assert used["lately"]
    for tenant_id, ref in (("globex", kept.stored.input_ref), ("acme", "../../etc/passwd"), ("acme", "input_1")):
        with pytest.raises(Invalid) as refused:
            await inputs.check_refs(runtime, tenant_id, {"#/input_ref": ref})
        assert [error.pointer for error in refused.value.errors] == ["#/input_ref"]
        assert ref not in str(refused.value)
