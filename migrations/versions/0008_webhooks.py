"""webhooks

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_NAME = sa.Text(collation="C")
_WHEN = sa.DateTime(timezone=True)
_BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "5000",
    "autovacuum_vacuum_cost_delay": "0",
}

# An id as `app/ids.py` mints it: 48 bits of milliseconds, 80 bits of chance, in Crockford's base 32.
_MINT = """
CREATE FUNCTION despacho_mint(noun text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    alphabet CONSTANT text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    chance CONSTANT text := replace(gen_random_uuid()::text, '-', '');
    moment CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    -- Of a version 4 UUID all digits but the 13th and the 17th are chance.
    first CONSTANT bigint := ('x' || lpad(substr(chance, 1, 10), 16, '0'))::bit(64)::bigint;
    second CONSTANT bigint := ('x' || lpad(substr(chance, 23, 10), 16, '0'))::bit(64)::bigint;
    spelled text := noun || '_';
BEGIN
    FOR i IN REVERSE 9..0 LOOP
        spelled := spelled || substr(alphabet, (moment >> (5 * i) & 31)::int + 1, 1);
    END LOOP;
    FOR i IN REVERSE 7..0 LOOP
        spelled := spelled || substr(alphabet, (first >> (5 * i) & 31)::int + 1, 1);
    END LOOP;
    FOR i IN REVERSE 7..0 LOOP
        spelled := spelled || substr(alphabet, (second >> (5 * i) & 31)::int + 1, 1);
    END LOOP;
    RETURN spelled;
END
$$
"""
# One event per end, in the transaction of the end, whichever statement makes it.
_ENDED = """
CREATE FUNCTION despacho_task_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO webhooks (webhook_id, task_id, tenant_id, priority_class, host, event, task_type, attempts, error_type,
                          error_message, error_retryable, submitted_at, ended_at, state, next_try_at)
    VALUES (despacho_mint('webhook'), NEW.task_id, NEW.tenant_id, NEW.priority_class,
            COALESCE(lower(substring(NEW.callback_url FROM '^[^:]+://([^/?#]*)')), ''), 'task.' || NEW.status, NEW.type,
            NEW.attempts, NEW.error_type, NEW.error_message, NEW.error_retryable, NEW.submitted_at,
            COALESCE(NEW.finished_at, clock_timestamp()), 'waiting', clock_timestamp());
    RETURN NULL;
END
$$
"""
_TRIGGER = """
CREATE TRIGGER task_ended AFTER UPDATE OF status ON tasks FOR EACH ROW
WHEN (NEW.callback_url IS NOT NULL AND OLD.status IS DISTINCT FROM NEW.status
      AND NEW.status IN ('done', 'dead_lettered', 'cancelled', 'expired', 'superseded', 'rejected'))
EXECUTE FUNCTION despacho_task_ended()
"""


def upgrade() -> None:
    """Add callback_url, what is to be delivered, and what signs it."""
    op.add_column("tasks", sa.Column("callback_url", sa.Text(), nullable=True))
    op.create_table(
        "webhook_secrets",
        sa.Column("webhook_secret_id", _NAME, nullable=False),
        sa.Column("tenant_id", _NAME, nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", _WHEN, nullable=False),
        sa.Column("valid_until", _WHEN, nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_webhook_secrets_tenant_id")),
        sa.PrimaryKeyConstraint("webhook_secret_id", name=op.f("pk_webhook_secrets")),
    )
    op.create_index("ix_webhook_secrets_tenant_id", "webhook_secrets", ["tenant_id"])
    op.create_table(
        "webhooks",
        sa.Column("webhook_id", _NAME, nullable=False),
        sa.Column("task_id", _NAME, nullable=False),
        sa.Column("tenant_id", _NAME, nullable=False),
        sa.Column("priority_class", _NAME, nullable=False),
        sa.Column("host", _NAME, nullable=False),
        sa.Column("event", _NAME, nullable=False),
        sa.Column("task_type", _NAME, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error_type", _NAME, nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_retryable", sa.Boolean(), nullable=True),
        sa.Column("submitted_at", _WHEN, nullable=False),
        sa.Column("ended_at", _WHEN, nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("sending", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("next_try_at", _WHEN, nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tries_forgiven", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_status_code", sa.Integer(), nullable=True),
        sa.Column("last_error_type", _NAME, nullable=True),
        sa.Column("last_try_at", _WHEN, nullable=True),
        sa.Column("settled_at", _WHEN, nullable=True),
        sa.PrimaryKeyConstraint("webhook_id", name=op.f("pk_webhooks")),
        postgresql_with=_BUSY,
    )
    op.create_index("ix_webhooks_task_id", "webhooks", ["task_id", "webhook_id"])
    op.create_index("ix_webhooks_tenant_id_webhook_id", "webhooks", ["tenant_id", "webhook_id"])
    op.create_index("ix_webhooks_state_webhook_id", "webhooks", ["state", "webhook_id"])
    op.create_index(
        "ix_webhooks_turn",
        "webhooks",
        ["tenant_id", "host", "priority_class", "next_try_at", "webhook_id"],
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_table(
        "webhook_tries",
        sa.Column("webhook_id", _NAME, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("started_at", _WHEN, nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error_type", _NAME, nullable=True),
        sa.PrimaryKeyConstraint("webhook_id", "number", name=op.f("pk_webhook_tries")),
    )
    op.execute(_MINT)
    op.execute(_ENDED)
    op.execute(_TRIGGER)


def downgrade() -> None:
    """Take it all away again."""
    op.execute("DROP TRIGGER task_ended ON tasks")
    op.execute("DROP FUNCTION despacho_task_ended()")
    op.execute("DROP FUNCTION despacho_mint(text)")
    op.drop_table("webhook_tries")
    op.drop_table("webhooks")
    op.drop_table("webhook_secrets")
    op.drop_column("tasks", "callback_url")
