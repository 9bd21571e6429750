"""The task type `extract_fields`: from a document to JSON by a given schema, with quotes that are checked.

A long document is read in parts. What the parts have said is checkpointed, and each model call is a step: whatever
interrupts the task, no part is paid for twice.
"""

from typing import Any

from app.domain.answer_schemas import leaves, may_be_missing
from app.domain.chunks import cut
from app.domain.llm import LlmFailure
from app.domain.quotes import Quotable
from app.llm_settings import LlmSettings
from despacho import DeadLetter, Document, TaskContext, task_type
from workers.handlers.extract_fields.form import ExtractFields, Extraction, Quote
from workers.handlers.extract_fields.merging import (
    QUOTES,
    evidence_of,
    is_complete,
    merged,
    missing_in,
    without_missing,
)
from workers.handlers.llm_choices import check_choices, sum_tokens
from workers.llm.calls import Turn
from workers.llm.json_shape import JsonShape, misfits

PROMPT = "extract_fields@1"
_OVERLAP = 0.05
_START: dict[str, Any] = {
    "next": 0, "fields": {}, "evidence": {}, "input_tokens": 0, "output_tokens": 0, "repairs": 0, "by": ["", ""],
}  # fmt: skip


@task_type(
    "extract_fields",
    description="Takes fields out of a document (text, HTML, PDF) by a JSON schema, with quotes that are checked.",
    max_attempts=5,
    timeout_seconds=1800,
    cost_class="long",
)
async def extract_fields(ctx: TaskContext, asked: ExtractFields) -> Extraction:
    """Take the fields out. Dead-letters what retrying cannot mend; see the README for the error types."""
    settings = check_choices(ctx, asked.provider, asked.model)
    document = await (ctx.document(asked.document) if asked.document else ctx.filtered(asked.text or ""))
    parts = _parts(document, settings)
    shape = _shape(asked.fields_schema)
    reached = dict(ctx.state or _START)
    while reached["next"] < len(parts):
        place = reached["next"]
        turn = await _ask(ctx, asked, shape, parts[place], f"part {place + 1} of {len(parts)}")
        reached = _further(asked.fields_schema, reached, turn, parts[place])
        if is_complete(asked.fields_schema, reached["fields"], reached["evidence"]):
            break
        if len(parts) > 1:
            await ctx.checkpoint(reached)
            ctx.progress(reached["next"] / len(parts), f"part {reached['next']} of {len(parts)}")
    return _extraction(asked.fields_schema, document, reached, len(parts))


def _parts(document: Document, settings: LlmSettings) -> list[Document]:
    size = settings.chunk_characters
    parts = cut(document.text, size, int(size * _OVERLAP))
    if len(parts) > settings.max_chunks:
        raise DeadLetter(
            "document_too_large",
            f"the document would be read in {len(parts)} parts of {size} characters; at most {settings.max_chunks} are "
            "read (DESPACHO_LLM__MAX_CHUNKS, DESPACHO_LLM__CHUNK_CHARACTERS)",
        )
    return [Document(part, document.content_type) for part in parts]


def _shape(schema: dict[str, Any]) -> JsonShape:
    wanted = {
        "type": "object",
        "properties": {"fields": may_be_missing(schema), "evidence": QUOTES},
        "required": ["fields", "evidence"],
        "additionalProperties": False,
    }
    return JsonShape(wanted, name="form")


async def _ask(ctx: TaskContext, asked: ExtractFields, shape: JsonShape, part: Document, which: str) -> Turn:
    return await ctx.llm.exchange(
        PROMPT,
        returns=shape,
        provider=asked.provider,
        model=asked.model,
        variables={
            "document": part,
            "instructions": asked.instructions or "Take the fields out of the document.",
            "language": asked.language or "as the document",
            "part": which,
        },
    )


def _further(schema: dict[str, Any], reached: dict[str, Any], turn: Turn, part: Document) -> dict[str, Any]:
    """Give the state after one more part."""
    evidence = evidence_of(schema, turn.value["evidence"], Quotable(part.text))
    fields, evidence = merged(schema, reached["fields"], reached["evidence"], turn.value["fields"], evidence)
    read, written = sum_tokens([*turn.before, turn.answer])
    return {
        "next": reached["next"] + 1,
        "fields": fields,
        "evidence": evidence,
        "input_tokens": reached["input_tokens"] + read,
        "output_tokens": reached["output_tokens"] + written,
        "repairs": reached["repairs"] + len(turn.before),
        "by": [turn.answer.provider, turn.answer.model],
    }


def _extraction(schema: dict[str, Any], document: Document, reached: dict[str, Any], parts: int) -> Extraction:
    fields = reached["fields"]
    if found := misfits(may_be_missing(schema), fields):
        raise LlmFailure("invalid_output", f"what the parts say together does not fit: {'; '.join(found)[:1000]}")
    missing, required = missing_in(schema, fields)
    gone = set(missing)
    quotes = {place: Quote(**one) for place, one in reached["evidence"].items() if place not in gone}
    present = [place for place, _ in leaves(schema) if place not in gone]
    return Extraction(
        fields=without_missing(schema, fields),
        missing=missing,
        missing_required=required,
        evidence={place: quotes.get(place) or Quote(quote=None, verified=False) for place in present},
        unverified=[place for place in present if place not in quotes or not quotes[place].verified],
        pages=document.pages,
        characters=len(document.text),
        parts=reached["next"],
        parts_in_all=parts,
        provider=reached["by"][0],
        model=reached["by"][1],
        input_tokens=reached["input_tokens"],
        output_tokens=reached["output_tokens"],
        repairs=reached["repairs"],
        filters=document.verdict.value,
    )
