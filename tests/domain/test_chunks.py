import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.chunks import cut


@given(st.text(alphabet="ab .\n", max_size=300), st.integers(5, 60), st.integers(0, 30))
def test_parts_cover_the_text_and_none_is_too_long(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, max(0, size // 2 - 1))
    parts = cut(text, size, overlap)

    assert all(len(part) <= size for part in parts)
    assert parts[0] == text[: len(parts[0])]
    assert text.endswith(parts[-1])
    assert "".join(parts) == text or overlap > 0
    assert sum(map(len, parts)) >= len(text)


def test_a_part_ends_at_a_paragraph_where_there_is_one() -> None:
    assert cut("one two\n\nthree four", 10) == ["one two\n\n", "three four"]


def test_an_overlap_of_half_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        cut("x", 10, 5)
