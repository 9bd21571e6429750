import time
from urllib.parse import quote

import pytest

from app.telemetry.redaction import HIDDEN, SECRET_NAME, Redactor


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer CANARY-token-1234",
        "authorization=Basic Q0FOQVJZ-CANARY",
        "{'Authorization': 'Bearer CANARY'}",
        '{"api_key": "CANARY with spaces", "x": 1}',
        "api-key=CANARY",
        "password: CANARY!",
        "passwd='CANARY",
        "postgresql://despacho:CANARY@db:5432/x",
        "amqp://user:p@CANARY/ss@rabbit/",
        "redis://:CANARY@cache",
        "https://CANARY@host/path",
        "GET /x?token=CANARY&page=2",
        "GET /x?a=1&sig=CANARY",
        "key sk-CANARY-1 refused",
        "dsp_CANARYCANARYCANARY",
        "xoxb-CANARY-123",
        "AKIACANARY00EXAMPLE1",
        "eyJDQU5BUlk.CANARY.CANARY",
        "-----BEGIN RSA PRIVATE KEY-----\nCANARY\n-----END RSA PRIVATE KEY-----",
        "set-cookie: CANARY; path=/",
        "mail to CANARY@example.com now",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    assert "CANARY" not in Redactor()(text)


@pytest.mark.parametrize(
    "text",
    [
        "connection to db:5432 refused",
        "task task_01JZ8W4W9GZK4K2GZ7Q2ABCD12 took 3 attempts",
        "input_tokens: 1840, output_tokens: 312",
        "https://example.com/a/b?page=2",
        "rate_limit",
        "effect_key=create_ticket",
        "risk-free and desk-bound words",
        "",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor()(text) == text


@pytest.mark.parametrize("secret", ["hunter2+/=", "pä ss", 'quo"te', "amqp://u:deep%40secret@h/", "line\nbreak"])
def test_a_registered_value_is_hidden_in_every_spelling(secret: str) -> None:
    redact = Redactor()
    redact.register(secret)

    shown = redact(f"<{secret}> <{quote(secret, safe='')}>")

    assert shown.replace(HIDDEN, "").strip("<> ") == ""


def test_the_password_of_a_registered_url_is_hidden_alone_too() -> None:
    redact = Redactor()
    redact.register("postgresql://despacho:deep%40secret@db/x")

    assert redact("login deep@secret or deep%40secret failed") == f"login {HIDDEN} or {HIDDEN} failed"


def test_values_too_short_to_be_secrets_shred_nothing() -> None:
    redact = Redactor()
    redact.register("a")
    redact.register("")

    assert redact("a banana") == "a banana"


def test_long_text_is_cut_and_a_secret_at_the_cut_does_not_show_its_first_half() -> None:
    redact = Redactor()
    redact.register("SECRETSECRETSECRET")

    shown = redact("x" * 95 + "SECRETSECRETSECRET", 100)

    assert len(shown) == 101
    assert "SECRET" not in shown


@pytest.mark.parametrize(
    "unit", ["a", "://", "eyJ-", "a.b-", "password=", "://a:", "token='", 'key: "x', "bearer ", "@", "\ud800"]
)
def test_no_text_makes_it_slow(unit: str) -> None:
    started = time.perf_counter()

    Redactor()(unit * 200_000)

    assert time.perf_counter() - started < 1.0


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("api_key", True),
        ("llm_token", True),
        ("key", True),
        ("input_tokens", False),
        ("effect_key", False),
    ],
)
def test_the_names_of_secret_fields(name: str, secret: bool) -> None:
    assert bool(SECRET_NAME.search(name)) is secret
