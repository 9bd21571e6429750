"""approvals, and the place of tasks that wait for one

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import BYTEA

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _name(column: str, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(column, sa.Text(collation="C"), nullable=nullable)


def _when(column: str, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(column, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    """Add both tables."""
    op.create_table(
        "suspended",
        _name("task_id"),
        _name("priority_class"),
        _name("tenant_id"),
        _name("task_type"),
        _name("task_group"),
        _when("order_at"),
        _when("queued_at"),
        _when("valid_until", nullable=True),
        sa.Column("cost", sa.REAL(), nullable=False),
        sa.Column("timeout_seconds", sa.REAL(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("dispatch", sa.Integer(), nullable=False),
        _when("submitted_at"),
        sa.Column("traceparent", sa.Text()),
        sa.Column("tracestate", sa.Text()),
        _name("approval_id"),
        _when("suspended_at"),
        sa.PrimaryKeyConstraint("task_id", name="pk_suspended"),
    )
    op.create_index("ix_suspended_tenant_id", "suspended", ["tenant_id"])
    op.create_index(
        "ix_suspended_valid_until",
        "suspended",
        ["valid_until"],
        postgresql_where=sa.text("valid_until IS NOT NULL"),
    )
    op.create_table(
        "approvals",
        _name("approval_id"),
        _name("task_id"),
        _name("tenant_id"),
        _name("type"),
        _name("priority_class"),
        _name("action"),
        sa.Column("fingerprint", BYTEA(), nullable=False),
        sa.Column("detail", sa.Text()),
        sa.Column("submitted_by", sa.Text(), nullable=False),
        _name("state"),
        _when("asked_at"),
        _when("due_at"),
        _when("expires_at"),
        _when("decided_at", nullable=True),
        sa.Column("decided_by", sa.Text()),
        sa.Column("comment", sa.Text()),
        sa.PrimaryKeyConstraint("approval_id", name="pk_approvals"),
        sa.UniqueConstraint("task_id", "action", "fingerprint", name="uq_approvals_task_id_action_fingerprint"),
    )
    op.create_index("ix_approvals_tenant_id", "approvals", ["tenant_id", "state", "due_at"])
    pending = sa.text("state = 'pending'")
    op.create_index("ix_approvals_open", "approvals", ["due_at", "approval_id"], postgresql_where=pending)
    op.create_index("ix_approvals_expires_at", "approvals", ["expires_at"], postgresql_where=pending)


def downgrade() -> None:
    """Remove both. Tasks that wait for an approval would have no place any more: decide or cancel them first."""
    op.drop_table("approvals")
    op.drop_table("suspended")
