"""`despacho policy …`: check, apply and read the policy, and explain a task's class. Further commands join `policy`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Limit, Output, command, noun
from app.cli.ending import CommandFailed, WrongUsage
from app.cli.output import Format, show_list, show_one, wanted
from app.domain.policy import Policy
from app.domain.policy_file import PolicyError, parse_policy

policy = noun("policy", "The priority policy: who goes first, and why.")

File = Annotated[str, typer.Argument(metavar="FILE", help="A policy as TOML; - reads stdin.")]
_VERSIONS = ("version", "in_force", "owner", "author", "created_at")


@policy.command("check")
def check(file: File) -> None:
    """Check a policy file, without an installation; every problem has its line and what would be right."""
    found = _parsed(read_text(file))
    classes = ", ".join(one.name for one in found.classes)
    typer.echo(
        f"version {found.version} can be used: {len(found.classes)} classes ({classes}), {len(found.rules)} rules"
    )


@command(policy, "apply")
def apply(
    client: Client,
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what it would change for the last 1,000 tasks.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Bring a new version into force: here at once, in every process within seconds."""
    text = read_text(file)
    _parsed(text)
    done = client.policy.put(text, dry_run=dry_run)
    if output is not Format.TABLE:
        show_one(done, output=output, id_of=_version)
        return
    for warning in done["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    if dry_run:
        _show_changes(done)
    else:
        typer.echo(f"{done['version']} in force")


@command(policy, "show")
def show(
    client: Client,
    version: Annotated[str | None, typer.Argument(metavar="VERSION", help="[default: the one in force]")] = None,
    history: Annotated[bool, typer.Option("--history", help="List the versions, newest first.")] = False,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the policy in force as its TOML text, or the list of its versions."""
    if history:
        if version is not None:
            raise WrongUsage("--history goes without VERSION")
        items = client.policy.history(at_most=wanted(output, limit))
        show_list(items, output=output, columns=_VERSIONS, id_of=_version, limit=limit)
        return
    found = client.policy.get(version)
    if output is Format.TABLE and found["document"] is not None:
        typer.echo(found["document"], nl=not found["document"].endswith("\n"))
    else:
        show_one(found, output=output, id_of=_version)


@command(policy, "explain")
def explain(
    client: Client,
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="Id of a task.")],
    output: Output = Format.TABLE,
) -> None:
    """Say why a task has its class: every rule, what it read, and whether its stored facts give the class again."""
    found = client.policy.explain(task_id)
    if output is not Format.TABLE:
        show_one(found, output=output, id_of=lambda item: str(item["task"]["task_id"]))
        return
    task = found["task"]
    typer.echo(f"{task['task_id']} {task['priority_class']} ({task['reason_code']}), policy {task['policy_version']}")
    if (task["derived_class"], task["derived_reason_code"]) != (task["priority_class"], task["reason_code"]):
        typer.echo(f"the rules gave it {task['derived_class']} ({task['derived_reason_code']})")
    typer.echo(_AGREES[task["agrees"]])
    _show_rules((task["again"] or found)["rules"])
    if found["policy_version"] != task["policy_version"]:
        typer.echo(f"policy {found['policy_version']} would give it {found['priority_class']} ({found['reason_code']})")


_AGREES = {
    True: "its stored facts give that again",
    False: "its stored facts do NOT give that again",
    None: "its version of the policy cannot be read any more; these are the rules in force",
}


def read_text(file: str) -> str:
    """Read a policy's text from a file or stdin. Raises WrongUsage."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{file} cannot be read ({type(error).__name__}); it should be TOML in UTF-8") from None


def _parsed(text: str) -> Policy:
    try:
        return parse_policy(text)
    except PolicyError as error:
        raise CommandFailed(str(error)) from None


def _show_changes(done: Json) -> None:
    changes = done["changes"]
    typer.echo(
        f"{done['version']}: {changes['changed']} of the last {changes['looked_at']} tasks would have another class"
    )
    for title, found in (("class", changes["classes"]), ("reason code", changes["reason_codes"])):
        for one in found:
            examples = f"  such as {', '.join(one['examples'][:2])}" if one["from"] != one["to"] else ""
            typer.echo(f"  {title} {one['from']} -> {one['to']}: {one['tasks']}{examples}")
    for name, count in changes["in_use"].items():
        typer.echo(f"refused as long as {count} unfinished tasks have the class {name}, which it does not have")


def _show_rules(rules: Json) -> None:
    for one in rules:
        why = f": {one['why']}" if one["why"] else ""
        read = ", ".join(f"{name}={value}" for name, value in one["read"].items() if value is not None)
        typer.echo(
            f"  {one['reason_code']} -> {one['priority_class']} {one['outcome']}{why}" + (f" [{read}]" if read else "")
        )


def _version(item: Json) -> str:
    return str(item["version"])
