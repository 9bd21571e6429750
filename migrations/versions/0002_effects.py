"""effects: what tasks did outside, and the calls whose outcome is not known yet

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "effects",
        sa.Column("effect_id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("effect_type", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_type", sa.Text(collation="C"), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.Text(collation="C"), nullable=False),
        sa.Column("tokens", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("first_reserved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("call_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("in_doubt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("resolved_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("effect_id", name=op.f("pk_effects")),
        sa.UniqueConstraint("tenant_id", "key", name=op.f("uq_effects_tenant_id_key")),
        postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.05"},
    )
    op.create_index(
        "ix_effects_in_doubt",
        "effects",
        ["effect_id"],
        unique=False,
        postgresql_where=sa.text("in_doubt_at IS NOT NULL"),
    )
    op.create_index("ix_effects_task_id", "effects", ["task_id"], unique=False)
    op.create_index("ix_effects_tenant_id_effect_id", "effects", ["tenant_id", "effect_id"], unique=False)
    op.create_table(
        "effect_calls",
        sa.Column("effect_id", sa.Text(collation="C"), nullable=False),
        sa.Column("call_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("effect_id", name=op.f("pk_effect_calls")),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": "0.02",
            "autovacuum_vacuum_threshold": "5000",
            "autovacuum_vacuum_cost_delay": "0",
        },
    )


def downgrade() -> None:
    """Remove the tables."""
    op.drop_table("effect_calls")
    op.drop_table("effects")
