import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.personal_data import is_card, is_iban, redact


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("write to ana.silva+x@mail.example.com now", "write to [mail] now"),
        ("a@b.co", "[mail]"),
        ("card 4111 1111 1111 1111.", "card [card]."),
        ("5500-0000-0000-0004", "[card]"),
        ("IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFF", "IBAN [iban] BIC COBADEFF"),
        ("PT50000201231234567890154", "[iban]"),
        ("+49 30 1234567", "[phone]"),
        ("call (555) 123-4567 or 555-123-4567", "call [phone] or [phone]"),
    ],
)
def test_personal_data_gives_its_place_to_its_kind(text: str, redacted: str) -> None:
    assert redact(text).text == redacted


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "DE88370400440532013000",
        "on 2024-01-15 and 15.01.2024",
        "total 1,234.56 of 10000000",
        "version 1.2.3",
        "0000 0000 0000 0000",
        "@decorator and a@b",
    ],
)
def test_what_fails_its_checksum_or_form_stays(text: str) -> None:
    assert redact(text).text == text


def test_checksums() -> None:
    assert is_card("4242424242424242")
    assert not is_card("4242424242424241")
    assert is_iban("GB82WEST12345698765432")
    assert not is_iban("GB82WEST1234569876543")


@settings(max_examples=200, deadline=None)
@given(
    st.text(
        st.one_of(st.characters(), st.sampled_from("@.+0123456789-() DEPT[]mail,")),
        max_size=80,
    )
)
def test_redacting_never_lengthens_never_fails_and_is_the_same_when_done_twice(text: str) -> None:
    once = redact(text).text

    assert len(once) <= len(text)
    assert redact(once).text == once
