"""What `despacho up` says when everything runs: where it is, the key, and a first task to send."""

import json
import shlex

from app.cli.up import Running

_TEXT = "Invoice 4711, due 2026-12-31: 12 hours of consulting, net amount 1,200.00 EUR, VAT 19 %, total 1,428.00 EUR"


def first_words(running: Running) -> str:
    """Return the text for the terminal; the admin key is in it on a first start that minted one, and never again."""
    made = running.first_start
    key = made.secret if made is not None else None
    lines = [f"Despacho is running: {running.url}", f"  API reference  {running.url}/openapi.json"]
    if running.embedded_dir is not None:
        lines.append(f"  data           {running.embedded_dir}")
    if key is not None:
        lines.append(f"  admin key      {key}   (shown this once; export it as DESPACHO_KEY)")
    lines += ["", "Send a first task and wait for its result" + (":" if key else " (with your key in DESPACHO_KEY):")]
    lines += ["", f"  {first_task(running.url, key)}", "", "Ctrl-C stops."]
    return "\n".join(lines)


def first_task(url: str, key: str | None) -> str:
    """Return the command that submits a task and waits for it; without `key` it takes the one in DESPACHO_KEY."""
    body = json.dumps({"type": "classify_document", "input": {"text": _TEXT}})
    authorization = shlex.quote(f"Authorization: Bearer {key}") if key else '"Authorization: Bearer $DESPACHO_KEY"'
    return (
        f"curl -sS -X POST {shlex.quote(f'{url}/v1/tasks')} -H {authorization} -H 'Content-Type: application/json' "
        f"-H 'Prefer: wait=30' -d {shlex.quote(body)}"
    )
