"""The engine `llm` of `classify_document`: a model chooses one of the taxonomy's categories and quotes its reasons."""

from typing import Any

from app.domain.quotes import Quotable
from despacho import Document, TaskContext
from workers.handlers.classify_document.folding import LANGUAGE_SAMPLE_WORDS, guess_language, words_of
from workers.handlers.classify_document.scoring import MAX_EVIDENCE, MAX_SNIPPET_CHARACTERS
from workers.handlers.classify_document.taxonomy import UNKNOWN, Taxonomy
from workers.handlers.classify_document.verdict import Classification, ClassifyDocument, Evidence
from workers.handlers.llm_choices import check_choices, sum_tokens
from workers.llm.json_shape import JsonShape

PROMPT = "classify_document@1"


async def classify_by_model(ctx: TaskContext, asked: ClassifyDocument, taxonomy: Taxonomy) -> Classification:
    """Classify one document; its beginning counts, as much of it as one prompt holds."""
    settings = check_choices(ctx, asked.provider, asked.model)
    document = await (ctx.document(asked.document) if asked.document else ctx.filtered(asked.text or ""))
    read = document.text[: settings.chunk_characters]
    turn = await ctx.llm.exchange(
        PROMPT,
        returns=JsonShape(_schema(taxonomy), name="category"),
        provider=asked.provider,
        model=asked.model,
        variables={
            "categories": "\n".join(f"- {name}: {told}" for name, told in taxonomy.descriptions.items()),
            "document": Document(read, document.content_type),
        },
    )
    category = turn.value["category"]
    quotes = [one for one in turn.value["evidence"] if one.strip()][:MAX_EVIDENCE]
    evidence = _verified(read, quotes)
    tokens = sum_tokens([*turn.before, turn.answer])
    return Classification(
        category=category,
        score=0.0,
        confidence=round(len(evidence) / len(quotes), 3) if quotes and category != UNKNOWN else 0.0,
        language=guess_language(
            word.folded for word, _ in zip(words_of(read), range(LANGUAGE_SAMPLE_WORDS), strict=False)
        ),
        evidence=evidence,
        expected=asked.expected,
        consistent=None if asked.expected is None or category == UNKNOWN else category == asked.expected,
        alert=_alert(category, asked.expected, len(quotes), len(evidence)),
        engine="llm",
        taxonomy_version=taxonomy.version,
        characters=len(document.text),
        examined_characters=len(read),
        provider=turn.answer.provider,
        model=turn.answer.model,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        repairs=len(turn.before),
        filters=document.verdict.value,
    )


def _schema(taxonomy: Taxonomy) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "category": {"type": "string", "enum": [*taxonomy.categories, *({UNKNOWN} - set(taxonomy.categories))]},
            "evidence": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_EVIDENCE},
        },
        "required": ["category", "evidence"],
        "additionalProperties": False,
    }


def _verified(text: str, quotes: list[str]) -> list[Evidence]:
    """Keep the quotes that the document has."""
    quotable, title_ends = Quotable(text), len(text) - len(text.lstrip()) + len(text.lstrip().partition("\n")[0])
    kept = []
    for quote in dict.fromkeys(quotes):
        if quotable.has(quote):
            offset = text.find(quote)
            snippet = quote[:MAX_SNIPPET_CHARACTERS]
            kept.append(
                Evidence(
                    keyword=None,
                    snippet=snippet,
                    offset=max(offset, 0),
                    count=1,
                    in_title=0 <= offset < title_ends,
                    weight=0.0,
                    points=0.0,
                )
            )
    return kept


def _alert(category: str, expected: str | None, quoted: int, verified: int) -> str | None:
    said = []
    if expected is not None and category != expected:
        as_what = "of no known category" if category == UNKNOWN else category
        said.append(f"declared as {expected}, but the model reads it as {as_what}")
    if category != UNKNOWN and not verified:
        said.append("the model quotes nothing" if not quoted else "the document has none of the model's quotes")
    return "; ".join(said) or None
