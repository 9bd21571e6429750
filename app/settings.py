"""Every setting of every role: name, unit, default and bounds; read from DESPACHO_… variables and `.env`.

Nested groups use a double underscore: `DESPACHO_WORKER__LEASE_SECONDS=30`. A wrong or missing setting stops the start
with its name and what it should be, never with its value.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatabaseSettings(_Group):
    pool_size: int = Field(5, ge=1, le=200, description="connections per process for everything but the hot path")
    hot_pool_size: int = Field(3, ge=2, le=50, description="connections for batched submit, claim and settle")
    connect_timeout_seconds: Seconds = 5.0
    statement_timeout_seconds: Seconds = 30.0
    retry_for_seconds: Seconds = Field(
        20.0, description="how long background work retries a lost connection, a restart or a deadlock"
    )
    request_retry_for_seconds: Seconds = Field(2.0, description="the same for a request that somebody waits for")


class BrokerSettings(_Group):
    publish_deadline_seconds: Seconds = 2.0
    connect_timeout_seconds: Seconds = 5.0
    heartbeat_seconds: int = Field(15, ge=2, le=600)
    reconnect_seconds: Seconds = Field(
        0.5, description="first pause between connection attempts; doubles up to 16 times it"
    )
    delivery_limit: int = Field(
        10, ge=1, le=1000, description="deliveries of one message before the broker dead-letters it"
    )
    queue_prefix: str = Field("despacho", pattern=r"^[a-z][a-z0-9_.-]{0,40}$")
    dead_letter_max_length: int = Field(10_000, ge=1, description="messages kept in the broker's own dead-letter queue")


class ApiSettings(_Group):
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    max_body_bytes: int = Field(1024 * 1024, ge=1024)
    max_input_bytes: int = Field(25 * 1024 * 1024, ge=1024)
    max_wait_seconds: Seconds = 55.0
    idempotency_wait_seconds: Seconds = 5.0
    submit_batch_max: int = Field(1000, ge=1, le=10_000)
    public_url: str | None = Field(None, description="base of the absolute links in answers; default: relative links")
    host_dispatcher: bool = Field(True, description="whether `despacho api` also stands for election as the dispatcher")


class DispatcherSettings(_Group):
    window_seconds: Seconds = Field(0.25, description="how much work per class lies in the broker, in time to start it")
    leader_lease_seconds: Seconds = 2.0
    busy_poll_seconds: Seconds = 0.004
    idle_poll_seconds: Seconds = 0.05
    republish_seconds: Seconds = Field(
        10.0, description="a released task that nobody claimed is published again after this"
    )
    max_release: int = Field(2000, ge=1, le=20_000, description="tasks released in one round at most")


class WorkerSettings(_Group):
    slots: int = Field(16, ge=1, le=10_000)
    pool: str = Field("default", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    classes: list[str] = Field(default_factory=list, description="classes that this pool serves; empty means all")
    lease_seconds: Seconds = 30.0
    heartbeat_seconds: Seconds = 1.0
    drain_grace_seconds: Seconds = 30.0
    ack_after_settle_max_seconds: Seconds = 600.0
    cancel_grace_seconds: Seconds = Field(10.0, description="how long a cancelled or timed-out handler may take to end")
    hand_back_seconds: Seconds = Field(
        0.2, description="how long a delivery waits for a free slot before its row goes back"
    )
    max_result_bytes: int = Field(1024 * 1024, ge=1024)


class RetentionSettings(_Group):
    final_tasks_days: float = Field(30.0, gt=0)
    dead_letters_days: float = Field(90.0, gt=0)
    dead_letters_days_by_error_type: dict[str, float] = Field(
        default_factory=dict, description='for example {"invalid_payload": 7}'
    )
    idempotency_days: float = Field(7.0, gt=0)
    inputs_days: float = Field(7.0, gt=0, description="inputs that no task refers to")
    audit_days: float = Field(730.0, gt=0)
    release_rounds_days: float = Field(30.0, gt=0)
    batch_size: int = Field(1000, ge=10, le=10_000)
    interval_seconds: Seconds = 60.0


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
    data_dir: Path = Path(".despacho")
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
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    trace_url: str | None = Field(None, description="link template with {trace_id}")
    logs_url: str | None = Field(None, description="link template with {task_id}")

    database: DatabaseSettings = DatabaseSettings()
    broker: BrokerSettings = BrokerSettings()
    api: ApiSettings = ApiSettings()
    dispatcher: DispatcherSettings = DispatcherSettings()
    worker: WorkerSettings = WorkerSettings()
    retention: RetentionSettings = RetentionSettings()

    @field_validator("task_modules", mode="before")
    @classmethod
    def _split_modules(cls, value: object) -> object:
        if isinstance(value, str):
            return [name.strip() for name in value.split(",") if name.strip()]
        return value


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
