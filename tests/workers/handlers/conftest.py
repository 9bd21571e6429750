from tests.workers.llm.conftest import llm_database, world

__all__ = ["llm_database", "world"]
