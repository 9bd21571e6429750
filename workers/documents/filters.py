"""Running input filters: the named ones and a type's own, in their order, off the event loop."""

from collections.abc import Callable, Sequence
from typing import cast

from app.domain.errors import DeadLetter
from app.domain.hidden_text import clean_controls, clean_hidden
from app.domain.injection_marks import scan
from app.domain.input_filters import Filtered, Finding, InputFilter, Verdict, filter_name
from app.domain.personal_data import redact
from app.filter_settings import FilterSettings
from workers.calls import invoke
from workers.documents.presidio import PresidioRedactor

_SHORT = 20_000
_BEFORE_READING = ("size", "content_type")


class Filters:
    """The filters of one process."""

    def __init__(self, settings: FilterSettings, *, presidio: PresidioRedactor | None = None) -> None:
        self._settings = settings
        self._presidio = presidio or PresidioRedactor(settings.presidio_language, settings.presidio_min_score)
        self._named: dict[str, Callable[[str], Filtered]] = {
            "size": self._size,
            "content_type": Filtered,
            "control": clean_controls,
            "hidden": clean_hidden,
            "injection": self._injection,
            "pii": redact,
            "presidio": self._presidio.redact,
        }

    def look_at_bytes(self, filters: Sequence[str | InputFilter], content: bytes, media_type: str) -> list[Finding]:
        """Give what refuses a document before anything reads it."""
        found = []
        if "size" in filters and len(content) > self._settings.max_document_bytes:
            found.append(Finding("size", Verdict.REFUSED, {"bytes": len(content)}))
        if "content_type" in filters and not self._takes(media_type):
            found.append(Finding("content_type", Verdict.REFUSED, {"other_type": 1}))
        return found

    async def look_at_text(self, filters: Sequence[str | InputFilter], text: str) -> tuple[str, list[Finding]]:
        """Give the text as the filters leave it, and what each found. The first that refuses is the last to look."""
        findings = []
        for one in filters:
            filtered = await self._run(one, text)
            text = filtered.text
            if filtered.verdict is not Verdict.PASSED or filtered.findings:
                findings.append(
                    Finding(filter_name(one), filtered.verdict, filtered.findings, filtered.score, filtered.spans)
                )
            if filtered.verdict is Verdict.REFUSED:
                break
        return text, findings

    async def _run(self, one: str | InputFilter, text: str) -> Filtered:
        if isinstance(one, str):
            if len(text) <= _SHORT and one != "presidio":
                return self._named[one](text)
            return cast(Filtered, await invoke(self._named[one], text))
        name = filter_name(one)
        try:
            given = await invoke(one, text)
        except DeadLetter:
            raise
        except Exception as error:
            raise DeadLetter(
                "input_filter_failed", f"the input filter {name!r} failed ({type(error).__name__})"
            ) from None
        if isinstance(given, str):
            return Filtered(given, Verdict.PASSED if given == text else Verdict.CLEANED)
        if not isinstance(given, Filtered):
            raise DeadLetter(
                "input_filter_failed",
                f"the input filter {name!r} should return text or Filtered, not {type(given).__name__}",
            )
        return given

    def _takes(self, media_type: str) -> bool:
        kind = media_type.partition("/")[0]
        return any(one in ("*/*", media_type, f"{kind}/*") for one in self._settings.content_types)

    def _size(self, text: str) -> Filtered:
        if len(text) <= self._settings.max_characters:
            return Filtered(text)
        return Filtered(text, Verdict.REFUSED, {"characters": len(text)})

    def _injection(self, text: str) -> Filtered:
        return scan(
            text,
            flag_score=self._settings.injection_flag_score,
            refuse_score=self._settings.injection_refuse_score,
        )
