"""overrides

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NAME = sa.Text(collation="C")
_WHEN = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make what classes that people gave need: the register, and the class in which a flight comes back."""
    op.add_column("flights", sa.Column("next_class", _NAME, nullable=True))
    op.create_table(
        "overrides",
        sa.Column("override_id", _NAME, nullable=False),
        sa.Column("task_id", _NAME, nullable=False),
        sa.Column("tenant_id", _NAME, nullable=False),
        sa.Column("type", _NAME, nullable=False),
        sa.Column("priority_class", _NAME, nullable=False),
        sa.Column("from_class", _NAME, nullable=False),
        sa.Column("derived_class", _NAME, nullable=False),
        sa.Column("derived_reason_code", _NAME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", _WHEN, nullable=False),
        sa.Column("expires_at", _WHEN, nullable=False),
        sa.Column("ended_at", _WHEN, nullable=True),
        sa.Column("ended_why", _NAME, nullable=True),
        sa.PrimaryKeyConstraint("override_id", name="pk_overrides"),
    )
    lasting = sa.text("ended_at IS NULL")
    op.create_index("ix_overrides_lasting", "overrides", ["task_id"], unique=True, postgresql_where=lasting)
    op.create_index("ix_overrides_expires_at", "overrides", ["expires_at"], postgresql_where=lasting)
    op.create_index("ix_overrides_task_id", "overrides", ["task_id"])
    op.create_index("ix_overrides_tenant_id", "overrides", ["tenant_id", "override_id"])


def downgrade() -> None:
    """Drop them; tasks stay in the class that they have."""
    op.drop_table("overrides")
    op.drop_column("flights", "next_class")
