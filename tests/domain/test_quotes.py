import pytest

from app.domain.quotes import Quotable

TEXT = "Invoice  No.\n2026-117\nTotal: “1.200,00 €” – due ﬁrst of May"


@pytest.mark.parametrize(
    "quote", ["invoice no. 2026-117", 'Total: "1.200,00 €" - due', "first of May", '"Invoice No."', "7"]
)
def test_a_quote_is_found_whatever_its_spacing_and_case(quote: str) -> None:
    assert Quotable(TEXT).has(quote)


@pytest.mark.parametrize("quote", ["Total: 1.300,00", "", "   ", '""', "...", "2026-118"])
def test_what_is_not_there_or_says_nothing_is_no_quote(quote: str) -> None:
    assert not Quotable(TEXT).has(quote)
