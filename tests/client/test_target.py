"""Where a client goes and with which key: argument, environment, `.env`, profile; and what cannot be used."""

from pathlib import Path

import pytest

from app.client.errors import WrongConfiguration
from app.client.target import Target, choose_target


def profiles(folder: Path, text: str, mode: int = 0o600) -> None:
    """Write the user's profiles."""
    path = folder / "despacho" / "profiles.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's configuration directory with one profile, and nothing in the environment."""
    for name in ("DESPACHO_URL", "DESPACHO_KEY", "DESPACHO_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    profiles(tmp_path, '[here]\nurl = "https://here.test/"\nkey = "dsp_here"\n')
    return tmp_path


def shown(target: Target) -> tuple[str, str | None]:
    """Return a target with its key in the open."""
    return target.url, target.key.get_secret_value() if target.key else None


def test_flag_then_environment_then_file_then_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(choose_target(None, None, None)) == ("http://127.0.0.1:8000", None)
    (home / ".env").write_text("DESPACHO_URL=http://file.test\nDESPACHO_KEY=dsp_file\n")
    assert shown(choose_target(None, None, None)) == ("http://file.test", "dsp_file")
    monkeypatch.setenv("DESPACHO_URL", "http://environment.test")
    assert shown(choose_target(None, None, None)) == ("http://environment.test", "dsp_file")
    assert shown(choose_target("http://flag.test", "dsp_flag", None)) == ("http://flag.test", "dsp_flag")


def test_a_profile_that_is_asked_for_outranks_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESPACHO_URL", "http://environment.test")

    assert shown(choose_target(None, None, "here")) == ("https://here.test", "dsp_here")


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ('[here]\nkey = "dsp_x"\n', 0o644, "chmod 600"),
        ("[here\n", 0o600, "not TOML"),
        ('[there]\nkey = "dsp_x"\n', 0o600, "there are: there"),
        ('[here]\ntoken = "dsp_x"\n', 0o600, "url and key and nothing else"),
    ],
)
def test_a_bad_file_of_profiles_is_refused_without_its_keys(home: Path, text: str, mode: int, says: str) -> None:
    profiles(home, text, mode)

    with pytest.raises(WrongConfiguration, match=says) as refused:
        choose_target(None, None, "here")

    assert "dsp_x" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://host", "http:// or https://"),
        ("host:8000", "http:// or https://"),
        ("http://", "cannot be read"),
        ("http://host:port", "cannot be read"),
        ("http://host:99999", "cannot be read"),
        ("http://ho st/", "cannot be read"),
        ("https://ann:hidden-word@host", "no user and password"),
        ("https://host/?key=hidden-word", "before \\? and #"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_not_shown(home: Path, url: str, says: str) -> None:
    with pytest.raises(WrongConfiguration, match=says) as refused:
        choose_target(url)

    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize("key", ["hidden word", "hidden\nword", "hidden\u00e9word", "\x00hidden"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(home: Path, key: str) -> None:
    with pytest.raises(WrongConfiguration) as refused:
        choose_target(key=key)

    assert "hidden" not in str(refused.value)


def test_a_key_read_from_a_file_may_end_with_its_line(home: Path) -> None:
    assert shown(choose_target(key="dsp_k\n")) == ("http://127.0.0.1:8000", "dsp_k")


def test_no_repr_shows_a_key(home: Path) -> None:
    assert "dsp_hidden" not in repr(choose_target(key="dsp_hidden"))


def test_a_path_before_the_api_is_kept(home: Path) -> None:
    assert choose_target("https://host/despacho/").url == "https://host/despacho"
