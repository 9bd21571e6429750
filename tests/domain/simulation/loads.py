"""Small loads as text, and running them."""

from pathlib import Path
from random import Random

from app.domain.policy import Policy
from app.domain.policy_file import parse_policy
from app.domain.simulation.engine import simulate
from app.domain.simulation.figures import Result
from app.domain.simulation.hooks import THIS_VERSION, Hooks
from app.domain.simulation.load_file import parse_load

ROOT = Path(__file__).resolve().parents[3]

HEAD = """
title = "a load"
[[pool]]
name = "main"
seats = {seats}
[[type]]
name = "urgent"
run = "5s"
timeout = "10s"
process = {{ contract_sla_seconds = 60 }}
[[type]]
name = "usual"
run = "10s"
timeout = "30s"
"""


def shipped() -> Policy:
    return parse_policy((ROOT / "policy.toml").read_text())


def full() -> Policy:
    return parse_policy((ROOT / "app" / "scenarios" / "full_policy.toml").read_text())


def run(
    tables: str, *, seats: int = 10, hours: float = 1.0, policy: Policy | None = None, seed: int = 1,
    hooks: Hooks = THIS_VERSION,
) -> Result:  # fmt: skip
    """Run a load that has the types `urgent` (critical, 5 s) and `usual` (common, 10 s), and these tables."""
    load = parse_load(HEAD.format(seats=seats) + tables)
    return simulate(policy or shipped(), load, Random(seed), hours=hours, hooks=hooks)
