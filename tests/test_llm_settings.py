"""The settings of model providers: from the environment, wrong ones named without their values, keys hidden."""

import json
from pathlib import Path

import pytest

from app.llm_settings import ProviderSettings
from app.settings import SettingsError, load_settings
from app.telemetry import logs

GOOD = {"kind": "openai", "base_url": "http://127.0.0.1:8080/v1/", "model": "m"}


def test_providers_come_as_json_and_single_fields_as_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESPACHO_LLM__PROVIDERS", json.dumps({"local": GOOD}))
    monkeypatch.setenv("DESPACHO_LLM__PROVIDERS__LOCAL__MODEL", "other")

    settings = load_settings(_env_file=None).llm

    assert settings.providers["local"].base_url == "http://127.0.0.1:8080/v1"
    assert settings.providers["local"].model == "other"


@pytest.mark.parametrize(
    ("providers", "said"),
    [
        ({"p": GOOD | {"kind": "sk-CANARY"}}, "PROVIDERS__P__KIND"),
        ({"p": GOOD | {"base_url": "http://user:sk-CANARY@host/v1"}}, "PROVIDERS__P__BASE_URL"),
        ({"p": GOOD | {"base_url": "sk-CANARY"}}, "PROVIDERS__P__BASE_URL"),
        ({"p": GOOD | {"base_url": "http://host:99999999/sk-CANARY"}}, "PROVIDERS__P__BASE_URL"),
        ({"p": GOOD | {"api_key": "sk-CANARY", "api_key_env": "X"}}, "one of api_key"),
        ({"p": GOOD | {"fallback_on": ["sk-CANARY"]}}, "kinds of failures: rate_limit"),
        ({"p": GOOD | {"fallbacks": [{}]}}, "should name a model"),
        ({"p": GOOD | {"fallbacks": [{"provider": "sk-CANARY"}]}}, "one of the names in providers"),
        ({"p": GOOD | {"sk_field": 1}}, "PROVIDERS__P__SK_FIELD"),
        ({"p": {"api_key": "sk-CANARY"}}, "PROVIDERS__P__MODEL"),
        ({"p": GOOD | {"prices": {"m": {"input_usd_per_million_tokens": -1}}}}, "INPUT_USD_PER_MILLION_TOKENS"),
    ],
)
def test_a_wrong_provider_is_named_without_its_value(
    providers: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESPACHO_LLM__PROVIDERS", json.dumps(providers))

    with pytest.raises(SettingsError) as wrong:
        load_settings(_env_file=None)

    assert said in str(wrong.value) and "CANARY" not in str(wrong.value)


def test_keys_in_the_table_are_hidden_from_logs_and_from_print(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = GOOD | {"api_key": "plainwordkey", "headers": {"x-key": "anotherplainword"}}
    monkeypatch.setenv("DESPACHO_LLM__PROVIDERS", json.dumps({"p": provider}))
    settings = load_settings(_env_file=None)

    logs.redact_settings(settings)

    assert "plainword" not in repr(settings)
    assert "plainword" not in logs.redacted("said plainwordkey and anotherplainword")


def test_a_key_is_read_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("from-file\n")
    monkeypatch.setenv("TEST_KEY", "from-env")

    keys = [
        ProviderSettings.model_validate(GOOD | more).read_key()
        for more in ({}, {"api_key": "k"}, {"api_key_env": "TEST_KEY"}, {"api_key_file": str(tmp_path / "key")})
    ]

    assert keys == [None, "k", "from-env", "from-file"]
    for bad in ({"api_key_env": "TEST_NO_KEY"}, {"api_key_file": str(tmp_path / "no")}, {"api_key": "a\nb"}):
        with pytest.raises(LookupError):
            ProviderSettings.model_validate(GOOD | bad).read_key()
