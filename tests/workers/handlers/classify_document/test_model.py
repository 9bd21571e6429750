"""The engine `llm` on a real database, with a model that the test scripts."""

import json
from typing import Any

import pytest

from app.domain.llm import LlmFailure
from tests.support.documents import a_reader
from tests.support.llm_provider import Say
from tests.support.pdf import a_pdf
from tests.workers.llm.worlds import LlmWorld
from workers.handlers.classify_document import classify_document
from workers.handlers.classify_document.verdict import Classification, ClassifyDocument

INVOICE = "INVOICE 2026-117\nBill to: ACME\nAmount due: 1,200.00\n"


def verdict(category: str, *quotes: str) -> Say:
    return Say(text=json.dumps({"category": category, "evidence": quotes}))


async def classified(world: LlmWorld, *says: Say, **given: Any) -> Classification:
    world.provider.queue = list(says)
    context = await a_reader(world, {"input_1": (a_pdf([INVOICE]), "application/pdf")})
    source = {} if "document" in given else {"text": INVOICE}
    return await classify_document(context, ClassifyDocument(engine="llm", **source, **given))


async def test_a_model_chooses_among_the_categories_and_its_quotes_are_checked(world: LlmWorld) -> None:
    result = await classified(world, verdict("invoice", "amount  due", "pay now or else", "INVOICE 2026-117"))

    assert (result.category, result.engine, result.alert) == ("invoice", "llm", None)
    assert [one.snippet for one in result.evidence] == ["amount  due", "INVOICE 2026-117"]
    assert result.evidence[1].in_title
    assert result.confidence == round(2 / 3, 3)
    assert "- invoice: A demand for payment" in world.provider.requests[0]["messages"][-1]["content"]


async def test_a_pdf_is_classified(world: LlmWorld) -> None:
    assert (await classified(world, verdict("invoice", "Bill to"), document="input_1")).category == "invoice"


async def test_a_category_that_does_not_exist_is_repaired_once(world: LlmWorld) -> None:
    result = await classified(world, verdict("bill"), verdict("receipt"), expected="invoice")

    assert (result.category, result.consistent, result.repairs) == ("receipt", False, 1)
    assert result.alert == ("declared as invoice, but the model reads it as receipt; the model quotes nothing")


async def test_a_model_that_insists_is_an_invalid_output(world: LlmWorld) -> None:
    with pytest.raises(LlmFailure) as failed:
        await classified(world, verdict("bill"), verdict("bill"))

    assert failed.value.error_type == "invalid_output"


async def test_unknown_is_an_answer(world: LlmWorld) -> None:
    result = await classified(world, verdict("unknown"))

    assert (result.category, result.confidence, result.consistent, result.alert) == ("unknown", 0.0, None, None)


async def test_the_engine_rules_stays_the_default_and_asks_no_model(world: LlmWorld) -> None:
    result = await classify_document(await a_reader(world), ClassifyDocument(text=INVOICE))

    assert (result.engine, result.category, world.provider.calls) == ("rules", "invoice", 0)
