import pytest

from app.telemetry.tracing import TraceContext, accept, child, logs_link, mint, parse, trace_id_of, trace_link

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (GOOD, 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-ff", 3),
        (f"cc-{TRACE}-{SPAN}-01", 1),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", 1),
    ],
)
def test_a_valid_traceparent_is_read(header: str, flags: int) -> None:
    assert parse(header) == TraceContext(TRACE, SPAN, flags)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01.",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01what",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"0x-{TRACE}-{SPAN}-01",
        f" {GOOD}",
        "00-٤bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ],
)
def test_an_invalid_traceparent_is_replaced(header: str | None) -> None:
    assert parse(header) is None

    minted = accept(header, "vendor=1")

    assert parse(minted.traceparent) == minted
    assert minted.trace_id != TRACE
    assert minted.tracestate is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("a=1 , ,\tb=2", "a=1,b=2"),
        ("tenant@vendor=x", "tenant@vendor=x"),
        ("a=1,a=2", None),
        ("A=1", None),
        ("a", None),
        ("a=", None),
        ("a=1=2", None),
        ("a=ü", None),
        ("a=1\r\nX-Evil: 1", None),
        ("", None),
        (",".join(f"k{number}=1" for number in range(33)), None),
        ("a=" + "x" * 600, None),
    ],
)
def test_a_tracestate_is_kept_as_it_came_or_dropped_alone(state: str, kept: str | None) -> None:
    context = parse(GOOD, state)

    assert context is not None
    assert context.tracestate == kept


def test_a_child_stays_in_the_trace_under_its_own_id() -> None:
    parent = TraceContext(TRACE, SPAN, 1, "a=1")

    step = child(parent)

    assert (step.trace_id, step.flags, step.tracestate) == (TRACE, 1, "a=1")
    assert step.span_id != SPAN
    assert parse(step.traceparent, step.tracestate) == step
    assert step.headers() == {"traceparent": step.traceparent, "tracestate": "a=1"}
    assert TraceContext(TRACE, SPAN).headers() == {"traceparent": GOOD}


def test_minted_traces_differ_and_are_valid() -> None:
    contexts = [mint() for _ in range(100)]

    assert len({context.trace_id for context in contexts}) == 100
    assert all(parse(context.traceparent) == context and context.sampled for context in contexts)


def test_links_are_filled_from_the_settings_templates() -> None:
    assert trace_link("https://traces/{trace_id}", GOOD) == f"https://traces/{TRACE}"
    assert trace_link("https://traces/{trace_id}", "nonsense") is None
    assert trace_link(None, GOOD) is None
    assert logs_link("https://logs?q={task_id}", "task_1&x=2") == "https://logs?q=task_1%26x%3D2"
    assert logs_link(None, "task_1") is None
    assert trace_id_of(GOOD) == TRACE
