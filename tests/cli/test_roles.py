"""The roles as processes of their own, on a private PostgreSQL and RabbitMQ, and the commands that look after them."""

import json

import asyncpg

from tests.cli.terminal import KEY, shell
from tests.support.ports import free_ports
from tests.support.postgres import PrivatePostgres
from tests.support.processes import RoleProcess
from tests.support.rabbitmq import RabbitNode


async def test_api_worker_and_dispatcher_do_a_task_together_and_drain(database_url: str, rabbit: RabbitNode) -> None:
    port, metrics_port = free_ports(2)
    environment = {
        "DESPACHO_DATABASE_URL": database_url, "DESPACHO_AMQP_URL": rabbit.url, "DESPACHO_BOOTSTRAP_KEY": KEY,
        "DESPACHO_BROKER__QUEUE_PREFIX": "roles",
    }  # fmt: skip
    roles = [
        RoleProcess(["api", "--port", str(port), "--without-dispatcher"], environment),
        RoleProcess(
            ["worker", "--slots", "2", "--pool", "two"], {**environment, "DESPACHO_METRICS_PORT": str(metrics_port)}
        ),
        RoleProcess(["dispatcher"], environment),
    ]
    await roles[0].says("The API is served on", within_seconds=60)
    url = f"http://127.0.0.1:{port}"

    ended = await shell(
        """despacho tasks submit --type classify_document --input '{"text": "invoice, total due"}' --wait -o json""",
        {"DESPACHO_URL": url, "DESPACHO_KEY": KEY},
    )
    figures = await shell(f"curl -sS http://127.0.0.1:{metrics_port}/metrics")
    doctor = await shell("despacho doctor -o json", environment)

    assert json.loads(ended.out)["status"] == "done", ended.err
    assert "despacho_" in figures.out
    findings = {one["subject"]: one for one in json.loads(doctor.out)}
    assert findings["database: revision"]["state"] == "ok"
    assert findings["broker: queues"]["state"] == "ok", findings["broker: queues"]
    assert findings["database: replication"]["state"] == "warn"
    assert [await role.stop() for role in roles] == [0, 0, 0]
    assert all(KEY not in role.output() for role in roles)


async def test_a_worker_with_a_class_that_the_policy_lacks_is_wrong_usage(
    database_url: str, rabbit: RabbitNode
) -> None:
    environment = {"DESPACHO_DATABASE_URL": database_url, "DESPACHO_AMQP_URL": rabbit.url}

    ended = await shell("despacho worker --classes common,urgent", environment)

    assert ended.code == 2
    assert "urgent; there are critical, short_deadline, common, deferrable" in ended.err


async def test_an_empty_database_is_refused_until_it_is_migrated(postgres: PrivatePostgres) -> None:
    url = await postgres.create_database(migrated=False)
    environment = {"DESPACHO_DATABASE_URL": url, "DESPACHO_AMQP_URL": "amqp://guest:guest@127.0.0.1:1/"}

    refused = await shell("despacho dispatcher", environment)
    migrated = await shell("despacho migrate && despacho migrate", environment)

    assert refused.code == 1
    assert "run `despacho migrate`" in refused.err
    assert "Traceback" not in refused.err
    assert migrated.code == 0, migrated.err
    assert migrated.out.splitlines()[1].endswith("as it was")
    await postgres.drop_database(url)


async def test_a_database_of_a_newer_release_is_left_alone(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.close()

    ended = await shell("despacho migrate", {"DESPACHO_DATABASE_URL": database_url})

    assert ended.code == 1
    assert "9999, which this release" in ended.err


async def test_a_migration_that_cannot_have_a_lock_says_that_running_it_again_is_safe(database_url: str) -> None:
    environment = {"DESPACHO_DATABASE_URL": database_url, "DESPACHO_MIGRATION_LOCK_TIMEOUT_SECONDS": "0.2"}
    reader = await asyncpg.connect(database_url)
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetch("SELECT count(*) FROM tasks")

    blocked = await shell("despacho migrate --to base --yes", environment)
    await transaction.rollback()
    await reader.close()
    unsure = await shell("despacho migrate --to base", environment)
    back, again = [await shell(f"despacho migrate{how}", environment) for how in (" --to base --yes", "")]

    assert blocked.code == 1
    assert "running `despacho migrate` again is safe" in blocked.err
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    assert (back.code, again.code) == (0, 0), back.err + again.err


async def test_two_processes_with_brokers_of_their_own_do_not_share_a_database(database_url: str) -> None:
    environment = {"DESPACHO_DATABASE_URL": database_url, "DESPACHO_BOOTSTRAP_KEY": KEY}
    first = RoleProcess(["up", "--port", "0"], environment)
    await first.says("Ctrl-C stops.", within_seconds=60)

    second = await shell("despacho up --port 0", environment)

    assert second.code == 1
    assert "another `despacho up`" in second.err
    assert await first.stop() == 0
