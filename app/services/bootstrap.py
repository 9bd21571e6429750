"""The first start: an empty installation gets a platform admin key and the tenant that nameless work belongs to."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.scopes import Role
from app.services.actors import AuditEntry, ServiceActor
from app.services.keys import KeyOrder, mint_secret, store_key
from app.services.tenants import DEFAULT_TENANT
from app.settings import Settings
from app.store import api_keys, tenants
from app.store.database import Database
from app.store.tenants import NewTenant

_SYSTEM = ServiceActor("system")
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('despacho first start'))")


@dataclass(frozen=True, slots=True)
class FirstStart:
    """What a first start made: the admin key `secret`; `is_minted` when it was made here and must be shown."""

    secret: str
    is_minted: bool


async def first_start(database: Database, settings: Settings) -> FirstStart | None:
    """Make the default tenant where it is missing, and the platform admin key where no key was ever made.

    The key is `settings.bootstrap_key` where that is set. A bootstrap key that is set later, on an installation with
    keys, is not added: it would be a way in that nobody made. Returns None when there were keys already.
    """
    given = settings.bootstrap_key.get_secret_value() if settings.bootstrap_key else None
    secret = given or mint_secret()

    tenant_made, key_made = AuditEntry(_SYSTEM, "tenant.created"), AuditEntry(_SYSTEM, "key.created")

    async def work(connection: AsyncConnection) -> bool:
        await connection.execute(_ONE_AT_A_TIME)
        if await tenants.add(connection, NewTenant(DEFAULT_TENANT, "Default tenant")) is not None:
            await tenant_made.write(connection, target=DEFAULT_TENANT, tenant_id=DEFAULT_TENANT)
        if await api_keys.any_exists(connection):
            return False
        order = KeyOrder(None, Role.ADMIN, (), "bootstrap", None)
        row = await store_key(connection, order, secret)
        if row is None:
            return False
        await key_made.write(connection, target=row.key_id, reason="first start")
        return True

    made = await database.run(work, retry_for_seconds=database.settings.retry_for_seconds)
    return FirstStart(secret, given is None) if made else None
