import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.hidden_text import clean_controls, clean_hidden
from app.domain.input_filters import Verdict

ANY = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cf", "Cc", "Cs", "Mn", "Zl", "Zp"]),
        st.sampled_from(
            "\u200c\u200d\ufe0f\ufe00\U000e0041\U0001f3f4\U000e0067\U000e007f\u0628\u0915👩🔥9#漢\x1b[;m]\x07"
        ),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(ANY)
def test_cleaning_is_the_same_when_done_twice_and_never_lengthens(text: str) -> None:
    once = clean_hidden(clean_controls(text).text).text

    assert len(once) <= len(text)
    assert clean_controls(once).text == once
    assert clean_hidden(once).text == once
    once.encode()


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "Sm", "Zs"]), max_size=60))
def test_letters_digits_and_punctuation_stay_as_they_are(text: str) -> None:
    visible = "".join(one for one in text if one not in "\u115f\u1160\u3164\uffa0")

    assert clean_hidden(clean_controls(visible).text).text == visible


@pytest.mark.parametrize(
    "text",
    [
        "👨‍👩‍👧",
        "نمی‌خواهم",
        "क्‍ष",
        "1️⃣ ❤️ ☎️",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "葛󠄀",
        "a\tb\r\nc",
        "naïve café",
    ],
)
def test_what_writing_needs_stays(text: str) -> None:
    assert clean_hidden(clean_controls(text).text).text == text


@pytest.mark.parametrize(
    ("text", "cleaned", "kind", "verdict"),
    [
        ("pay\u200bpal", "paypal", "zero_width", Verdict.CLEANED),
        ("in\u00advoice", "invoice", "zero_width", Verdict.CLEANED),
        ("exe\u202efdp.txt", "exefdp.txt", "bidi", Verdict.FLAGGED),
        ("hi\U000e0068\U000e0069", "hi", "tag", Verdict.FLAGGED),
        ("a" + "\U000e0101" * 20, "a", "selector", Verdict.FLAGGED),
        ("a\ufe0fb", "ab", "selector", Verdict.CLEANED),
        ("a" + "\u200b\u200c" * 8 + "b", "ab", "zero_width", Verdict.FLAGGED),
    ],
)
def test_what_nobody_sees_goes_and_is_counted(text: str, cleaned: str, kind: str, verdict: Verdict) -> None:
    filtered = clean_hidden(text)

    assert (filtered.text, filtered.verdict) == (cleaned, verdict)
    assert filtered.findings[kind] >= 1
    assert filtered.spans[0].kind == kind


def test_a_byte_order_mark_is_no_finding() -> None:
    assert clean_hidden("\ufeffhello é").findings == {}


@pytest.mark.parametrize(
    ("text", "cleaned", "kind"),
    [
        ("a\0b", "ab", "nul"),
        ("a\x1b[31mred\x1b[0m", "ared", "escape"),
        ("a\x1b]0;title\x07b", "ab", "escape"),
        ("a\x08\x7f\x9fb", "ab", "control"),
        ("a\ud800b", "a\ufffdb", "surrogate"),
        ("a\uffffb", "ab", "noncharacter"),
        ("a\x0cb\u2028c\x85d", "a\nb\nc\nd", "line_separator"),
    ],
)
def test_controls_go_and_separators_become_line_feeds(text: str, cleaned: str, kind: str) -> None:
    filtered = clean_controls(text)

    assert filtered.text == cleaned
    assert set(filtered.findings) == {kind}
