"""llm calls

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _name(column: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(column, sa.Text(collation="C"), nullable=nullable)


def _count(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=False, server_default="0")


def upgrade() -> None:
    """Add the ledger of model calls and the register of used prompt versions."""
    op.create_table(
        "llm_calls",
        _name("call_id"),
        _name("task_id"),
        _name("tenant_id"),
        _name("task_type"),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        _name("step"),
        _name("prompt_version", nullable=True),
        _name("fingerprint"),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        _name("provider"),
        _name("model_asked"),
        _name("model_answered", nullable=True),
        sa.Column("streamed", sa.Boolean(), nullable=False),
        _name("outcome"),
        _name("stop_reason", nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        _count("cached_tokens"),
        _count("cache_write_tokens"),
        _count("reasoning_tokens"),
        sa.Column("cost_usd", sa.Numeric(), nullable=True),
        sa.Column("price_date", sa.Date(), nullable=True),
        _name("price_source", nullable=True),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("response", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("call_id", name=op.f("pk_llm_calls")),
        postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.05"},
    )
    op.create_index("ix_llm_calls_task_id", "llm_calls", ["task_id"])
    op.create_index("ix_llm_calls_task_type_call_id", "llm_calls", ["task_type", "call_id"])
    op.create_table(
        "prompt_versions",
        _name("name"),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        _name("sha256"),
        sa.Column("first_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_prompt_versions")),
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_table("prompt_versions")
    op.drop_index("ix_llm_calls_task_type_call_id", table_name="llm_calls")
    op.drop_index("ix_llm_calls_task_id", table_name="llm_calls")
    op.drop_table("llm_calls")
