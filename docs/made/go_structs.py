"""Keys of the Go programs' files: the structs that they are read into, with the comments beside their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["keys"]

ROOT = Path(__file__).resolve().parents[2]

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'^\t(?:\w+\s+)?(\S+)\s+`yaml:"([^"]*)"`(?:\s*//\s*(.*))?$')
_COMMENT = re.compile(r"^\t//\s?(.*)$")
_NAMED = re.compile(r"^type (\w+) (string|uint\d*|int\d*|bool|float64)$", re.MULTILINE)
_IMPORT = re.compile(r'^\t(?:(\w+) )?"vigia/([^"]+)"$', re.MULTILINE)

_WORDS = {"string": "text", "bool": "true or false", "float64": "number"}
_OURS = {"config.Duration": "duration", "config.Rate": "rate"}


@dataclass(frozen=True)
class _Field:
    type: str
    tag: str
    meaning: str


@dataclass(frozen=True)
class _Package:
    """The structs of a folder, and what its names of other packages mean."""

    structs: dict[str, tuple[_Field, ...]]
    named: dict[str, str]
    imports: dict[str, str]


def keys(folder: str, struct: str, prefix: str = "") -> Iterator[str]:
    """Yield a row for each key of a struct and of the structs in it. Raises ValueError for one that no comment explains."""
    for field in _package(folder).structs[struct]:
        name = field.tag.partition(",")[0]
        bare = field.type.lstrip("*").removeprefix("[]")
        inner = _find(folder, bare)
        if field.tag == ",inline" and inner:
            yield from keys(*inner, prefix)
            continue
        if not field.meaning:
            raise ValueError(
                f"{folder}: {struct} has a key {name} that no comment explains: write one beside it"
            )
        several = "[]" if "[]" in field.type else ""
        path = f"{prefix}{name}{several}"
        kind = f"{'list of ' if several else ''}{_kind(folder, bare, bool(inner))}"
        yield f"| `{path}` | {kind} | {field.meaning.replace('|', chr(92) + '|').rstrip('.')} |"
        if inner:
            yield from keys(*inner, f"{path}.")


def _kind(folder: str, bare: str, mapping: bool) -> str:
    if mapping:
        return "mapping"
    if bare in _OURS:
        return _OURS[bare]
    alias, _, name = bare.rpartition(".")
    package = _package(_package(folder).imports[alias]) if alias else _package(folder)
    return _WORDS.get(package.named.get(name, name), "integer")


def _find(folder: str, bare: str) -> tuple[str, str] | None:
    """Return the folder and the name of a struct, if a type is one of ours."""
    alias, _, name = bare.rpartition(".")
    where = _package(folder).imports.get(alias) if alias else folder
    return (where, name) if where and bare not in _OURS and name in _package(where).structs else None


@cache
def _package(folder: str) -> _Package:
    found = _Package({}, {}, {})
    for file in sorted((ROOT / folder).glob("*.go")):
        if file.name.endswith("_test.go"):
            continue
        code = file.read_text()
        found.imports.update(
            {alias or path.rpartition("/")[2]: path for alias, path in _IMPORT.findall(code)}
        )
        found.named.update(_NAMED.findall(code))
        found.structs.update({name: tuple(_fields(body)) for name, body in _STRUCT.findall(code)})
    return found


def _fields(body: str) -> Iterator[_Field]:
    """Yield the fields with a key; what is said of one stands behind it, or above."""
    above: list[str] = []
    for line in body.splitlines():
        if comment := _COMMENT.match(line):
            above.append(comment[1])
            continue
        if field := _FIELD.match(line):
            yield _Field(field[1], field[2], field[3] or " ".join(above))
        above = []
