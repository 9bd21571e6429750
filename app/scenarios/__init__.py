"""The disputes that every policy meets sooner or later: loads, with what is expected of them."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def names() -> tuple[str, ...]:
    """List the scenarios that are shipped."""
    return tuple(sorted(path.stem for path in FOLDER.glob("[!_]*.toml") if not path.stem.endswith("_policy")))


def path_of(name: str) -> Path | None:
    """Find the file of a scenario, None when there is none of that name."""
    return FOLDER / f"{name}.toml" if name in names() else None
