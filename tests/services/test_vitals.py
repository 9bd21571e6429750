"""The vital signs of a process reach its metrics."""

from app.runtime import Runtime
from app.services.vitals import look, prepare_metrics
from tests.support.metrics import samples, value


async def test_every_process_tells_its_release_its_pools_and_what_it_reaches(runtime: Runtime) -> None:
    prepare_metrics(runtime)

    assert await look(runtime)

    metrics = runtime.metrics
    assert value(metrics, "despacho_database_up") == 1
    assert value(metrics, "despacho_broker_up") == 0
    assert value(metrics, "despacho_database_pool_size", pool="hot") == runtime.settings.database.hot_pool_size
    assert value(metrics, "despacho_database_pool_in_use", pool="general") == 0
    assert value(metrics, "despacho_log_lines_dropped") == 0
    assert len(samples(metrics)["despacho_build_info"]) == 1
