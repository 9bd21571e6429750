"""The task type `classify_document`: what a document is, with the evidence for it. Here the engine `rules`.

Reading is cut in portions that take a few milliseconds, with a turn of the event loop between them: a large document
holds up neither heartbeats nor other tasks, and a cancel is seen at once.
"""

import asyncio
from functools import lru_cache
from pathlib import Path

from app.settings import load_settings
from despacho import DeadLetter, TaskContext, task_type
from workers.handlers.classify_document.model import classify_by_model
from workers.handlers.classify_document.reading import UnreadableTextError, check_readable
from workers.handlers.classify_document.scoring import Scan
from workers.handlers.classify_document.shelf import find_taxonomy
from workers.handlers.classify_document.taxonomy import Taxonomy, TaxonomyError
from workers.handlers.classify_document.verdict import Classification, ClassifyDocument, classification

_PORTIONS_PER_REPORT = 8


@task_type(
    "classify_document",
    description="Says what a document is (invoice, contract, licence, …), with the evidence; by keywords or a model.",
    max_attempts=5,
    timeout_seconds=600,
    cost_class="short",
)
async def classify_document(ctx: TaskContext, document: ClassifyDocument) -> Classification:
    """Classify one document. Dead-letters what retrying cannot mend: `corrupted_input`, `invalid_payload`."""
    taxonomy = _taxonomy(document)
    if document.engine == "llm":
        return await classify_by_model(ctx, document, taxonomy)
    text = await _text(ctx, document)
    scan = Scan(taxonomy, text)
    portions = 0
    while scan.advance():
        portions += 1
        if portions % _PORTIONS_PER_REPORT == 0:
            ctx.progress(scan.share_done, f"{scan.share_done:.0%} of {scan.examined_characters} characters")
        await asyncio.sleep(0)
    return classification(scan.scores(), taxonomy=taxonomy, expected=document.expected, characters=len(text))


def _taxonomy(document: ClassifyDocument) -> Taxonomy:
    try:
        taxonomy = find_taxonomy(document.taxonomy, own_taxonomies())
    except TaxonomyError as error:
        raise DeadLetter("invalid_payload", str(error)) from None
    if document.expected is not None and document.expected not in taxonomy.categories:
        raise DeadLetter(
            "invalid_payload",
            f"expected category {document.expected!r} is not in the taxonomy {document.taxonomy!r} "
            f"({taxonomy.version}); it has {', '.join(taxonomy.categories)}",
        )
    return taxonomy


async def _text(ctx: TaskContext, document: ClassifyDocument) -> str:
    if document.document is None:
        text = document.text or ""
    else:
        text = await ctx.input_text(document.document)
    try:
        check_readable(text)
    except UnreadableTextError as error:
        raise DeadLetter("corrupted_input", str(error)) from None
    return text


@lru_cache(maxsize=1)
def own_taxonomies() -> Path | None:
    """Return the directory of the user's own taxonomies, read from the settings once per process."""
    return load_settings().taxonomy_dir
