"""The public names: all there, and neither side pays for the other."""

import subprocess
import sys
from pathlib import Path

import pytest

import despacho

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("line", "not_loaded"),
    [
        ("import despacho", {"httpx", "pydantic", "msgspec", "workers", "app"}),
        ("from despacho import Client", {"pydantic", "workers", "fastapi", "sqlalchemy", "asyncpg"}),
        ("from despacho import TaskContext, task_type; task_type('a')", {"fastapi", "uvicorn", "mcp", "a2a"}),
    ],
)
def test_a_name_loads_only_its_own_side(line: str, not_loaded: set[str]) -> None:
    program = f"{line}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"

    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()

    assert not_loaded & set(loaded) == set()


def test_every_public_name_is_there() -> None:
    assert [name for name in despacho.__all__ if getattr(despacho, name, None) is None] == []
    assert set(despacho.__all__) <= set(dir(despacho))


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clientt'"):
        despacho.Clientt  # noqa: B018 - the access is the test
