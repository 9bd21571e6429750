"""The commands that run or look after the service itself: up, api, worker, dispatcher, migrate.

What they run is imported when they run it: it takes most of a second, which a client's command need not wait for.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from app.cli.command import Key, Profile
from app.cli.ending import CommandFailed, WrongUsage
from app.cli.output import Format
from app.settings import Settings, load_settings

Host = Annotated[
    str | None, typer.Option("--host", envvar="DESPACHO_API__HOST", help="Address to listen on. [default: 127.0.0.1]")
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", envvar="DESPACHO_API__PORT", min=0, max=65535, help="Port to listen on; 0 takes any. [default: 8000]"
    ),
]
Slots = Annotated[
    int | None,
    typer.Option("--slots", envvar="DESPACHO_WORKER__SLOTS", min=1, help="Tasks run at the same time. [default: 16]"),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="DESPACHO_DATA_DIR", help="Where the embedded database lives. [default: .despacho]"
    ),
]


def add_to(program: typer.Typer) -> None:
    """Add these commands to the program."""
    for command in (up, demo, api, worker, dispatcher, migrate, doctor):
        program.command()(command)


def up(host: Host = None, port: Port = None, data_dir: DataDir = None, slots: Slots = None) -> None:
    """Run everything on this machine in one process, with a database and a broker of its own.

    DESPACHO_DATABASE_URL and DESPACHO_AMQP_URL, where set, are used instead. Ctrl-C drains and stops, a second one
    ends at once. The next start finds the data again.
    """
    from app.cli.first_words import first_words
    from app.cli.hosting import run
    from app.cli.up import Running, serve

    settings = _settings(api={"host": host, "port": port}, worker={"slots": slots}, data_dir=data_dir)

    async def on_running(running: Running) -> None:
        typer.echo(first_words(running))

    run(lambda stop: serve(settings, stop, on_running), settings, "up")


def demo(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH…]", help="Text files, or directories of them. [default: texts of the packages here]"
        ),
    ] = None,
    task_type: Annotated[str, typer.Option("--type", help="Task type to submit.")] = "classify_document",
    url: Annotated[
        str | None,
        typer.Option("--url", help="A running service. [default: one of its own, in a directory that is removed]"),
    ] = None,
    key: Key = None,
    profile: Profile = None,
) -> None:
    """Classify real documents: store each, submit a task for it, show progress and a table.

    Exit code 1 when a task could not be done; what the table marks as worth a look is no failure.
    """
    from rich.console import Console

    from app.cli import demo as demonstration
    from app.cli.client import Client, connect
    from app.cli.output import console, remark

    documents = demonstration.documents_of(paths or (), on_skipped=lambda text: remark(f"left out: {text}"))
    shown = Console(stderr=True)
    failed = 0

    def work(client: Client) -> None:
        nonlocal failed
        tasks = demonstration.run(client, documents, task_type=task_type, shown=shown)
        console().print(demonstration.table(documents, tasks))
        failed = sum(task["status"] != "done" for task in tasks)

    if url is not None or profile is not None:
        with connect(url, key, profile) as client:
            work(client)
    else:
        from app.cli.demo_service import with_service

        remark("starting a database, a broker and a worker of its own ...")
        with_service(work)
    if failed:
        raise CommandFailed(f"{failed} of {len(documents)} tasks were not done")


def api(
    host: Host = None,
    port: Port = None,
    with_dispatcher: Annotated[
        bool | None,
        typer.Option(
            "--with-dispatcher/--without-dispatcher",
            envvar="DESPACHO_API__HOST_DISPATCHER",
            help="Whether this process also stands for the dispatcher's lead. [default: with]",
        ),
    ] = None,
) -> None:
    """Serve the REST API. Needs DESPACHO_DATABASE_URL and DESPACHO_AMQP_URL. SIGTERM drains."""
    from app.cli.api_role import serve_api
    from app.cli.hosting import run

    settings = _settings(api={"host": host, "port": port, "host_dispatcher": with_dispatcher})
    run(lambda stop: serve_api(settings, stop), settings, "api")


def worker(
    classes: Annotated[
        str | None,
        typer.Option(
            "--classes",
            envvar="DESPACHO_WORKER__CLASSES",
            help="Priority classes to serve, separated by commas. [default: all]",
        ),
    ] = None,
    slots: Slots = None,
    pool: Annotated[
        str | None,
        typer.Option("--pool", envvar="DESPACHO_WORKER__POOL", help="Name of the pool. [default: default]"),
    ] = None,
    with_dispatcher: Annotated[
        bool | None,
        typer.Option(
            "--with-dispatcher/--without-dispatcher",
            envvar="DESPACHO_WORKER__HOST_DISPATCHER",
            help="Whether this process also stands for the dispatcher's lead. [default: without]",
        ),
    ] = None,
) -> None:
    """Run one worker pool. Needs DESPACHO_DATABASE_URL and DESPACHO_AMQP_URL. SIGTERM drains."""
    from app.cli.hosting import run
    from app.cli.roles import open_nursery, serve_worker

    chosen = {"classes": classes, "slots": slots, "pool": pool, "host_dispatcher": with_dispatcher}
    settings = _settings(worker=chosen)
    run(lambda stop: serve_worker(settings, stop), settings, "worker", before=open_nursery)


def dispatcher() -> None:
    """Stand for the dispatcher's lead. Needs DESPACHO_DATABASE_URL and DESPACHO_AMQP_URL. SIGTERM stops."""
    from app.cli.hosting import run
    from app.cli.roles import serve_dispatcher

    settings = _settings()
    run(lambda stop: serve_dispatcher(settings, stop), settings, "dispatcher")


