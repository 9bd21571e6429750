"""Where taxonomies are found by name: in the directory of the user, and the one that ships with the handler."""

import re
from functools import lru_cache
from pathlib import Path

from workers.handlers.classify_document.taxonomy import Taxonomy, TaxonomyError, load_taxonomy

DEFAULT_NAME = "default"
_SHIPPED = Path(__file__).with_name("taxonomy.toml")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def find_taxonomy(name: str, directory: Path | None) -> Taxonomy:
    """Return the taxonomy `name`: `<directory>/<name>.toml`, or the shipped one for `default`. Raises TaxonomyError.

    A file that was changed is read again, so that a mended taxonomy needs no restart.
    """
    if not _NAME.fullmatch(name):
        raise TaxonomyError(f"taxonomy name {name[:64]!r}: use a-z, 0-9, _ and -, a letter first, at most 64")
    path = None if directory is None else directory / f"{name}.toml"
    if path is None or not path.is_file():
        if name != DEFAULT_NAME:
            raise TaxonomyError(f"no taxonomy {name!r}; there is {', '.join(_names(directory))}")
        path = _SHIPPED
    try:
        changed_at_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise TaxonomyError(f"{path.name}: cannot be read ({error.strerror}); check that it exists") from None
    return _loaded(path, changed_at_ns)


@lru_cache(maxsize=16)
def _loaded(path: Path, changed_at_ns: int) -> Taxonomy:
    """Load once per state of the file; `changed_at_ns` is only there to tell the states apart."""
    return load_taxonomy(path)


def _names(directory: Path | None) -> list[str]:
    own = [] if directory is None else [path.stem for path in directory.glob("*.toml")]
    return sorted({DEFAULT_NAME, *own})
