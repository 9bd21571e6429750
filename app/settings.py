"""Every setting of every role: name, unit, default and bounds; read from DESPACHO_… variables and `.env`.

Nested groups use a double underscore: `DESPACHO_WORKER__LEASE_SECONDS=30`. A wrong or missing setting stops the start
with its name and what it should be, never with its value.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSetting

from app.agent_settings import A2aSettings, McpSettings
from app.domain.addresses import parse_allowed
from app.domain.secret_names import SECRET_NAME
from app.llm_settings import LlmSettings

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _split(value: object) -> object:
    """Make a list of names separated by commas; a list stays one."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


class DatabaseSettings(_Group):
    """How a process reaches PostgreSQL and how long it waits for it."""

    pool_size: int = Field(5, ge=1, le=200, description="connections per process for everything but the hot path")
    hot_pool_size: int = Field(3, ge=2, le=50, description="connections for batched submit, claim and settle")
    connect_timeout_seconds: Seconds = Field(5.0, description="for a new connection, or for a free one of the pool")
    statement_timeout_seconds: Seconds = Field(30.0, description="a statement that takes longer is ended by the server")
    retry_for_seconds: Seconds = Field(
        20.0, description="how long background work retries a lost connection, a restart or a deadlock"
    )
    request_retry_for_seconds: Seconds = Field(2.0, description="the same for a request that somebody waits for")


class BrokerSettings(_Group):
    """How a process reaches RabbitMQ, and how its queues are declared."""

    publish_deadline_seconds: Seconds = Field(
        2.0, description="how long confirms, declarations and depths are waited for"
    )
    connect_timeout_seconds: Seconds = 5.0
    heartbeat_seconds: int = Field(15, ge=2, le=600)
    reconnect_seconds: Seconds = Field(
        0.5, description="first pause between connection attempts; doubles up to 16 times it"
    )
    delivery_limit: int = Field(
        10, ge=1, le=1000, description="how often one message may come back before the broker dead-letters it"
    )
    queue_prefix: str = Field(
        "despacho", pattern=r"^[a-z][a-z0-9_.-]{0,40}$", description="queues are named <prefix>.<class>"
    )
    dead_letter_max_length: int = Field(10_000, ge=1, description="messages kept in the broker's own dead-letter queue")


