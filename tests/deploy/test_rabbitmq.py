from app.settings import Settings
from tests.support.deploy_files import DEPLOY, at, compose, sequence
from tests.support.rabbitmq import RabbitNode


def shipped() -> dict[str, str]:
    """Return the lines of rabbitmq.conf by name."""
    lines = (DEPLOY / "rabbitmq" / "rabbitmq.conf").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


async def test_a_real_node_starts_with_the_shipped_configuration() -> None:
    # A disk with less than a gigabyte free would raise the alarm, and this test is about the names and values alone.
    node = RabbitNode(config={**shipped(), "disk_free_limit.absolute": "50MB"})
    try:
        await node.start()

        assert node.pid is not None
    finally:
        await node.close()


def test_both_sides_agree_on_the_heartbeat_and_long_deliveries_are_allowed() -> None:
    settings = Settings(_env_file=None)

    assert float(shipped()["heartbeat"]) == settings.broker.heartbeat_seconds
    assert float(shipped()["consumer_timeout"]) / 1000 > 2 * settings.worker.ack_after_settle_max_seconds


def test_the_files_are_mounted_where_rabbitmq_reads_them() -> None:
    mounts = [str(volume) for volume in sequence(compose(), "services", "rabbitmq", "volumes")]

    assert "./deploy/rabbitmq/rabbitmq.conf:/etc/rabbitmq/conf.d/20-despacho.conf:ro" in mounts
    assert "./deploy/rabbitmq/enabled_plugins:/etc/rabbitmq/enabled_plugins:ro" in mounts
    assert at(compose(), "services", "rabbitmq", "hostname") == "rabbitmq"
