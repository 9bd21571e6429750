"""journal

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of steps and checkpoints."""
    op.create_table(
        "steps",
        sa.Column("task_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("fingerprint", postgresql.BYTEA(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "name", "fingerprint", name=op.f("pk_steps")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("task_id", sa.Text(collation="C"), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_checkpoints")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("checkpoints")
    op.drop_table("steps")