class ApiSettings(_Group):
    """Where the API listens, and what one request may ask of it."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    max_body_bytes: int = Field(1024 * 1024, ge=1024, description="limit of a request's body")
    max_input_bytes: int = Field(25 * 1024 * 1024, ge=1024, description="limit of one stored input")
    max_wait_seconds: Seconds = Field(55.0, description="a longer wait for a task to end is cut to this")
    submit_batch_max: int = Field(1000, ge=1, le=10_000, description="tasks in one POST /v1/tasks/batch")
    public_url: str | None = Field(None, description="base of the absolute links in answers; default: relative links")
    mcp: bool = Field(True, description="whether /mcp serves agents as an MCP server, where the extra is installed")
    host_dispatcher: bool = Field(True, description="whether `despacho api` also stands for election as the dispatcher")


class DispatcherSettings(_Group):
    """How the leading dispatcher paces its rounds, and how long its lead lasts unrenewed."""

    window_seconds: Seconds = Field(0.1, description="how much work per class lies in the broker, in time to start it")
    leader_lease_seconds: Seconds = Field(2.0, description="a silent leader is replaced after this")
    busy_poll_seconds: Seconds = Field(0.004, description="pause after a round that moved something, unless poked")
    idle_poll_seconds: Seconds = Field(0.05, description="pause after a round that moved nothing, unless poked")
    max_release: int = Field(2000, ge=1, le=20_000, description="tasks released in one round at most")


class WorkerSettings(_Group):
    """What one worker takes on, and how long it waits for what."""

    slots: int = Field(16, ge=1, le=10_000, description="attempts that run at the same time")
    pool: str = Field(
        "default", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="a name for metrics and GET /v1/workers"
    )
    classes: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="comma-separated classes that this pool serves; empty means all"
    )
    host_dispatcher: bool = Field(False, description="whether `despacho worker` also stands for the dispatcher's lead")
    lease_seconds: Seconds = Field(
        30.0, description="a task whose worker is silent for this long is taken back; renewed at a third of it"
    )
    heartbeat_seconds: Seconds = Field(1.0, description="how often cancels, lost leases and progress are looked after")
    drain_grace_seconds: Seconds = Field(30.0, description="how long running tasks may go on after SIGTERM")
    ack_after_settle_max_seconds: Seconds = Field(
        600.0, description="tasks with a longer timeout are acked after their claim: their lease alone guards them"
    )
    cancel_grace_seconds: Seconds = Field(10.0, description="how long a cancelled or timed-out handler may take to end")
    hand_back_seconds: Seconds = Field(
        0.2, description="how long a delivery waits for a free slot before its row goes back"
    )
    max_result_bytes: int = Field(1024 * 1024, ge=1024, description="a larger result is a failure")

    @field_validator("classes", mode="before")
    @classmethod
    def _split_classes(cls, value: object) -> object:
        return _split(value)


class WebhookSettings(_Group):
    """How the ends of tasks are told to their `callback_url`."""

    try_timeout_seconds: Seconds = Field(10.0, description="for one try in all, from resolving the name to the answer")
    max_tries: int = Field(8, ge=1, le=50, description="tries of one event before it is given up")
    backoff_base_seconds: Seconds = Field(5.0, description="the shortest pause between two tries")
    backoff_cap_seconds: Seconds = Field(
        14_400.0, description="the longest; pauses grow fourfold and are drawn at random, Retry-After is kept to"
    )
    max_in_flight: int = Field(128, ge=1, le=1000, description="tries on their way at the same time")
    max_in_flight_per_host: int = Field(
        16, ge=1, le=1000, description="of them to one host; to one that did not answer last, a single one"
    )
    max_in_flight_per_tenant: int = Field(32, ge=1, le=1000, description="of them for one tenant")
    result_max_bytes: int = Field(
        0, ge=0, le=1024 * 1024, description="results up to this size are sent along; 0: none, only a link to the task"
    )

    @model_validator(mode="after")
    def _growing(self) -> "WebhookSettings":
        if self.backoff_cap_seconds < self.backoff_base_seconds:
            raise ValueError("backoff_cap_seconds should be at least backoff_base_seconds")
        return self


class OutboundSettings(_Group):
    """What calls to the outside may reach, and how long and how large they may be."""

    allowed_networks: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="comma-separated networks, addresses or host names (.example.lan: all below it) that may be called"
        " although they are private or of this machine",
    )
    connect_timeout_seconds: Seconds = Field(5.0, description="to resolve a name and connect")
    read_timeout_seconds: Seconds = Field(
        30.0, description="between two parts of a response, where the call names no time of its own"
    )
    deadline_seconds: Seconds = Field(300.0, description="for a whole call; a call may only lower it")
    max_response_bytes: int = Field(10 * 1024 * 1024, ge=1024, description="a larger response is a failure")
    max_redirects: int = Field(5, ge=0, le=20, description="followed at most, where a call follows them at all")
    max_connections: int = Field(100, ge=1, le=10_000, description="open at the same time per process")
    ca_file: Path | None = Field(None, description="PEM file of authorities that are trusted beside the usual ones")
    signing_secrets: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="comma-separated secrets that `http_request` may sign with: NAME for every tenant, tenant/NAME for"
        " one",
    )

    @field_validator("allowed_networks", "signing_secrets", mode="before")
    @classmethod
    def _split_networks(cls, value: object) -> object:
        return _split(value)

    @field_validator("signing_secrets")
    @classmethod
    def _secret_names(cls, value: list[str]) -> list[str]:
        if not all(SECRET_NAME.fullmatch(entry.rpartition("/")[2]) for entry in value):
            raise ValueError("entries should be the names of secrets, such as HOOK_KEY or acme/HOOK_KEY")
        return value

    @field_validator("allowed_networks")
    @classmethod
    def _readable_networks(cls, value: list[str]) -> list[str]:
        parse_allowed(value)
        return value


class SecretsSettings(_Group):
    """Where the values of the secrets come from that task types declare; the first place that has one gives it."""

    environment_prefix: str = Field(
        "DESPACHO_SECRET_", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$", description="variables are named <prefix><NAME>"
    )
    directory: Path | None = Field(
        None, description="a file per secret, as Docker and Kubernetes mount them; a line's end is taken off"
    )
    command: list[str] = Field(
        default_factory=list,
        description='program and arguments, with {name}; prints the value, for example ["vault", "kv", "get",'
        ' "-field={name}", "secret/despacho"]',
    )
    command_timeout_seconds: Seconds = 10.0
    command_cache_seconds: Seconds = Field(60.0, description="how long a value of the command is used again")


class JournalSettings(_Group):
    """How much one task may keep of its steps and its state."""

    max_step_bytes: int = Field(1024 * 1024, ge=1024, description="a larger result of one step is a failure")
    max_steps: int = Field(1000, ge=1, le=10_000, description="steps that one task may keep")
    max_task_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, le=1024**3, description="what the steps of one task may have together"
    )
    max_checkpoint_bytes: int = Field(1024 * 1024, ge=1024, description="a larger state is a failure")


class ApprovalSettings(_Group):
    """What handlers may ask people for, and how long they wait for the answer."""

    expires_seconds: float = Field(
        7 * 86400.0, gt=0, le=366 * 86400, allow_inf_nan=False,
        description="an approval that nobody decides within this expires, unless its type or handler says otherwise",
    )  # fmt: skip
    max_detail_bytes: int = Field(
        16 * 1024, ge=256, le=1024 * 1024, description="limit of what an approval shows, as JSON"
    )


class DependencySettings(_Group):
    """How workers share the limits of the dependencies that the policy names."""

    slice_seconds: Seconds = Field(
        2.0, description="how long a worker may use what it was given; renewed at half of it, or lost with the worker"
    )
    wait_seconds: Seconds = Field(
        1.0, description="how long a call waits for a permit; then its task gives the worker back, its attempt unspent"
    )


class BudgetSettings(_Group):
    """What the dispatcher reckons with before it knows what a task costs."""

    refresh_seconds: Seconds = Field(1.0, description="how often the leader reads what is spent, off its rounds")
    first_cost_usd: float = Field(
        0.01, ge=0, allow_inf_nan=False, description="assumed for a task of a type without history"
    )
    first_tokens: int = Field(2000, ge=0, description="the same in tokens")
    look_again_seconds: Seconds = Field(
        300.0, description="a task whose call would pass a budget comes back after this, or when the day turns"
    )


class RetentionSettings(_Group):
    """How long what has ended is kept, and how its removal is paced."""

    final_tasks_days: float = Field(30.0, gt=0, description="ended tasks with their history; ended bulk actions")
    dead_letters_days: float = Field(90.0, gt=0, description="dead letters with their tasks")
    dead_letters_days_by_error_type: dict[str, float] = Field(
        default_factory=dict, description='for example {"invalid_payload": 7}'
    )
    idempotency_days: float = Field(7.0, gt=0)
    inputs_days: float = Field(7.0, gt=0, description="inputs that no task refers to")
    effects_days: float = Field(
        365.0, gt=0, description="effects whose end is known; after that their keys can be used again"
    )
    audit_days: float = Field(730.0, gt=0)
    llm_calls_days: float = Field(
        730.0, gt=0, description="what each model call cost; the answers themselves go with their tasks"
    )
    release_rounds_days: float = Field(30.0, gt=0, description="what each release put off, and why")
    spending_days: float = Field(400.0, gt=0, description="what was spent, by day, tenant and type")
    batch_size: int = Field(1000, ge=10, le=10_000, description="rows removed by one statement")
    interval_seconds: Seconds = Field(60.0, description="pause between two turns of the removal")


class Settings(BaseSettings):
    """All settings of one process. Secrets are `SecretStr` and never printed."""

    model_config = SettingsConfigDict(
        env_prefix="DESPACHO_",
        env_nested_delimiter="__",
        env_file=".env",
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = Field(None, description="postgresql://user:password@host:5432/name")
    amqp_url: SecretStr | None = Field(None, description="amqp://user:password@host:5672/vhost")
    data_dir: Path = Field(Path(".despacho"), description="where `despacho up` keeps the embedded database")
    policy_file: Path | None = Field(
        None, description="seeds an empty database; default: the policy.toml that is shipped"
    )
    task_modules: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="comma-separated modules with task types, beside the built-in ones"
    )
    taxonomy_dir: Path | None = Field(
        None, description="own taxonomies of `classify_document`: <name>.toml; `default.toml` replaces the shipped one"
    )
    bootstrap_key: SecretStr | None = Field(None, description="the platform admin key of a first start")
    metrics_token: SecretStr | None = Field(None, description="guards /metrics when set")
    metrics_host: str = Field("127.0.0.1", description="address of /metrics and /healthz of roles without an API")
    metrics_port: int = Field(0, ge=0, le=65535, description="port of the same; 0 means off")
    migration_lock_timeout_seconds: Seconds = Field(
        3.0, description="how long a migration waits for a lock; those who need the table queue up behind it meanwhile"
    )
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    trace_url: str | None = Field(None, description="link template with {trace_id}")
    logs_url: str | None = Field(None, description="link template with {task_id}")

    database: DatabaseSettings = DatabaseSettings()
    broker: BrokerSettings = BrokerSettings()
    api: ApiSettings = ApiSettings()
    dispatcher: DispatcherSettings = DispatcherSettings()
    worker: WorkerSettings = WorkerSettings()
    webhooks: WebhookSettings = WebhookSettings()
    outbound: OutboundSettings = OutboundSettings()
    secrets: SecretsSettings = SecretsSettings()
    journal: JournalSettings = JournalSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    mcp: McpSettings = McpSettings()
    a2a: A2aSettings = A2aSettings()
    retention: RetentionSettings = RetentionSettings()
    llm: LlmSettings = LlmSettings()
    dependencies: DependencySettings = DependencySettings()
    budgets: BudgetSettings = BudgetSettings()

    @field_validator("task_modules", mode="before")
    @classmethod
    def _split_modules(cls, value: object) -> object:
        return _split(value)


class SettingsError(Exception):
    """A setting is wrong or missing; the text names each and what it should be, never its value."""


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; `overrides` (from flags) win over the environment. Raises SettingsError."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = [
            f"DESPACHO_{'__'.join(str(part) for part in item['loc']).upper()}: {item['msg']}" for item in error.errors()
        ]
        raise SettingsError("\n".join(lines)) from None
    except UnreadableSetting as error:
        # Its text names the field and the source, never the value.
        raise SettingsError(f"DESPACHO_…: {error}; lists and tables should be JSON") from None
