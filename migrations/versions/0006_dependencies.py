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

# The database itself keeps the sums: no statement that writes a call, nor one that corrects it later, can forget them,
# and they commit with it. A call counts for the day on which it began; its estimate counts until its cost is known.
_SPENDING = """
CREATE FUNCTION despacho_count_spending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO spending (day, tenant_id, type, shard, cost_usd, tokens, calls, attempts)
        SELECT CAST(n.started_at AT TIME ZONE 'UTC' AS date), n.tenant_id, n.task_type, CAST(n.fence % 8 AS smallint),
               sum(COALESCE(n.cost_usd, 0)), sum(n.input_tokens + n.output_tokens), count(*),
               count(DISTINCT n.fence) FILTER (WHERE NOT EXISTS (
                   SELECT 1 FROM llm_calls c WHERE c.task_id = n.task_id AND c.fence = n.fence
                   AND c.call_id < n.call_id))
        FROM added n GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (day, tenant_id, type, shard) DO UPDATE
        SET cost_usd = spending.cost_usd + excluded.cost_usd, tokens = spending.tokens + excluded.tokens,
            calls = spending.calls + excluded.calls, attempts = spending.attempts + excluded.attempts;
    ELSE
        INSERT INTO spending (day, tenant_id, type, shard, cost_usd, tokens, calls, attempts)
        SELECT CAST(n.started_at AT TIME ZONE 'UTC' AS date), n.tenant_id, n.task_type, CAST(n.fence % 8 AS smallint),
               sum(COALESCE(n.cost_usd, 0) - COALESCE(o.cost_usd, 0)),
               sum(n.input_tokens + n.output_tokens - o.input_tokens - o.output_tokens), 0, 0
        FROM changed n JOIN before o ON o.call_id = n.call_id
        GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (day, tenant_id, type, shard) DO UPDATE
        SET cost_usd = spending.cost_usd + excluded.cost_usd, tokens = spending.tokens + excluded.tokens;
    END IF;
    RETURN NULL;
END $$
-- next
CREATE TRIGGER count_spending AFTER INSERT ON llm_calls REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION despacho_count_spending()
-- next
CREATE TRIGGER correct_spending AFTER UPDATE ON llm_calls REFERENCING OLD TABLE AS before NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION despacho_count_spending()
"""


def upgrade() -> None:
    """Add dependencies, slices, spending and the tenants' budgets."""
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
    if _has_calls():
        for statement in _SPENDING.split("-- next"):
            op.execute(statement)


def _has_calls() -> bool:
    return sa.inspect(op.get_bind()).has_table("llm_calls")


def downgrade() -> None:
    """Drop them."""
    if _has_calls():
        op.execute("DROP TRIGGER correct_spending ON llm_calls")
        op.execute("DROP TRIGGER count_spending ON llm_calls")
        op.execute("DROP FUNCTION despacho_count_spending()")
    op.drop_column("tenants", "budget_retry_margin")
    op.drop_column("tenants", "budget_tokens_per_day")
    op.drop_column("tenants", "budget_cost_usd_per_day")
    op.drop_table("budget_alerts")
    op.drop_table("spending")
    op.drop_table("dependency_slices")
    op.drop_table("dependencies")
