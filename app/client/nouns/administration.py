"""Tenants, keys and the audit trail: for platform admins."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Moment, Request, Several, Stream, delete, given, pages, part, post


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a tenant; None means none."""

    submit_rate_per_second: float | None = None
    submit_burst: int | None = None
    max_open_tasks: int | None = None


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    tenant_id: str
    name: str = ""
    service_class: str | None = None
    weight: float | None = None
    quotas: Quotas = Quotas()
    budget: dict[str, Json] | None = None
    created_at: datetime | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret."""

    key_id: str
    tenant_id: str | None = None
    role: str | None = None
    scopes: tuple[str, ...] = ()
    subject: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class NewKey(Key, frozen=True, kw_only=True):
    """A key with its secret `key`, which is shown this once and left out of its repr."""

    key: str

    def __repr__(self) -> str:
        """Name the key, without its secret."""
        return f"NewKey(key_id={self.key_id!r}, tenant_id={self.tenant_id!r}, key=…)"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, when and why."""

    audit_id: str
    at: datetime
    action: str
    key_id: str | None = None
    subject: str | None = None
    tenant_id: str | None = None
    target: str | None = None
    reason: str | None = None
    detail: Json = None


class Tenants(Bound[S], Generic[S]):
    """`client.tenants`."""

    @call
    def create(
        self,
        tenant_id: str,
        name: str | None = None,
        *,
        service_class: str | None = None,
        weight: float | None = None,
        quotas: Quotas | Mapping[str, Json] | None = None,
        budget: Mapping[str, Json] | None = None,
    ) -> Request[Tenant]:
        """Make a tenant."""
        limits = given(**msgspec.to_builtins(quotas)) if quotas is not None else None
        body = given(
            tenant_id=tenant_id,
            name=name or tenant_id,
            service_class=service_class,
            weight=weight,
            quotas=limits,
            budget=budget,
        )
        return post("/v1/tenants", Tenant, body)

    @streaming
    def list(self, *, at_most: int | None = None) -> Stream[Tenant]:
        """Iterate over tenants, newest first."""
        return pages("/v1/tenants", Tenant, at_most=at_most)


class Keys(Bound[S], Generic[S]):
    """`client.keys`."""

    @call
    def create(
        self,
        tenant_id: str | None,
        *,
        role: str | None = None,
        scopes: Iterable[str] | None = None,
        subject: str | None = None,
        expires_at: Moment | None = None,
    ) -> Request[NewKey]:
        """Make a key for a tenant, or with None for the platform; by role, by scopes, or both."""
        body = given(
            role=role, scopes=None if scopes is None else list_of(scopes), subject=subject, expires_at=expires_at
        )
        return post("/v1/keys", NewKey, {"tenant_id": tenant_id, **body})

    @streaming
    def list(self, *, tenant_id: str | None = None, at_most: int | None = None) -> Stream[Key]:
        """Iterate over keys, without their secrets, newest first."""
        return pages("/v1/keys", Key, {"tenant_id": tenant_id}, at_most=at_most)

    @call
    def revoke(self, key_id: str) -> Request[None]:
        """Revoke a key for good."""
        return delete(f"/v1/keys/{part(key_id)}")


class Audit(Bound[S], Generic[S]):
    """`client.audit`."""

    @streaming
    def list(
        self,
        *,
        action: Several = None,
        subject: Several = None,
        target: str | None = None,
        tenant_id: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        at_most: int | None = None,
    ) -> Stream[AuditEntry]:
        """Iterate over the audit trail, newest first."""
        parameters = {
            "action": action,
            "subject": subject,
            "target": target,
            "tenant_id": tenant_id,
            "since": since,
            "until": until,
        }
        return pages("/v1/audit", AuditEntry, parameters, at_most=at_most)


def list_of(texts: Iterable[str]) -> "list[str]":
    """Return texts as JSON has them; one text is one, not its letters."""
    return [texts] if isinstance(texts, str) else [*texts]
