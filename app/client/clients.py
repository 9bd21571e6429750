"""The clients: one address, one key, every noun of the API."""

from types import TracebackType
from typing import Generic, Self

from app.client.bound import S
from app.client.nouns.administration import Audit, Keys, Tenants
from app.client.nouns.approvals import Approvals
from app.client.nouns.bulk_actions import BulkActions
from app.client.nouns.dead_letters import DeadLetters
from app.client.nouns.effects import Effects
from app.client.nouns.inputs import Inputs
from app.client.nouns.limits import Budgets, Dependencies
from app.client.nouns.operation import Classes, Health, Pauses, TaskTypes, Workers
from app.client.nouns.policy import Overrides, Policies
from app.client.nouns.raw import Raw
from app.client.nouns.schedules import Schedules
from app.client.nouns.submitting import Submitting
from app.client.nouns.tasks import Tasks
from app.client.nouns.webhooks import Webhooks, WebhookSecrets
from app.client.retrying import Retries
from app.client.shells import Awaiting, Blocking, Plain, Setup
from app.client.target import Target, choose_target

_ANSWER_WITHIN_SECONDS = 30.0


class Nouns(Submitting[S], Generic[S]):
    """Everything that can be asked, by noun; `submit`, `submit_many` and `wait_all` are at hand here too."""

    def __init__(self, shell: S) -> None:
        super().__init__(shell)
        self.tasks = Tasks(shell)
        self.task_types = TaskTypes(shell)
        self.inputs = Inputs(shell)
        self.schedules = Schedules(shell)
        self.dead_letters = DeadLetters(shell)
        self.bulk_actions = BulkActions(shell)
        self.effects = Effects(shell)
        self.approvals = Approvals(shell)
        self.webhooks = Webhooks(shell)
        self.webhook_secrets = WebhookSecrets(shell)
        self.pauses = Pauses(shell)
        self.classes = Classes(shell)
        self.workers = Workers(shell)
        self.dependencies = Dependencies(shell)
        self.budgets = Budgets(shell)
        self.policy = Policies(shell)
        self.overrides = Overrides(shell)
        self.tenants = Tenants(shell)
        self.keys = Keys(shell)
        self.audit = Audit(shell)
        self.health = Health(shell)
        self.raw = Raw(shell)

    def __repr__(self) -> str:
        """Name the address; the key is not shown."""
        return f"{type(self).__name__}({self._shell.setup.target.url!r})"


class Client(Nouns[Blocking]):
    """The API, blocking. Threads may share one; close it at the end, or use it in a `with` statement.

    `url`, `key` and `profile` come from DESPACHO_URL, DESPACHO_KEY and DESPACHO_PROFILE (or `.env`) where they are left
    out. `timeout_seconds`: how long one answer may take, beyond what it was asked to wait; `retries`: how patient to
    be. Raises WrongConfiguration; its calls raise DespachoError.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        profile: str | None = None,
        *,
        timeout_seconds: float = _ANSWER_WITHIN_SECONDS,
        retries: Retries | None = None,
    ) -> None:
        super().__init__(Blocking(Setup(choose_target(url, key, profile), timeout_seconds, retries or Retries())))

    def close(self) -> None:
        """Close the connections."""
        self._shell.close()

    def __enter__(self) -> Self:
        """Enter; nothing is sent yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the connections."""
        self.close()


class AsyncClient(Nouns[Awaiting]):
    """The API under asyncio: as `Client`, with `await` before calls and `async for` over lists."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        profile: str | None = None,
        *,
        timeout_seconds: float = _ANSWER_WITHIN_SECONDS,
        retries: Retries | None = None,
    ) -> None:
        super().__init__(Awaiting(Setup(choose_target(url, key, profile), timeout_seconds, retries or Retries())))

    async def close(self) -> None:
        """Close the connections."""
        await self._shell.close()

    async def __aenter__(self) -> Self:
        """Enter; nothing is sent yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()


class PlainClient(Nouns[Plain]):
    """The API, blocking, with answers as the plain JSON that came: for programs that only show them."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(Plain(setup))

    @property
    def target(self) -> Target:
        """Return where it goes."""
        return self._shell.setup.target

    def close(self) -> None:
        """Close the connections."""
        self._shell.close()
