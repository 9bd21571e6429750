"""callbacks: addresses by which outside handlers complete tasks, and a wake-up for what is about to snooze

Revision ID: 0007
Revises: 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of callbacks; a flight can be told that its snooze shall be over at once."""
    op.execute("""
        CREATE TABLE callbacks (
            token_sha256 bytea NOT NULL,
            task_id text COLLATE "C" NOT NULL,
            attempt integer NOT NULL,
            issued_at timestamptz NOT NULL,
            expires_at timestamptz,
            called_at timestamptz,
            read_at timestamptz,
            closed_at timestamptz,
            result text,
            error_type text COLLATE "C",
            error_message text,
            error_retryable boolean,
            CONSTRAINT pk_callbacks PRIMARY KEY (token_sha256)
        )
    """)
    op.execute("CREATE INDEX ix_callbacks_task_id ON callbacks (task_id)")
    op.execute("ALTER TABLE flights ADD COLUMN woken_at timestamptz")


def downgrade() -> None:
    """Remove both; callbacks that are still to come will find nothing."""
    op.execute("ALTER TABLE flights DROP COLUMN woken_at")
    op.execute("DROP TABLE callbacks")
