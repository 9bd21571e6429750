from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workers.llm.streaming import EventReader

STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\nevent: ping\r\ndata: {}\r\n\r\n"
    b"data:one\ndata: two\n\nid: 7\nretry: 3\ndata:  \xe2\x82\xac \xff\r\r\nevent: lost\n\ndata: [DONE]"
)
EVENTS = [("ping", "{}"), ("", "one\ntwo"), ("", " € �"), ("", "[DONE]")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader, found = EventReader(), []
    bounds = [0, *sorted(cuts), len(STREAM)]
    for begin, end in pairwise(bounds):
        found += reader.feed(STREAM[begin:end])
    found += reader.feed(b"", final=True)

    assert found == EVENTS
