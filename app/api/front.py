"""What the routers work with: the runtime and the services that live as long as the API process."""

from dataclasses import dataclass

from starlette.requests import Request

from app.runtime import Runtime
from app.services.audit import RefusalTrail
from app.services.intake import Intake
from app.services.keys import KeyRing
from app.services.tenants import TenantBook
from app.services.waiters import Waiters


@dataclass(frozen=True, slots=True)
class Front:
    """Made once per application; `effects_are_served` says whether tasks link to their effects."""

    runtime: Runtime
    intake: Intake
    keys: KeyRing
    tenants: TenantBook
    refusals: RefusalTrail
    waiters: Waiters
    effects_are_served: bool


def front_of(request: Request) -> Front:
    """Return the front of the application that serves `request`."""
    front: Front = request.app.state.front
    return front
