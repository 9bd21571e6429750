"""Waiting for somebody outside without holding a worker: addresses for callbacks, and what came by them."""

import secrets

from app.domain.callbacks import Called, Overdue, Pending, Standing, Undelivered, standing_of
from app.domain.errors import OwnershipLost, Snoozed
from app.runtime import Runtime
from app.services.callbacks import fingerprint_of
from app.store import callbacks
from workers.attempt import Attempt

__all__ = ["Address", "Callbacks", "Called", "Overdue", "Pending", "Standing", "Undelivered"]

AWAITING = "awaiting_callback"


class Address:
    """Where one delivery is answered; the token in `url` is its credential."""

    __slots__ = ("fingerprint", "url")

    def __init__(self, url: str, fingerprint: bytes) -> None:
        self.url = url
        self.fingerprint = fingerprint


class OwnCallbacks:
    """`ctx.callbacks`: how a handler lets its task be completed by somebody outside, without holding a worker.

    match await ctx.callbacks.standing():
        case Called(outcome=outcome): …           # somebody called: use what was said
        case Pending(seconds=seconds): ctx.callbacks.wait(seconds)
        case Overdue(): …                         # nobody called in time
    address = await ctx.callbacks.issue()         # hand `address.url` to whoever shall call
    await ctx.callbacks.promised(address, 3600)   # gives the worker back
    """

    __slots__ = ("_callbacks", "_owner")

    def __init__(self, owner: Attempt, callbacks_: "Callbacks") -> None:
        self._owner = owner
        self._callbacks = callbacks_

    async def standing(self, *, delivered: bool = False) -> Standing:
        """Say how the task stands; `delivered` when this very run may have delivered it. See Callbacks."""
        return await self._callbacks.standing(self._owner, delivered=delivered)

    async def issue(self) -> Address:
        """Make an address for one delivery; see Callbacks."""
        return await self._callbacks.issue(self._owner)

    async def promised(self, address: Address, seconds: float) -> None:
        """Note that a call is promised, and give the worker back; see Callbacks."""
        await self._callbacks.promised(self._owner, address, seconds)

    async def expected(self, address: Address, seconds: float) -> None:
        """Note that a call is promised, and go on; see Callbacks."""
        await self._callbacks.expected(self._owner, address, seconds)

    def wait(self, seconds: float) -> None:
        """Give the worker back until the call comes, or is overdue; see Callbacks."""
        self._callbacks.wait(seconds)


class Callbacks:
    """The callbacks of the tasks that this process runs; every write proves that the attempt owns its task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def standing(self, owner: Attempt, *, delivered: bool = False) -> Standing:
        """Say how the task stands: called back, still waited for, overdue, or to be delivered.

        An error that was called back, and the overdue, are said once: the next attempt is delivered anew. Raises
        OwnershipLost.
        """
        if owner.dispatch == 1 and not delivered:
            return Undelivered()
        found = standing_of(await callbacks.of_task(self._runtime.database, owner.task_id))
        spends = isinstance(found, Overdue) or (isinstance(found, Called) and found.outcome.error_type is not None)
        if spends and not await callbacks.heard(self._runtime.database, task_id=owner.task_id, fence=owner.fence):
            raise OwnershipLost
        return found

    async def issue(self, owner: Attempt) -> Address:
        """Make an address for one delivery. It is absolute where `DESPACHO_API__PUBLIC_URL` is set, else a path.

        Raises OwnershipLost.
        """
        token = f"dsp_cb_{secrets.token_urlsafe(32)}"
        fingerprint = fingerprint_of(token)
        if not await callbacks.issue(
            self._runtime.database,
            task_id=owner.task_id,
            fence=owner.fence,
            attempt=owner.number,
            token_sha256=fingerprint,
        ):
            raise OwnershipLost
        base = (self._runtime.settings.api.public_url or "").rstrip("/")
        return Address(f"{base}/v1/callbacks/{token}", fingerprint)

    async def promised(self, owner: Attempt, address: Address, seconds: float) -> None:
        """Note that a call by `address` is promised within `seconds`, and give the worker back until then.

        Raises Snoozed, or OwnershipLost.
        """
        await self.expected(owner, address, seconds)
        self.wait(seconds)

    async def expected(self, owner: Attempt, address: Address, seconds: float) -> None:
        """Note that a call by `address` is promised within `seconds`. Raises OwnershipLost."""
        if not await callbacks.promised(
            self._runtime.database,
            task_id=owner.task_id,
            fence=owner.fence,
            token_sha256=address.fingerprint,
            seconds=seconds,
        ):
            raise OwnershipLost

    def wait(self, seconds: float) -> None:
        """Give the worker back until the call comes, or is overdue. Raises Snoozed."""
        raise Snoozed(seconds, AWAITING, f"waiting for a callback, for {seconds:.0f} seconds at most")
