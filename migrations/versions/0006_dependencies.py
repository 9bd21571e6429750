"""dependencies and budgets

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_BUSY = {
    "fillfactor": "30",
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "5000",
    "autovacuum_vacuum_cost_delay": "0",
}


def upgrade() -> None:
    op.create_table(
        "dependencies",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_dependencies")),
        postgresql_with=_BUSY,
    )
    op.create_table(
        "dependency_slices",
        sa.Column("dependency", sa.Text(collation="C"), nullable=False),
        sa.Column("worker_id", sa.Text(collation="C"), nullable=False),
        sa.Column("slices", sa.Text(), nullable=False),
        sa.Column("probes", sa.Integer(), nullable=False),
        sa.Column("in_use", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("dependency", "worker_id", name=op.f("pk_dependency_slices")),
        postgresql_with=_BUSY,
    )
    op.create_table(
        "spending",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("shard", sa.SmallInteger(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", "tenant_id", "type", "shard", name=op.f("pk_spending")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_table(
        "budget_alerts",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("subject", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("day", "subject", name=op.f("pk_budget_alerts")),
    )
    op.add_column("tenants", sa.Column("budget_cost_usd_per_day", sa.Numeric(), nullable=True))
    op.add_column("tenants", sa.Column("budget_tokens_per_day", sa.BigInteger(), nullable=True))
    op.add_column("tenants", sa.Column("budget_retry_margin", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("tenants", "budget_retry_margin")
    op.drop_column("tenants", "budget_tokens_per_day")
    op.drop_column("tenants", "budget_cost_usd_per_day")
    op.drop_table("budget_alerts")
    op.drop_table("spending")
    op.drop_table("dependency_slices")
    op.drop_table("dependencies")
