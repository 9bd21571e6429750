"""Despacho under the same protocol as its peers: submitted over HTTP, run by two worker processes started by its CLI.

One API process takes the batches (POST /v1/tasks/batch, 1,000 at a time); two worker processes run them, of which the
first also stands for the dispatcher's lead. PostgreSQL and RabbitMQ are those of the run.
"""

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence

from bench.http import Answer, Connection, encode
from bench.peers.base import Spec
from tests.support.ports import free_port

SLOTS = 256
TENANT = "bench"
READY_WITHIN_SECONDS = 30.0
_APP = ("{python}", "-m", "app")
_WORKER = (*_APP, "worker", "--slots", str(SLOTS))

SPEC = Spec(
    title="Despacho",
    settings=(
        f"1 API process, 2 worker processes of {SLOTS} slots, the first with the dispatcher; quorum queues; publisher "
        "confirms; acknowledged after the commit; attempts, history and results kept; fair release"
    ),
    batch="POST /v1/tasks/batch, 1,000 at a time over HTTP",
    worker_commands=((*_WORKER, "--with-dispatcher"), _WORKER),
    done_sql="SELECT count(*) FROM tasks WHERE status = 'done'",
    services=((*_APP, "api"),),
    environment=(
        ("DESPACHO_DATABASE_URL", "{database}"),
        ("DESPACHO_AMQP_URL", "{amqp}"),
        ("DESPACHO_TASK_MODULES", "bench.tasks"),
        ("DESPACHO_BOOTSTRAP_KEY", f"bench-{secrets.token_hex(16)}"),
        ("DESPACHO_API__PORT", str(free_port())),
        ("DESPACHO_API__HOST_DISPATCHER", "false"),
        ("DESPACHO_LOG_LEVEL", "WARNING"),
    ),
    uses_broker=True,
)


def setup() -> None:
    """Run the migrations."""
    subprocess.run([sys.executable, "-m", "app", "migrate"], check=True)


def port() -> int:
    return int(os.environ["DESPACHO_API__PORT"])


async def make_tenant(connection: Connection, admin: str) -> None:
    """Make the benchmark's tenant with the platform key `admin`."""
    tenant = {"tenant_id": TENANT, "name": "Benchmark"}
    _expect(await connection.request(encode("POST", "/v1/tenants", json.dumps(tenant).encode(), admin)), 201)


async def make_key(connection: Connection, admin: str) -> str:
    """Return a new key that may submit for the benchmark's tenant."""
    key = {"tenant_id": TENANT, "role": "submitter", "subject": "benchmark"}
    made = _expect(await connection.request(encode("POST", "/v1/keys", json.dumps(key).encode(), admin)), 201)
    return str(json.loads(made.body)["key"])


async def connect_when_ready() -> Connection:
    """Connect to the API process once it says that it is ready."""
    async with asyncio.timeout(READY_WITHIN_SECONDS):
        while True:
            try:
                connection = await Connection.open("127.0.0.1", port())
                if (await connection.request(encode("GET", "/readyz"))).status == 200:
                    return connection
                connection.close()
            except OSError:
                pass
            await asyncio.sleep(0.05)


def task(number: int | str, type_name: str = "bench_noop") -> dict[str, object]:
    return {"type": type_name, "input": {"number": number}}


class Producer:
    """Submits over one kept HTTP connection."""

    def __init__(self) -> None:
        self._type = os.environ.get("BENCH_TASK_TYPE", "bench_noop")

    async def open(self) -> None:
        self._connection = await connect_when_ready()
        admin = os.environ["DESPACHO_BOOTSTRAP_KEY"]
        await make_tenant(self._connection, admin)
        self._key = await make_key(self._connection, admin)

    async def send_one(self, number: int) -> None:
        body = json.dumps(task(number, self._type)).encode()
        await self._post("/v1/tasks", body)

    async def send_batch(self, numbers: Sequence[int]) -> None:
        body = json.dumps({"tasks": [task(number, self._type) for number in numbers]}).encode()
        await self._post("/v1/tasks/batch", body)

    async def _post(self, path: str, body: bytes) -> None:
        if self._connection.closed:
            self._connection = await Connection.open("127.0.0.1", port())
        _expect(await self._connection.request(encode("POST", path, body, self._key)), 202)

    async def close(self) -> None:
        self._connection.close()


def _expect(answer: Answer, status: int) -> Answer:
    if answer.status != status:
        raise RuntimeError(f"the API answered {answer.status} instead of {status}: {answer.body[:500]!r}")
    return answer
