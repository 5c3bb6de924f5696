"""The page docs/reference/http-api.md: every request that a program answers, and the isolation agent's API in full."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from isolation_agent.web.openapi import openapi
from made.routes import GO_PROGRAMS, PYTHON_PROGRAMS, application, routes

__all__ = ["document", "markdown", "operations", "schemas"]

_INTRODUCTION = """\
# HTTP API

Made by `make generate` from the programs: what each answers, and the isolation agent's API as its OpenAPI document describes it. A running
agent has that document at `GET /v1/openapi.json`, for tools that make clients; [here it is](openapi.json). Every address listens on loopback unless
told otherwise.
"""

_ADDRESSES = {
    "vigia-probe": "9871; open, or as `--web.config.file` demands",
    "vigia-exporter": "9872; open, or as `--web.config.file` demands",
    "vigia-enforcer": "9873; below `/v1/` with the bearer token of `token_file`, or by `api_socket`",
    "vigia-compare": "9875; open, or with certificates (`tls`)",
    "isolation-agent": "9874; below `/v1/` with a bearer token or a session",
}
"""Port of each program, and who may ask."""

_PLACEHOLDER = re.compile(r"<(?:\w+:)?(\w+)>")
_REF = "#/components/schemas/"

Json = Mapping[str, Any]


def document() -> str:
    """Return the OpenAPI document of the isolation agent, as JSON."""
    with application("isolation-agent") as app:
        return json.dumps(openapi(app), indent=1) + "\n"


def markdown() -> str:
    """Return the page. Raises ValueError if a request is served that the code says nothing of."""
    parts = [_INTRODUCTION]
    for program in (*GO_PROGRAMS, *PYTHON_PROGRAMS):
        parts += [f"## {program}", "", f"Port {_ADDRESSES[program]}.", "", *_table(program), ""]
    api = json.loads(document())
    parts += ["## The isolation agent's API", ""]
    parts += ["Errors have one shape, [`ErrorAnswer`](#erroranswer). Times are RFC 3339, in UTC.", ""]
    parts += [*operations(api), "## Schemas of the isolation agent", "", *schemas(api)]
    return "\n".join(parts).rstrip() + "\n"


def _table(program: str) -> Iterator[str]:
    yield from ("| request | what |", "| --- | --- |")
    for route in routes(program):
        if not route.what:
            raise ValueError(
                f"{program} serves {route.method} {route.path} and no comment says what that does: write"
                f' "... answers {route.method} {route.path}: ..." above it, or a docstring'
            )
        path = _PLACEHOLDER.sub(r"{\1}", route.path).removesuffix("{$}")
        yield f"| `{route.method} {path}` | {route.what} |"


def operations(api: Json) -> Iterator[str]:
    """Yield a section for each operation."""
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield from (f"### {method.upper()} {path}", "")
            yield from (*operation["description"].splitlines(), "")
            yield from _parameters(operation["parameters"])
            if body := operation.get("requestBody"):
                yield from (f"Body: {_content(body)}", "")
            yield from _answers(operation["responses"])


def _parameters(parameters: list[Json]) -> Iterator[str]:
    if not parameters:
        return
    yield from ("| parameter | in | type | |", "| --- | --- | --- | --- |")
    for p in parameters:
        said = p.get("description", "")
        needed = "" if p["required"] or p["in"] == "header" else "optional"
        words = ". ".join(filter(None, [needed, said]))
        yield f"| `{p['name']}` | {p['in']} | {_type(p['schema'])} | {words} |"
    yield ""


def _answers(responses: Json) -> Iterator[str]:
    good = {code: r for code, r in responses.items() if code < "300"}
    bad = {code: r for code, r in responses.items() if code >= "300"}
    yield from (f"Answers {code}: {_content(r)}" + "  " for code, r in sorted(good.items()))
    said = (f"{code} ({r['description']})" for code, r in sorted(bad.items()))
    yield f"Errors: {', '.join(said)}"
    yield ""


def _content(part: Json) -> str:
    ((kind, said),) = part["content"].items()
    return _type(said["schema"]) if kind == "application/json" else "text"


def schemas(api: Json) -> Iterator[str]:
    """Yield a section for each model of the document's components."""
    for name, schema in sorted(api["components"]["schemas"].items()):
        yield from (f"### {name}", "")
        if said := schema.get("description"):
            yield from (*_one_paragraph(said), "")
        if fields := schema.get("properties"):
            yield from ("| field | type | |", "| --- | --- | --- |")
            yield from (_field(name, field, schema) for name, field in fields.items())
        else:
            yield _type(schema, named=False)
        yield ""


def _one_paragraph(text: str) -> Iterator[str]:
    yield " ".join(text.split())


def _field(name: str, field: Json, schema: Json) -> str:
    said = [" ".join(field.get("description", "").split())]
    if "default" in field:
        said.append(f"default `{json.dumps(field['default'])}`")
    elif name not in schema.get("required", ()):
        said.append("optional")
    return f"| `{name}` | {_type(field)} | {'; '.join(filter(None, said))} |"


def _type(schema: Json, named: bool = True) -> str:
    """Return a schema in words; models are linked."""
    if named and "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[`{name}`](#{name.lower()})"
    several = [s for key in ("anyOf", "oneOf", "allOf") for s in schema.get(key, ())]
    if several:
        return " or ".join(dict.fromkeys(_type(s) for s in several))
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{value}`" for value in values)
    return _plain(schema)


def _plain(schema: Json) -> str:
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'])}"
    return f"{schema.get('format', kind)}{_bounds(schema)}"


def _bounds(schema: Json) -> str:
    words = {
        "minimum": "from {}",
        "exclusiveMinimum": "above {}",
        "maximum": "to {}",
        "exclusiveMaximum": "below {}",
        "minLength": "{} characters or more",
        "maxLength": "at most {} characters",
        "maxItems": "at most {}",
    }
    found = [form.format(schema[key]) for key, form in words.items() if key in schema]
    return f" ({', '.join(found)})" if found else ""
