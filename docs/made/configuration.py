"""The page docs/reference/configuration.md: every key of the programs' files, from what they are read into."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from isolation_agent.config import Config as Agent
from isolation_agent.policy import PolicyFile
from made import go_structs
from vigia_compare.config import Config as Compare
from vigia_identity.config import Config as Identity

__all__ = ["keys", "markdown"]

_INTRODUCTION = """\
# Configuration files

Made by `make generate` from what the programs read files into. Files are YAML, checked strictly: an unknown key, a repeated name or a wrong value is
refused with its line and the fix, and `check-config` of each program validates a file without starting it. Durations have a
unit (`500ms`, `10s`, `2m`), rates too (`40Mbit`).

| program | file | keys |
| --- | --- | --- |
| vigia-probe | `probe.yaml` | [every key](probe-configuration.md), [explained](../../probes/README.md#configuration) |
| vigia-exporter | `exporter.yaml` | [below](#vigia-exporter), [explained](../../exporters/tenant/README.md#configuration) |
| vigia-enforcer | `enforcer.yaml` | [below](#vigia-enforcer), [explained](../../isolation-agent/enforcer/README.md#configuration) |
| vigia-enforcer | `site.yaml` | [below](#sites) |
| vigia-exporter, vigia-enforcer | `ports.yaml` | [below](#ports) |
| isolation-agent | `agent.yaml` | [below](#isolation-agent), [explained](isolation-agent.md) |
| isolation-agent | `policies.yaml` | [below](#policies) |
| vigia-compare | `compare.yaml` | [below](#vigia-compare), [explained](../../exporters/compare/README.md) |
| vigia-identity | `identity.yaml` | [below](#vigia-identity), [explained](../../exporters/identity/README.md) |
| vigia lab, vigia demo | a topology | [every key](topology.md) |
| vigia node, vigia campaign | `node.yaml`, a topology | [every key](nodes.md) |
"""

_FILES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("isolation-agent", Agent),
    ("Policies", PolicyFile),
    ("vigia-compare", Compare),
    ("vigia-identity", Identity),
)

_GO: tuple[tuple[str, str, str], ...] = (
    ("vigia-exporter", "exporters/tenant/app", "Config"),
    ("vigia-enforcer", "isolation-agent/enforcer/app", "Config"),
    ("Sites", "isolation-agent/enforcer/fastloop", "Site"),
    ("Ports", "internal/ports", "fileContent"),
)
"""Title, folder and struct of each file of the Go programs; vigia-probe has a page of its own."""

_WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path"}
_OURS = {"_seconds": "duration", "_rate": "rate"}


def markdown() -> str:
    """Return the page. Raises ValueError for a key that its model does not explain."""
    parts = [_INTRODUCTION]
    for title, folder, struct in _GO:
        parts += [f"## {title}", "", "| key | type | meaning |", "| --- | --- | --- |"]
        parts += [*go_structs.keys(folder, struct), ""]
    for title, model in _FILES:
        parts += [f"## {title}", "", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        parts += [*keys(model), ""]
    return "\n".join(parts)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield a row for each key of a model and of the models in it."""
    for name, field in model.model_fields.items():
        meaning = field.description or _docstrings(model).get(name)
        if not meaning:
            raise ValueError(f"{model.__name__}.{name} is not explained: write a docstring below it")
        inner, several = _model(field.annotation)
        path = f"{prefix}{name}{'[]' if several else ''}"
        kind = _type(field.annotation, field.metadata) + _bounds(field.metadata)
        yield f"| `{path}` | {kind} | {_default(field)} | {' '.join(meaning.split())} |"
        if inner:
            yield from keys(inner, f"{path}.")


@cache
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return what stands below the fields of a model in its source."""
    (written,) = ast.parse(inspect.getsource(model)).body
    body = written.body if isinstance(written, ast.ClassDef) else []
    found = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def _model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model that a field holds, or a list of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for part in get_args(annotation) if get_origin(annotation) in (Union, UnionType, Annotated, list) else ():
        found, several = _model(part)
        if found:
            return found, several or get_origin(annotation) is list
    return None, False


def _type(annotation: Any, metadata: Any = ()) -> str:
    for mark in metadata:
        if (word := _OURS.get(getattr(getattr(mark, "func", None), "__name__", ""))) is not None:
            return word
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return _type(inner, marks)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _WORDS.get(annotation) or _of(get_origin(annotation), get_args(annotation))


def _of(origin: Any, parts: tuple[Any, ...]) -> str:
    """Return a type that is made of others, in words. Raises KeyError for one that has none."""
    forms: dict[Any, Callable[[], str]] = {
        Union: lambda: " or ".join(_type(p) for p in parts if p is not NoneType),
        UnionType: lambda: " or ".join(_type(p) for p in parts if p is not NoneType),
        Literal: lambda: ", ".join(f"`{p}`" for p in parts),
        list: lambda: f"list of {_type(parts[0])}",
        dict: lambda: f"map of {_type(parts[1])}",
    }
    return forms[origin]()


def _bounds(metadata: Any) -> str:
    words = {
        annotated_types.Ge: ("ge", "from {}"),
        annotated_types.Gt: ("gt", "above {}"),
        annotated_types.Le: ("le", "to {}"),
        annotated_types.Lt: ("lt", "below {}"),
        annotated_types.MinLen: ("min_length", "at least {}"),
        annotated_types.MaxLen: ("max_length", "at most {}"),
    }
    found = [
        form.format(getattr(m, key))
        for m in metadata
        for kind, (key, form) in words.items()
        if type(m) is kind
    ]
    return f" ({', '.join(found)})" if found else ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.default_factory is not None:
        value = field.default_factory()  # type: ignore[call-arg]
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ([], {}, "") or isinstance(value, BaseModel):
        return "" if isinstance(value, BaseModel) else "none"
    if _type(field.annotation, field.metadata) == "duration":
        return f"`{_duration(float(value))}`"
    if isinstance(value, list):
        return ", ".join(f"`{v}`" for v in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _duration(seconds: float) -> str:
    """Return a duration as a file has it."""
    for unit, size in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if seconds % size == 0.0 and (seconds or unit == "s"):
            return f"{seconds / size:g}{unit}"
    return f"{seconds * 1000:g}ms"
