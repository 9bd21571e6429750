"""Processes of crash tests do what the tests ask of them."""

import pytest

from tests.support.eventually import eventually
from tests.support.processes import RoleProcess

_TICKS = "import time\nfor n in range(10**6): print('{\"tick\": %d}' % n); time.sleep(0.005)"


async def test_a_process_is_frozen_thawed_and_ended_on_demand() -> None:
    process = RoleProcess(["-c", _TICKS])
    await process.says('{"tick": 3}')

    process.freeze()
    seen = len(process.log_lines())
    process.thaw()
    await eventually(lambda: len(process.log_lines()) > seen + 3)

    assert process.log_lines()[2] == {"tick": 2}
    assert await process.stop() == -15


async def test_a_process_that_ends_too_early_is_told_with_its_output() -> None:
    process = RoleProcess(["-c", "print('no luck'); raise SystemExit(3)"])

    with pytest.raises(RuntimeError, match=r"(?s)ended with 3 .*no luck"):
        await process.says("ready")
    await process.kill()
