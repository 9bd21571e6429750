"""Rules of the repository that no linter knows."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("app", "workers", "migrations", "bench", "deploy")
# Put together here, so that this file does not hold what it looks for.
_LEFT_OPEN = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
_INDEX = re.compile(
    "|".join(("--(extra-)?index" + "-url", "--find" + "-links", r"py" + r"pi\.org", "/sim" + "ple/?['\"\\s]"))
)
_MACHINE = re.compile("|".join((r"(?<![\w.])/ro" + r"ot/\w", r"/ho" + r"me/\w+/", r"(?<![\w.])/wo" + r"rk/\w")))
# What is text without being ours to write: names of packages and hashes only.
_LOCKS = ("requirements.lock", "requirements-dev.lock")


def _files() -> list[Path]:
    """Return every text file of the repository, new ones that are not ignored included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [ROOT / name for name in names if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8000]]


def _found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in _files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(_LEFT_OPEN, id="left_open"),
        pytest.param(_INDEX, id="package_index"),
        pytest.param(_MACHINE, id="path_of_a_machine"),
    ],
)
def test_no_file_has(pattern: re.Pattern[str]) -> None:
    assert _found(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "bad"),
    [
        (_LEFT_OPEN, "# TO" + "DO: later"),
        (_INDEX, "--index" + "-url x"),
        (_INDEX, "https://py" + "pi.org/x"),
        (_MACHINE, "see /ro" + "ot/notes"),
        (_MACHINE, "/ho" + "me/ann/x"),
    ],
)
def test_the_rules_find_what_they_look_for(pattern: re.Pattern[str], bad: str) -> None:
    assert pattern.search(bad)


@pytest.mark.parametrize("name", _LOCKS)
def test_a_lock_file_pins_every_package_with_hashes_and_names_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())

    assert entries
    assert "://" not in text
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+(\[[a-z0-9,._-]+\])?==\S+", entry), f"{name}: no exact version in {entry[:80]!r}"
        assert "--hash=sha256:" in entry, f"{name}: no hash for {entry[:80]!r}"


def test_both_lock_files_agree() -> None:
    runtime, dev = (
        dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE)) for name in _LOCKS
    )

    assert {name: dev.get(name) for name in runtime} == runtime


def test_every_folder_of_code_has_its_page() -> None:
    folders = {path.parent for path in _files() if path.suffix == ".py"}
    pages = [f for f in sorted(folders) if f != ROOT and f.relative_to(ROOT).parts[0] in _PACKAGES]

    missing = [str(f.relative_to(ROOT)) for f in pages if f.name != "versions" and not (f / "README.md").exists()]

    assert missing == []
