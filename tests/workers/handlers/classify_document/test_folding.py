import time

import pytest

from workers.handlers.classify_document.folding import fold, guess_language, spellings, words_of


def folded(text: str) -> list[str]:
    return [word.folded for word in words_of(text)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("RELATÓRIO", "relatorio"),
        ("Relato\u0301rio", "relatorio"),
        ("Straße", "strasse"),
        ("STRAẞE", "strasse"),
        ("İSTANBUL", "istanbul"),
        ("ılık", "ilik"),
        ("ﬁnal ofﬁce", "final office"),
        ("Ｉｎｖｏｉｃｅ", "invoice"),
        ("Œuvre Ærø Łódź", "oeuvre aero lodz"),
        ("ΣΊΣΥΦΟΣ", "σισυφοσ"),
        ("plain ASCII", "plain ascii"),
    ],
)
def test_folding_takes_away_case_accents_and_typography(written: str, expected: str) -> None:
    assert fold(written) == expected


def test_invisible_characters_do_not_break_a_word() -> None:
    assert folded("in\u200bvoice num\u00adber") == ["invoice", "number"]


def test_a_combining_accent_stays_inside_its_word() -> None:
    assert folded("nota\u0301vel cafe\u0301") == ["notavel", "cafe"]


def test_underscores_hyphens_and_apostrophes_separate_words() -> None:
    assert folded("invoice_number non-disclosure d'achat") == [
        "invoice",
        "number",
        "non",
        "disclosure",
        "d",
        "achat",
    ]


def test_offsets_point_into_the_text_as_given() -> None:
    text = "A ﬁne Straße, \U0001f600 Ｉｎｖｏｉｃｅ"

    words = list(words_of(text))

    assert [text[word.start : word.end] for word in words] == ["A", "ﬁne", "Straße", "Ｉｎｖｏｉｃｅ"]


def test_a_keyword_with_an_umlaut_has_both_its_spellings() -> None:
    assert spellings("Kündigung") == (("kundigung",), ("kuendigung",))
    assert spellings("invoice number") == (("invoice", "number"),)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The price of the goods is due within thirty days and is not subject to change.", "en"),
        ("O pagamento não foi feito e a sua fatura já venceu; os juros são pagos pelo cliente.", "pt"),
        ("El pago de las facturas se hará por transferencia y los gastos son para el cliente.", "es"),
        ("Le paiement des factures est à la charge du client et les frais sont pour vous.", "fr"),
        ("Die Rechnung ist nicht bezahlt und wird mit der Mahnung an den Kunden geschickt.", "de"),
        ("xyzzy 42", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_language_is_guessed_by_its_frequent_words(text: str, language: str) -> None:
    assert guess_language(folded(text)) == language


def test_words_made_of_endless_marks_take_linear_time() -> None:
    def seconds_for(repeats: int) -> float:
        start = time.perf_counter()
        folded("a\u0301" * repeats + "\u0301" * repeats)
        return time.perf_counter() - start

    seconds_for(1000)

    assert seconds_for(200_000) < 2.0
