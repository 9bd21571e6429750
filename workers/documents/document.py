"""`ctx.document` and `ctx.filtered`: from bytes of unknown origin to a text that a prompt may have, as data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.errors import DeadLetter, OwnershipLost
from app.domain.input_filters import Finding, InputFilter, Verdict, filter_name, worst
from app.filter_settings import FilterSettings
from workers.attempt import Attempt
from workers.documents.extraction import Extractor, media_type
from workers.documents.filters import Filters
from workers.documents.record import FilterRecord

_SEVERAL = 100


@dataclass(frozen=True, slots=True)
class Document:
    """A filtered text. A prompt that gets one as a variable marks it as data; `pages` is there for a PDF.

    `findings` is what each filter found, in order; what passed without a finding is not in it.
    """

    text: str
    content_type: str = "text/plain"
    pages: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The strongest verdict of the filters: passed, cleaned or flagged."""
        return worst(self.findings)

    def __str__(self) -> str:
        return f"<document of {len(self.text)} characters>"


class Documents:
    """The documents of one process: where their text comes from, and who looks at it."""

    def __init__(self, settings: FilterSettings, record: FilterRecord | None = None) -> None:
        self._settings = settings
        self._record = record
        self._filters = Filters(settings)
        self._extractor = Extractor(settings)

    async def read(self, owner: Attempt, content: bytes, content_type: str) -> Document:
        """Make a document of the bytes of an input.

        Raises DeadLetter: `input_refused`, `corrupted_input`, `encrypted_input`, `no_text`, `document_too_large`,
        `unsupported_input`.
        """
        filters = self._chosen(owner)
        await self._refuse(owner, "document", self._filters.look_at_bytes(filters, content, media_type(content_type)))
        extracted = await self._extractor.extract(content, content_type)
        before = [Finding("markup", Verdict.CLEANED, dict(extracted.found))] if extracted.found else []
        text, findings = await self._look(owner, "document", extracted.text, filters, before)
        if not text.strip():
            raise DeadLetter("no_text", "nothing is left of the document's text once what is hidden is taken out")
        return Document(text, extracted.content_type, extracted.pages, tuple(findings))

    async def filtered(self, owner: Attempt, text: str, source: str) -> Document:
        """Make a document of a text. Raises DeadLetter (`input_refused`)."""
        text, findings = await self._look(owner, source, text, self._chosen(owner), [])
        return Document(text, findings=tuple(findings))

    def _chosen(self, owner: Attempt) -> Sequence[str | InputFilter]:
        declared = owner.spec.input_filters
        return self._settings.default if declared is None else declared

    async def _look(
        self, owner: Attempt, source: str, text: str, filters: Sequence[str | InputFilter], before: list[Finding]
    ) -> tuple[str, list[Finding]]:
        text, findings = await self._filters.look_at_text(filters, text)
        await self._refuse(owner, source, [*before, *findings])
        return text, [*before, *findings]

    async def _refuse(self, owner: Attempt, source: str, findings: Sequence[Finding]) -> None:
        """Write what was found into the task's history, and end the task where a filter refuses."""
        told = [one for one in findings if one.verdict is not Verdict.PASSED]
        if told and self._record is not None:
            detail = {
                "source": source[:_SEVERAL],
                "filters": {filter_name(one.filter): one.as_fact() for one in told},
            }
            if not await self._record.record(owner, worst(told).value, json.dumps(detail, sort_keys=True)):
                raise OwnershipLost
        for one in told:
            if one.verdict is Verdict.REFUSED:
                found = ", ".join(f"{kind} {count}" for kind, count in sorted(one.findings.items()))
                score = "" if one.score is None else f" with the score {one.score:g}"
                raise DeadLetter(
                    "input_refused", f"the input filter {one.filter!r} refuses it{score}: {found or 'no reason'}"
                )
