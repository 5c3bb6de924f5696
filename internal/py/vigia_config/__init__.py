"""Strict YAML configuration for Vigia's Python programs.

A file becomes a pydantic model; unknown and repeated keys are errors, sizes
are bounded, and every error names the file, the line, the field, its value and
what to write instead. The Go package ``internal/config`` does the same for Go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

__all__ = [
    "MAX_SIZE",
    "ConfigError",
    "Rate",
    "Seconds",
    "Strict",
    "absolute",
    "fault",
    "load",
    "parse",
    "parse_rate",
]

MAX_SIZE = 8 << 20
"""Largest configuration file that is read, in bytes."""

M = TypeVar("M", bound=BaseModel)
Location = Sequence[str | int]


class ConfigError(Exception):
    """One or more mistakes in a configuration file, one per line of the message."""


class Strict(BaseModel):
    """Base of configuration models: unknown keys are errors, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def fault(location: Location, problem: str, fix: str) -> PydanticCustomError:
    """Return an error about one field, for use in a model's validators.

    ``location`` is the path below the model: names and list indices.
    """
    return PydanticCustomError(
        "vigia", "{problem}; {fix}", {"at": list(location), "problem": problem, "fix": fix}
    )


_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G|T)?bit")
_FACTOR = {None: 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_rate(text: str) -> int:
    """Return a rate such as 200Mbit in bytes per second. Raises ValueError with the fix."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError("is not a rate; write for example 200Mbit, 1Gbit or 64kbit")
    return int(float(match[1]) * _FACTOR[match[2]] / 8)


def _rate(value: object) -> int:
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError as e:
        raise PydanticCustomError("vigia", "{problem}", {"problem": str(e)}) from e


def _seconds(value: object) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("vigia", "is not a duration; write for example 500ms, 10s or 2m")
    return float(match[1]) * _UNIT[match[2]]


Rate = Annotated[int, BeforeValidator(_rate), PlainSerializer(lambda v: f"{v * 8}bit")]
"""A data rate in bytes per second, written in bits per second: 200Mbit."""

Seconds = Annotated[float, BeforeValidator(_seconds), PlainSerializer(lambda v: f"{v}s")]
"""A duration in seconds, written with its unit: 500ms, 10s, 2m."""


def absolute(example: str) -> AfterValidator:
    """Return a validator of absolute paths, for ``Annotated[Path, absolute("/var/lib/x")]``."""

    def check(path: Path) -> Path:
        if not path.is_absolute():
            raise PydanticCustomError(
                "vigia", "is not an absolute path; write for example {example}", {"example": example}
            )
        return path

    return AfterValidator(check)


def load(path: Path, model: type[M]) -> M:
    """Read the YAML file at path into model. Raises ConfigError."""
    try:
        with path.open("rb") as f:
            raw = f.read(MAX_SIZE + 1)
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror}") from e
    if len(raw) > MAX_SIZE:
        raise ConfigError(f"{path}: larger than {MAX_SIZE} bytes; remove what is not configuration")
    return parse(str(path), raw, model)


def parse(name: str, raw: bytes | str, model: type[M]) -> M:
    """Do what load does with the content of a file called name."""
    try:
        node = yaml.compose(raw, Loader=yaml.SafeLoader)
        if node is None:
            raise ConfigError(f"{name}: the file is empty; write a configuration")
        _refuse_repeated_keys(name, node)
        data = yaml.safe_load(raw)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise ConfigError(f"{name}:{line}: not YAML: {e.problem}") from e
    except (yaml.YAMLError, RecursionError, *_CONSTRUCTORS) as e:
        raise ConfigError(f"{name}: not YAML: {str(e)[:_LONGEST]}") from e
    try:
        return model.model_validate(data)
    except ValidationError as e:
        lines = [_describe(name, node, model, detail) for detail in e.errors()]
        raise ConfigError("\n".join(lines)) from e


_CONSTRUCTORS = (ValueError, TypeError, AttributeError, OverflowError, LookupError)
"""What PyYAML lets through when a tag or a look promises another value than the text is: 2001-99-99."""

_LONGEST = 200
"""Characters of a value that an error shows."""


def _refuse_repeated_keys(name: str, node: yaml.Node) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(name, item)
    elif isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{name}:{line}: a key is a list or a mapping; write a name")
            if key.value in first:
                raise ConfigError(
                    f'{name}:{line}: key "{key.value}" appears twice '
                    f"(first in line {first[key.value]}); keep one"
                )
            first[key.value] = line
            _refuse_repeated_keys(name, value)


def _describe(name: str, node: yaml.Node, model: type[BaseModel], detail: ErrorDetails) -> str:
    location: list[str | int] = list(detail["loc"])
    context = detail.get("ctx", {})
    location += context.get("at", [])
    line = _line(node, location)
    field = _field(location)
    if detail["type"] == "extra_forbidden":
        known = ", ".join(_known_keys(model, location[:-1]))
        return f'{name}:{line}: unknown key "{location[-1]}"; known here: {known}'
    if detail["type"] == "missing":
        return f"{name}:{line}: {field}: is missing; add it"
    value = detail["input"]
    shown = f': "{_short(value)}"' if isinstance(value, str | int | float) and not context.get("at") else ""
    message = detail["msg"]
    if detail["type"] != "vigia":
        message = message[0].lower() + message[1:]
    return f"{name}:{line}: {field}{shown}: {message}" if field else f"{name}:{line}: {message}"


def _short(value: object) -> str:
    """Return a value as an error shows it."""
    try:
        text = str(value)
    except ValueError:  # a number of thousands of digits
        return "a number that is too large"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _field(location: Location) -> str:
    out = ""
    for step in location:
        out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
    return out


def _line(node: yaml.Node, location: Location) -> int:
    """Line of the field, or of its nearest ancestor that exists."""
    line = node.start_mark.line + 1
    for step in location:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
    return line


def _known_keys(model: type[BaseModel], location: Location) -> list[str]:
    current: Any = model
    for step in location:
        fields = getattr(current, "model_fields", {})
        if isinstance(step, str) and step in fields:
            current = _inner_model(fields[step].annotation)
        elif isinstance(step, str):
            continue  # a key of a mapping of models, or the tag of a union
    return sorted(f.alias or n for n, f in getattr(current, "model_fields", {}).items())


def _inner_model(annotation: Any) -> Any:
    """The model class inside an annotation such as list[Model] or Model | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None
