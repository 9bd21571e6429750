"""What an agent may take, and when it has taken it. Pure."""

from dataclasses import dataclass
from decimal import Decimal

from app.domain.llm import Tokens
from app.store.llm_usage import TaskSpending
from workers.handlers.agent.request import StopReason


class Stopped(Exception):
    """The agent's work ends here, for a reason that is no failure of anybody's."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one task may take. `strict_cost` says that it asked for its limit of money itself."""

    turns: int
    tokens: int
    cost_usd: Decimal
    seconds: float
    strict_cost: bool

    def met(
        self, spent: TaskSpending, expected: Tokens, expected_usd: Decimal | None, seconds: float
    ) -> StopReason | None:
        """Say which limit the next model call would pass, by its estimate; None where it may be made."""
        if seconds >= self.seconds:
            return "time_limit"
        if spent.input_tokens + spent.output_tokens + expected.input + expected.output > self.tokens:
            return "token_limit"
        if spent.cost_usd + (expected_usd or Decimal(0)) > self.cost_usd:
            return "cost_limit"
        return None

    def cannot_be_kept(self, spent: TaskSpending, expected_usd: Decimal | None) -> bool:
        """Say whether the task's own limit of money means nothing, as nobody knows the price."""
        return self.strict_cost and (expected_usd is None or spent.unpriced > 0)
