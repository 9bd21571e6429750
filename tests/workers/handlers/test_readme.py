"""The receiver on the handlers' page works as it is printed there."""

import asyncio
import os
import re
import sys
import time
from pathlib import Path

import httpx

import workers.handlers
from app.outbound.signatures import secret_of, sign
from tests.support.eventually import eventually
from tests.support.ports import free_port

KEY = secret_of(b"k" * 32)


async def test_the_receiver_of_the_page_verifies_and_answers(tmp_path: Path) -> None:
    page = (Path(workers.handlers.__file__).parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    port = free_port()
    (tmp_path / "receiver.py").write_text(code.replace("9000", str(port)))
    environment = {**os.environ, "HOOK_KEY": KEY}
    receiver = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "receiver.py"), env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    body = b'{"prices": [3, 4]}'
    headers = sign([KEY], "task_1", int(time.time()), body)

    async def post(content: bytes) -> httpx.Response | None:
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                return await client.post(f"http://127.0.0.1:{port}/", content=content, headers=headers)
        except httpx.ConnectError:
            return None

    try:
        good = await eventually(lambda: post(body))
        forged = await post(b'{"prices": [300]}')
    finally:
        receiver.kill()
        await receiver.wait()

    assert good is not None and (good.status_code, good.json()) == (200, {"total": 7})
    assert forged is not None and forged.status_code == 401
