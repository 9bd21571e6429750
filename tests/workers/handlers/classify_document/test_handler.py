import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.task_modules import load
from despacho import DeadLetter, TaskContext
from tests.support.contexts import a_context_of
from workers.handlers.classify_document import classify_document
from workers.handlers.classify_document.handler import own_taxonomies
from workers.handlers.classify_document.verdict import Classification, ClassifyDocument

INVOICE = "INVOICE\nInvoice number: 2026-117\nBill to: ACME\nAmount due: 1,200.00\nPayment terms: net 30\n"


def a_context(**inputs: bytes) -> TaskContext:
    async def read_input(tenant_id: str, ref: str) -> tuple[bytes, str]:
        if ref not in inputs:
            raise DeadLetter("missing_input", f"no input {ref}")
        return inputs[ref], "text/plain"

    return a_context_of("classify_document", read_input)


async def classify(
    text: str | None = None,
    *,
    document: bytes | None = None,
    expected: str | None = None,
    taxonomy: str = "default",
) -> Classification:
    asked = ClassifyDocument(
        text=text, document=None if document is None else "input_1", expected=expected, taxonomy=taxonomy
    )
    return await classify_document(a_context(input_1=document or b""), asked)


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DESPACHO_TAXONOMY_DIR", str(tmp_path))
    own_taxonomies.cache_clear()
    yield tmp_path
    own_taxonomies.cache_clear()


async def test_a_stored_document_is_classified_with_evidence() -> None:
    verdict = await classify(document=INVOICE.encode())

    assert (verdict.category, verdict.consistent, verdict.alert) == ("invoice", None, None)
    assert verdict.evidence[0].in_title
    assert verdict.confidence > 0.7


async def test_a_text_in_the_input_is_classified_the_same() -> None:
    assert await classify(INVOICE) == await classify(document=INVOICE.encode())


async def test_a_declaration_that_agrees_is_consistent() -> None:
    verdict = await classify(INVOICE, expected="invoice")

    assert (verdict.consistent, verdict.alert) == (True, None)


async def test_a_declaration_that_differs_raises_an_alert_that_names_both() -> None:
    verdict = await classify(INVOICE, expected="receipt")

    assert verdict.consistent is False
    assert verdict.alert is not None
    assert "declared as receipt" in verdict.alert
    assert "reads as invoice" in verdict.alert


async def test_a_text_that_shows_nothing_is_unknown_and_says_so_when_something_was_declared() -> None:
    verdict = await classify("xyzzy plugh", expected="invoice")

    assert (verdict.category, verdict.score, verdict.consistent, verdict.evidence) == ("unknown", 0.0, None, [])
    assert verdict.alert == "declared as invoice, but the text shows no known category"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n ",
        b"%PDF-1.4 abc",
        b"\x00\x01\x02\x03" * 100,
        "Fatura número 7 não paga".encode("latin-1"),
        "Invoice number 7".encode("utf-16"),
        b"PK\x03\x04rest",
    ],
)
async def test_what_is_no_text_is_a_corrupted_input(content: bytes) -> None:
    with pytest.raises(DeadLetter) as caught:
        await classify(document=content)

    assert caught.value.error_type == "corrupted_input"


@pytest.mark.parametrize("content", ["—…!?", "請求書", "\U0001f600" * 50, "a", "\ufeffx"])
async def test_a_text_without_known_words_is_unknown(content: str) -> None:
    assert (await classify(document=content.encode())).category == "unknown"


async def test_an_input_that_is_not_there_is_a_missing_input() -> None:
    with pytest.raises(DeadLetter) as caught:
        await classify_document(a_context(), ClassifyDocument(document="input_404"))

    assert caught.value.error_type == "missing_input"


async def test_a_document_of_25_mib_leaves_the_loop_free_and_tells_its_progress() -> None:
    context = a_context(input_1=b"Invoice number 7\n" + b"word " * (5 * 1024 * 1024))
    turns = 0
    running = asyncio.create_task(classify_document(context, ClassifyDocument(document="input_1")))

    while not running.done():
        turns += 1
        await asyncio.sleep(0)

    assert running.result().category == "invoice"
    assert running.result().examined_characters < running.result().characters
    assert turns > 50
    progress = context.take_progress()
    assert progress is not None
    assert 0.5 < progress[0] < 1.0


async def test_a_running_classification_can_be_cancelled() -> None:
    context = a_context(input_1=b"word " * 400_000)
    running = asyncio.create_task(classify_document(context, ClassifyDocument(document="input_1")))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not running.done()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"document": "input_1", "text": "x"},
        {"text": "x", "engine": "magic"},
        {"text": "x", "colour": "red"},
        {"text": "x", "taxonomy": "../other"},
        {"text": "x", "expected": "Not A Name"},
        {"document": ""},
        {"text": 7},
    ],
)
def test_a_wrong_input_does_not_validate(asked: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ClassifyDocument.model_validate(asked)


async def test_an_expected_category_that_the_taxonomy_lacks_is_an_invalid_payload() -> None:
    with pytest.raises(DeadLetter, match="it has invoice, receipt") as caught:
        await classify(INVOICE, expected="bill")

    assert caught.value.error_type == "invalid_payload"


async def test_an_own_taxonomy_is_chosen_by_name(own_directory: Path) -> None:
    (own_directory / "fruit.toml").write_text(
        '[taxonomy]\nversion = "f1"\n[category.apple]\ndescription = "x"\n'
        'keywords = [ { weight = 5, any = ["maçã"] } ]\n',
        encoding="utf-8",
    )

    verdict = await classify("Uma MACA", taxonomy="fruit", expected="apple")

    assert (verdict.category, verdict.taxonomy_version, verdict.consistent) == ("apple", "f1", True)


async def test_a_broken_own_taxonomy_is_an_invalid_payload_that_names_the_line(own_directory: Path) -> None:
    (own_directory / "broken.toml").write_text('[taxonomy]\nversion = "f1"\n\n[category.apple]\n', encoding="utf-8")

    with pytest.raises(DeadLetter, match=r"broken.toml, line 4: category apple has no description") as caught:
        await classify("x", taxonomy="broken")

    assert caught.value.error_type == "invalid_payload"


def test_it_is_loaded_as_a_built_in_task_type_with_schemas() -> None:
    declared = load(())["classify_document"]

    assert (declared.spec.max_attempts, declared.spec.timeout_seconds, declared.spec.cost_class) == (5, 600, "short")
    assert {"document", "text", "engine", "taxonomy", "expected"} <= set(declared.input_schema()["properties"])
    assert {"category", "evidence", "consistent", "alert"} <= set(declared.result_schema()["properties"])


async def test_the_result_is_exact_json() -> None:
    encoded = load(())["classify_document"].encode_result(await classify(INVOICE, expected="receipt"))

    assert Classification.model_validate_json(encoded).category == "invoice"
