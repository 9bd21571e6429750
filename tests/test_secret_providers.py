"""Where the values of secrets come from, and that no text shows them afterwards."""

import sys
import time
from pathlib import Path

import pytest

from app.secret_providers import SecretMissing, SecretProviders, SecretUnavailable
from app.settings import SecretsSettings
from app.telemetry.logs import redacted


def providers(**settings: object) -> SecretProviders:
    return SecretProviders(SecretsSettings.model_validate({"environment_prefix": "T_SECRET_", **settings}))


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code, "{name}"]


async def test_the_environment_comes_before_the_files_and_those_before_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T_SECRET_A", "canary-of-env")
    for name in ("A", "B"):
        (tmp_path / name).write_text("canary-of-file\n")
    found = providers(directory=tmp_path, command=python("import sys; print('canary-of-' + sys.argv[1])"))

    assert await found.value("A") == "canary-of-env"
    assert await found.value("B") == "canary-of-file"
    assert await found.value("C") == "canary-of-C"


async def test_what_was_given_out_is_in_no_text(tmp_path: Path) -> None:
    value = "whsec_Q0FOQVJZQ0FOQVJZ\nsecond line \N{SNOWMAN} kanarienvogel\n"
    (tmp_path / "A").write_text(value)
    given = await providers(directory=tmp_path).value("A")

    assert given == value.removesuffix("\n")
    for text in (given, "Q0FOQVJZQ0FOQVJZ", "a kanarienvogel.", repr(given)):
        assert "Q0FOQVJZQ0FOQVJZ" not in redacted(text)
        assert "kanarienvogel" not in redacted(text)


@pytest.mark.parametrize(
    "name", ["", "../A", "/etc/passwd", "a/b", "a.b", "..", "-a", "1a", "a b", "a\0", "é", "a" * 65]
)
async def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "A").write_text("canary-value")
    (tmp_path / "inside").mkdir()

    with pytest.raises(SecretMissing, match="name should be"):
        await providers(directory=tmp_path / "inside").value(name)


async def test_a_missing_secret_says_where_it_could_be(tmp_path: Path) -> None:
    with pytest.raises(SecretMissing, match=r"T_SECRET_GONE.*DESPACHO_SECRETS__DIRECTORY"):
        await providers(directory=tmp_path).value("GONE")


@pytest.mark.parametrize("content", [b"", b"\n", b"abc", b"\xff\xfe\xfd\xfc\xfb", b"x" * 70_000])
async def test_what_cannot_be_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "A").write_bytes(content)

    with pytest.raises(SecretMissing, match="the secret A is"):
        await providers(directory=tmp_path).value("A")


async def test_a_file_that_cannot_be_read_may_be_readable_later(tmp_path: Path) -> None:
    (tmp_path / "A").mkdir()

    with pytest.raises(SecretUnavailable):
        await providers(directory=tmp_path).value("A")


@pytest.mark.parametrize(
    "command",
    [["/nonexistent/program"], python("print('canary-x'); raise SystemExit(3)"), python("print('x' * 10**8)")],
)
async def test_a_command_that_fails_is_unavailable_or_refused(command: list[str]) -> None:
    with pytest.raises((SecretUnavailable, SecretMissing)) as failed:
        await providers(command=command).value("A")

    assert "canary-x" not in failed.value.message


async def test_a_command_that_hangs_is_ended_with_its_children() -> None:
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    started = time.monotonic()

    with pytest.raises(SecretUnavailable, match="in time"):
        await providers(command=python(code), command_timeout_seconds=0.5).value("A")

    assert time.monotonic() - started < 10


async def test_the_command_is_asked_again_only_after_a_while(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    code = f"open({str(marks)!r}, 'a').write('x'); print('canary-value')"
    kept, fresh = (providers(command=python(code), command_cache_seconds=seconds) for seconds in (60, 1e-9))

    for _ in range(3):
        await kept.value("A")
    assert marks.read_text() == "x"
    await fresh.value("A")
    await fresh.value("A")
    assert marks.read_text() == "xxx"