def migrate(
    to: Annotated[
        str, typer.Option("--to", metavar="REV", help="The revision to go to: one of this release, head, or base.")
    ] = "head",
    yes: Annotated[
        bool, typer.Option("--yes", help="Go back to an earlier revision without asking: what it lacks is deleted.")
    ] = False,
) -> None:
    """Bring the database of DESPACHO_DATABASE_URL to this release's revision. Running it again is safe.

    A lock is waited for only DESPACHO_MIGRATION_LOCK_TIMEOUT_SECONDS (3), so that nobody is blocked for long.
    """
    from app.cli import migrations
    from app.cli.hosting import database_url

    settings = _settings()
    url = database_url(settings)
    wait = settings.database.request_retry_for_seconds
    found = asyncio.run(migrations.current_revision(url, settings.database, retry_for_seconds=wait))
    if found is not None and not migrations.is_known(found):
        raise CommandFailed(migrations.revision_complaint(found) or "")
    back = migrations.is_downgrade(found, to)
    if back and not yes:
        raise WrongUsage(
            f"going back from {found} to {to} deletes what {to} has no place for: add --yes if you mean it"
        )
    migrations.migrate(url, target=to, downgrade=back)
    now = asyncio.run(migrations.current_revision(url, settings.database, retry_for_seconds=wait))
    typer.echo(f"the database is at revision {now or 'base'}" + (", as it was" if now == found else ""))


def doctor(
    data_dir: DataDir = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="table or json.")] = Format.TABLE,
) -> None:
    """Look at settings, database, broker, policy, task modules and clocks, and say what to do about each.

    Exit code 1 when something would keep the service from working.
    """
    from app.cli.doctor import findings
    from app.cli.findings import State
    from app.cli.output import show_list
    from app.telemetry.logs import redact_settings

    settings = _settings(data_dir=data_dir)
    redact_settings(settings)
    # What the broker's connections log is in the findings, in words.
    logging.disable(logging.CRITICAL)
    try:
        found = asyncio.run(findings(settings))
    finally:
        logging.disable(logging.NOTSET)
    rows = [{"state": one.state.value, "subject": one.subject, "finding": one.text} for one in found]
    show_list(
        rows, output=output, columns=("state", "subject", "finding"), id_of=lambda i: str(i["subject"]), limit=1000
    )
    failures = sum(one.state is State.FAIL for one in found)
    if failures:
        raise CommandFailed(f"{failures} of {len(found)} checks failed")


def _settings(**flags: object) -> Settings:
    """Read the settings; flags that were given win. Raises SettingsError."""
    given: dict[str, object] = {}
    for name, value in flags.items():
        if isinstance(value, Mapping):
            group = {key: item for key, item in value.items() if item is not None}
            if group:
                given[name] = group
        elif value is not None:
            given[name] = value
    return load_settings(**given)
