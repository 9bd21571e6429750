import pytest

from workers.handlers.classify_document.reading import UnreadableTextError, check_readable


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" \n\t\ufeff", "empty"),
        (" " * 5000, "empty"),
        ("%PDF-1.7\n%âãÏÓ", "a PDF file"),
        ("PK\x03\x04 word/document.xml", "ZIP archive or an Office file"),
        ("\x7fELF\x02\x01", "a program"),
        ("{\\rtf1 hello}", "RTF"),
        ("Invoice number 7".encode("utf-16-le").decode("utf-8"), "UTF-16"),
        ("\0" * 100, "UTF-16"),
        ("Fatura \udcc3\udca9 \udcff\udcfe", "another encoding"),
        ("\ufffd\ufffd caf\ufffd", "another encoding"),
        ("\x01\x02\x03 text", "binary"),
    ],
)
def test_what_is_no_text_is_refused_with_what_it_seems_to_be(text: str, says: str) -> None:
    with pytest.raises(UnreadableTextError, match=says):
        check_readable(text)


@pytest.mark.parametrize(
    "text",
    [
        "Invoice",
        "\ufeffInvoice",
        "a page\fanother page\r\n",
        "\x1b[1mbold\x1b[0m",
        "one stray \0 in a text that is long enough for it not to matter at all, as many exports have",
        "請求書 発票",
        "…—!",
        "\U0001f600",
    ],
)
def test_text_is_accepted_with_a_stray_character_too(text: str) -> None:
    check_readable(text)
