"""Secrets for handlers: exactly those that the task's type declares, read before its handler starts.

Reading ahead makes `ctx.secret` a plain look-up in every kind of handler, and lets a run without its secrets fail
before it has done anything.
"""

from collections.abc import Mapping, Sequence

from app.domain.errors import DeadLetter
from app.domain.task_types import TaskTypeSpec
from app.outbound.signatures import InvalidSecret, sign
from app.secret_providers import SecretProviders

Held = Mapping[str, str]


class DeclaredSecrets:
    """Gives declared secrets to attempts, and signs with those that are opened for signing."""

    def __init__(self, providers: SecretProviders, *, signing: Sequence[str]) -> None:
        """`signing` holds the setting's entries: NAME, or tenant/NAME."""
        self._providers = providers
        self._signing = frozenset(signing)

    async def read(self, spec: TaskTypeSpec) -> dict[str, str]:
        """Read what a type declares. Raises SecretMissing or SecretUnavailable."""
        return {name: await self._providers.value(name) for name in spec.secrets}

    async def signature(
        self, tenant_id: str, name: str, *, message_id: str, timestamp: int, body: bytes
    ) -> dict[str, str]:
        """Sign a message of a tenant's with a secret that the setting opens for it; the value stays here.

        The secret may hold several keys, `whsec_…` each, while they are rotated. Raises DeadLetter
        (`undeclared_secret`, `invalid_secret`), SecretMissing or SecretUnavailable.
        """
        if not self._signing & {name, f"{tenant_id}/{name}"}:
            raise DeadLetter(
                "undeclared_secret",
                "the tenant's tasks may not sign with this secret: DESPACHO_OUTBOUND__SIGNING_SECRETS should name it",
            )
        value = await self._providers.value(name)
        try:
            return sign(value.replace(",", " ").split(), message_id, timestamp, body)
        except InvalidSecret as error:
            raise DeadLetter("invalid_secret", f"the secret {name} cannot sign: {error}") from None


def held(secrets: Held, name: str, spec: TaskTypeSpec) -> str:
    """Give a secret that was read ahead. Raises DeadLetter (`undeclared_secret`) for one that the type lacks."""
    if name in spec.secrets and name in secrets:
        return secrets[name]
    shown = name if isinstance(name, str) and name.isidentifier() and len(name) <= 64 else "this one"
    raise DeadLetter(
        "undeclared_secret",
        f"the type {spec.name} does not declare the secret {shown}: add it to @task_type(…, secrets=[…])",
    )
