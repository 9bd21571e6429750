"""Inputs: storing documents while they stream in, giving them back, and holding references against them."""

import hashlib
import re
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from app.ids import is_id, mint
from app.runtime import Runtime
from app.services.actors import Actor, check_seen
from app.services.errors import Invalid, NotFound, ServiceError
from app.store import inputs
from app.store.inputs import StoredInput

NO_SUCH_INPUT = "no input is stored under this reference"
DEFAULT_CONTENT_TYPE = "application/octet-stream"
_CONTENT_TYPE = re.compile(r"^[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}(;[ -~]{0,120})?$")


class InputTooLarge(ServiceError):
    """The document is larger than the limit of `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__("input_too_large", f"An input may have at most {limit_bytes} bytes.")
        self.limit_bytes = limit_bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """The stored input; `created` is False when the same content was there already."""

    stored: StoredInput
    created: bool


async def keep(
    runtime: Runtime,
    actor: Actor,
    chunks: AsyncIterable[bytes],
    content_type: str | None,
    *,
    tenant_id: str | None = None,
) -> Kept:
    """Store a document as it streams in; `tenant_id` is for platform keys, which have no tenant of their own.

    Raises InputTooLarge as soon as the limit is passed, or Invalid.
    """
    owner = actor.tenant_id or tenant_id
    if owner is None:
        raise Invalid([("#/tenant_id", "a platform key should say for which tenant the input is")])
    kind = DEFAULT_CONTENT_TYPE if content_type is None else content_type.strip()
    if not _CONTENT_TYPE.match(kind):
        raise Invalid([("#/content_type", "should be a media type such as text/plain")])
    content, digest = await _read(chunks, runtime.settings.api.max_input_bytes)
    input_ref = mint("input")

    async def once(connection: AsyncConnection) -> Kept:
        there = await inputs.find(connection, tenant_id=owner, sha256=digest, content_type=kind)
        if there is not None:
            return Kept(there, created=False)
        stored = await inputs.insert(
            connection, input_ref=input_ref, tenant_id=owner, sha256=digest, content_type=kind, content=content
        )
        return Kept(stored, created=stored.input_ref == input_ref)

    return await runtime.database.run(once)


async def fetch(runtime: Runtime, actor: Actor, input_ref: str) -> tuple[StoredInput, bytes]:
    """Read a stored input with its bytes. Raises NotFound."""
    async with runtime.database.transaction() as connection:
        found = await inputs.get(connection, input_ref) if is_id("input", input_ref) else None
    if found is None:
        raise NotFound
    check_seen(actor, input_ref, found[0].tenant_id)
    return found


async def check_refs(runtime: Runtime, tenant_id: str, refs: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
    """Have the inputs that a submission refers to, given as (pointer, input_ref), exist for this tenant and stay.

    Raises Invalid with the pointers of those that do not exist. To be called right before the tasks are stored.
    """
    wanted = list(refs.items() if isinstance(refs, Mapping) else refs)
    known = await known_refs(runtime, tenant_id, (ref for _, ref in wanted))
    missing = [(pointer, NO_SUCH_INPUT) for pointer, ref in wanted if ref not in known]
    if missing:
        raise unknown_refs(missing)


async def known_refs(runtime: Runtime, tenant_id: str, refs: Iterable[str]) -> set[str]:
    """Name those of `refs` under which the tenant has an input, and mark these as used; one look-up for all of them."""
    well_formed = sorted({ref for ref in refs if is_id("input", ref)})
    if not well_formed:
        return set()
    return await runtime.database.run(lambda connection: inputs.mark_used(connection, tenant_id, well_formed))


def unknown_refs(missing: Sequence[tuple[str, str]] = (("#/input_ref", NO_SUCH_INPUT),)) -> Invalid:
    """Say that inputs, given as (pointer, what is wrong), are not stored."""
    return Invalid(missing, code="unknown_input_ref", detail="There is no such stored input.")


async def _read(chunks: AsyncIterable[bytes], limit_bytes: int) -> tuple[bytes, str]:
    content, digest = bytearray(), hashlib.sha256()
    async for chunk in chunks:
        if len(content) + len(chunk) > limit_bytes:
            raise InputTooLarge(limit_bytes)
        content += chunk
        digest.update(chunk)
    return bytes(content), digest.hexdigest()
