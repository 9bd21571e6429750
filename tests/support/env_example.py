"""The text of `.env.example`, made from the settings themselves.

As a program (`python -m tests.support.env_example`), it writes the file.
"""

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import NoDecode

from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]

HEAD = """\
# Every setting of Despacho with its unit and default; copy to `.env` and take the # off what you change.
# A flag wins over the environment, the environment over this file. Lists and tables are JSON where not said otherwise.
"""
_UNITS = (
    ("_per_second", "per second"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_days", "days"),
    ("_days_by_error_type", "days by error type"),
)


def render() -> str:
    """Return the whole file."""
    return HEAD + "".join(_section(Settings, "DESPACHO_", "General"))


def names() -> list[str]:
    """Name the variable of every setting."""
    return [line[1:].partition("=")[0] for line in render().splitlines() if line.startswith("#DESPACHO_")]


def _section(model: type[BaseModel], prefix: str, title: str) -> Iterator[str]:
    plain = {name: field for name, field in model.model_fields.items() if not _is_group(field)}
    yield f"\n# ---- {title}\n"
    for name, field in plain.items():
        yield _entry(f"{prefix}{name}".upper(), name, field)
    for name, field in model.model_fields.items():
        if _is_group(field):
            yield from _section(type(field.default), f"{prefix}{name.upper()}__", name)


def _entry(variable: str, name: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    facts = [field.description] if field.description else []
    facts += [f"unit: {unit}" for suffix, unit in _UNITS if name.endswith(suffix)][:1]
    facts += [_bound(item) for item in field.metadata if _bound(item)]
    text = ",".join(default) if NoDecode in field.metadata else _text(default)
    facts.append("not set by default" if default is None else f"default: {text or 'empty'}")
    return f"# {'; '.join(facts)}\n#{variable}={text}\n"


def _bound(item: object) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "pattern": "matches"}
    found = {text: getattr(item, word, None) for word, text in words.items()}
    return "; ".join(f"{text} {bound}" for text, bound in found.items() if bound is not None)


def _text(default: object) -> str:
    if default is PydanticUndefined:
        raise ValueError("a setting without a default has no place in the file")
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (list, dict)):
        return json.dumps(default)
    return str(default.value if isinstance(default, Enum) else default)


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.default, BaseModel)


if __name__ == "__main__":
    (ROOT / ".env.example").write_text(render())
