"""The client against answers that are made up here: paging, patience, errors as texts."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.cli.client import ApiRefused, Client
from app.cli.ending import CommandFailed, WrongUsage
from app.cli.profiles import Target, choose_target

PROBLEM = {"content-type": "application/problem+json"}


def a_client(answer: Callable[[httpx.Request], httpx.Response], *, key: str | None = "dsp_k") -> Client:
    """Make a client whose requests are answered by a function."""
    target = Target("http://despacho.test", SecretStr(key) if key else None)
    return Client(target, patience_seconds=1.0, transport=httpx.MockTransport(answer))


def test_a_list_is_read_page_by_page_until_it_ends() -> None:
    pages = {None: ([1, 2], "b"), "b": ([3], None)}

    def answer(request: httpx.Request) -> httpx.Response:
        items, token = pages[request.url.params.get("page_token")]
        return httpx.Response(200, json={"items": items, "next_page_token": token})

    assert list(a_client(answer).pages("/v1/tasks")) == [1, 2, 3]


def test_no_more_is_asked_for_than_is_wanted() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["page_size"])
        return httpx.Response(200, json={"items": [1, 2], "next_page_token": "more"})

    assert list(a_client(answer).pages("/v1/tasks", at_most=2)) == [1, 2]
    assert asked == ["2"]


def test_what_is_temporary_is_waited_out() -> None:
    answers = iter([httpx.Response(503, headers={"retry-after": "0"}), httpx.Response(200, json={"task_id": "task_1"})])

    assert a_client(lambda _: next(answers)).get("/v1/tasks/task_1") == {"task_id": "task_1"}


def test_patience_ends() -> None:
    busy = httpx.Response(503, headers={"retry-after": "5", **PROBLEM}, json={"title": "Busy", "retryable": True})

    with pytest.raises(ApiRefused, match="Busy") as refused:
        a_client(lambda _: busy).get("/v1/tasks")

    assert "it may work again in 5 s" in str(refused.value)


def test_a_problem_is_told_with_title_detail_and_pointers() -> None:
    body = {
        "title": "Does not validate", "detail": "See errors.", "status": 422, "code": "invalid_payload",
        "errors": [{"pointer": "#/input/n", "detail": "should be a number"}],
    }  # fmt: skip

    with pytest.raises(ApiRefused) as refused:
        a_client(lambda _: httpx.Response(422, headers=PROBLEM, json=body)).post("/v1/tasks", {})

    assert str(refused.value) == "Does not validate: See errors.\n  #/input/n: should be a number"
    assert (refused.value.status, refused.value.code) == (422, "invalid_payload")


def test_without_a_key_a_401_says_where_to_put_one() -> None:
    body = {"title": "No valid key"}

    with pytest.raises(ApiRefused, match="DESPACHO_KEY"):
        a_client(lambda _: httpx.Response(401, headers=PROBLEM, json=body), key=None).get("/v1/tasks")


@pytest.mark.parametrize("status", [200, 404])
def test_a_stranger_at_the_address_is_recognised(status: int) -> None:
    with pytest.raises(CommandFailed):
        a_client(lambda _: httpx.Response(status, text="<html>")).get("/v1/tasks")


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

    with pytest.raises(WrongUsage, match=says) as refused:
        choose_target(None, None, "here")

    assert "dsp_x" not in str(refused.value)
