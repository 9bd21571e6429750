from pathlib import Path

import pytest

from app.settings import Settings
from tests.support.deploy_files import ROOT
from tests.support.env_example import names, render


def test_the_file_lists_every_setting_as_it_is_now() -> None:
    assert (ROOT / ".env.example").read_text() == render(), "run: python -m tests.support.env_example"


def test_every_setting_is_there_once_and_no_secret_has_a_value() -> None:
    listed = names()

    assert len(listed) == len(set(listed))
    assert {"DESPACHO_DATABASE_URL", "DESPACHO_METRICS_PORT", "DESPACHO_WORKER__LEASE_SECONDS"} <= set(listed)
    assert "DESPACHO_BOOTSTRAP_KEY=\n" in render()


def test_the_defaults_in_the_file_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line[1:] for line in render().splitlines() if line.startswith("#DESPACHO_")]
    (tmp_path / "env").write_text("\n".join(line for line in lines if not line.endswith("=")))
    for name in names():
        monkeypatch.delenv(name, raising=False)

    read = Settings(_env_file=tmp_path / "env")

    assert read == Settings(_env_file=None)


def test_units_are_named() -> None:
    text = render()

    assert "unit: seconds; above 0; default: 30.0\n#DESPACHO_WORKER__LEASE_SECONDS=30.0" in text
    assert "unit: bytes" in text
    assert "unit: days" in text
