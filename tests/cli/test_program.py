"""Arguments and exit codes, in this process."""

import re

import pytest
from typer.testing import CliRunner

from app.cli.program import program, run
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Run every command where no setting and no `.env` is."""
    import os

    for name in [name for name in os.environ if name.startswith("DESPACHO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def help_of(*command: str) -> str:
    """Return a command's help, without its line ends."""
    answer = CliRunner().invoke(program, [*command, "--help"])
    assert answer.exit_code == 0
    return re.sub(r"\s+", " ", answer.output)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("tasks submit", "Missing option '--type'"),
        ("tasks submit --type t --input {", "--input: not JSON (line 1, column 2)"),
        ("tasks submit --type t --input @missing.json", "missing.json: No such file"),
        ("tasks submit --type t --metadata novalue", "name=value"),
        ("tasks cancel", "name either ids or filters"),
        ("tasks cancel task_1 --type t", "not both"),
        ("tasks cancel --type t", "--reason"),
        ("tasks events task_1 -o ids", "take table or json"),
        ("tasks list -o xml", "'table', 'json', 'ids'"),
        ("tasks list --profile nobody", "there is no profile 'nobody'"),
        ("tasks list --url ftp://x", "http:// or https://"),
        ("dlq reprocess --reason r", "name one of these"),
        ("dlq reprocess task_1 --reason r --dry-run", "go with filters"),
        ("dlq purge --reason r", "--all"),
        ("dlq purge --reason r --all --type t", "--all"),
        ("approvals deny appr_1", "Missing option '--comment'"),
        ("approvals approve", "Missing argument 'ID…'"),
        ("approvals list -o xml", "'table', 'json', 'ids'"),
        ("effects resolve --outcome confirmed --reason r", "ID"),
        ("effects resolve effect_1 --outcome maybe --reason r", "'confirmed', 'not_sent'"),
        ("effects resolve effect_1 --outcome not_sent --reason r --external-id x", "--external-id goes with"),
        ("effects resolve effect_1 effect_2 --outcome confirmed --reason r --external-id x", "exactly one ID"),
        ("keys create --role admin", "--tenant T or --platform"),
        ("keys create --platform", "--role or --scope"),
        ("pause common --reason r", "class:C"),
        ("webhooks redeliver", "Missing argument"),
        ("tasks reclassify task_1 --class c --reason r", "either --for or --until"),
        ("tasks reclassify task_1 --class c --reason r --for 1x", "not a duration"),
        ("policy check missing.toml", "missing.toml cannot be read"),
        ("policy show 1 --history", "--history goes without VERSION"),
        ("webhooks secret --overlap-hours -1", "--overlap-hours"),
        ("up --port 70000", "--port"),
        ("worker --slots 0", "--slots"),
        ("api", "DESPACHO_DATABASE_URL: is not set; it should be postgresql://user:password@host:5432/name"),
        ("worker", "DESPACHO_DATABASE_URL: is not set"),
        ("dispatcher", "DESPACHO_DATABASE_URL: is not set"),
        ("migrate", "DESPACHO_DATABASE_URL: is not set"),
        ("demo missing-file.txt", "missing-file.txt: does not exist"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_is_wrong(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(line.split())

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert says in re.sub(r"\s+", " ", said.err)


def test_a_wrong_setting_is_named_and_its_value_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESPACHO_DATABASE_URL", "mysql://somebody:hidden-word@nowhere/db")

    code = run(["migrate"])

    said = capsys.readouterr().err
    assert code == 2
    assert "DESPACHO_DATABASE_URL" in said
    assert "hidden-word" not in said


def test_a_database_that_does_not_answer_is_a_failure_with_a_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESPACHO_DATABASE_URL", f"postgresql://a:hidden-word@127.0.0.1:{free_port()}/db")
    monkeypatch.setenv("DESPACHO_DATABASE__REQUEST_RETRY_FOR_SECONDS", "0.01")

    code = run(["migrate"])

    said = capsys.readouterr().err
    assert code == 1
    assert "does not answer" in said
    assert "hidden-word" not in said


def test_a_refused_connection_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["tasks", "list", "--url", f"http://127.0.0.1:{free_port()}"])

    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert "`despacho up`" in said.err
    assert "--url" in said.err


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("up", ["DESPACHO_API__HOST", "DESPACHO_API__PORT", "DESPACHO_DATA_DIR", "DESPACHO_WORKER__SLOTS"]),
        ("worker", ["DESPACHO_WORKER__CLASSES", "DESPACHO_WORKER__POOL", "DESPACHO_WORKER__HOST_DISPATCHER"]),
        ("api", ["DESPACHO_API__HOST_DISPATCHER"]),
        ("tasks list", ["DESPACHO_URL", "DESPACHO_KEY", "DESPACHO_PROFILE"]),
    ],
)
def test_help_names_the_environment_variables(command: str, names: list[str]) -> None:
    text = help_of(*command.split())

    assert [name for name in names if f"env var: {name}" not in text] == []


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    said = capsys.readouterr()
    assert "Commands:" in said.out + said.err


def test_doctor_is_content_with_an_empty_directory(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "-o", "json"])

    assert code == 0, capsys.readouterr()


def test_doctor_fails_and_says_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESPACHO_DATABASE_URL", f"postgresql://a:hidden-word@127.0.0.1:{free_port()}/db")
    monkeypatch.setenv("DESPACHO_AMQP_URL", f"amqp://a:hidden-word@127.0.0.1:{free_port()}/")
    monkeypatch.setenv("DESPACHO_TASK_MODULES", "there_is_no_such_module")

    code = run(["doctor"])

    said = capsys.readouterr()
    assert code == 1
    assert "3 of 5 checks failed" in said.err
    assert "start it, or correct DESPACHO_DATABASE_URL" in said.out
    assert "there_is_no_such_module" in said.out
    assert "hidden-word" not in said.out + said.err


def test_doctor_looks_for_declared_secrets_and_shows_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESPACHO_TASK_MODULES", "tests.support.http_tasks")
    monkeypatch.setenv("DESPACHO_OUTBOUND__SIGNING_SECRETS", "acme/HOOK_KEY")
    monkeypatch.setenv("DESPACHO_SECRET_TEST_TOKEN", "hidden-word")

    code = run(["doctor"])

    said = capsys.readouterr()
    assert code == 1
    assert "secret: TEST_TOKEN" in said.out
    assert "set DESPACHO_SECRET_HOOK_KEY in the worker" in said.out
    assert "hidden-word" not in said.out + said.err
