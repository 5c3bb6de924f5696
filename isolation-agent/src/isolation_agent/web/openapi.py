"""The OpenAPI document, made from the routes themselves: scopes, docstrings, models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Flask
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from werkzeug.routing import Rule

from isolation_agent import __version__
from isolation_agent.web.answers.errors import ErrorAnswer
from isolation_agent.web.auth import OPEN, WEBHOOK, WRITERS, scope_of

__all__ = ["Param", "documented", "openapi"]

_REF = "#/components/schemas/{model}"
_VARIABLE = re.compile(r"<(?:(\w+):)?(\w+)>")
_WRITES = frozenset({"post", "put", "delete"})
_TEXT = {"text/plain": {"schema": {"type": "string"}}}

View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True)
class Param:
    """A query parameter."""

    name: str
    schema: dict[str, Any]
    description: str
    required: bool = False


@dataclass(frozen=True)
class _Spec:
    body: Any
    answer: Any
    status: int
    query: Sequence[Param]
    also: Sequence[int]


def documented(
    *,
    body: Any = None,
    answer: Any = None,
    status: int = 200,
    query: Sequence[Param] = (),
    also: Sequence[int] = (),
) -> Callable[[View], View]:
    """Say what a route takes and answers; ``also`` are further statuses with the same answer."""

    def mark(view: View) -> View:
        view.spec = _Spec(body, answer, status, query, also)  # type: ignore[attr-defined]
        return view

    return mark


def openapi(app: Flask) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1) of every route of the API."""
    schemas: dict[str, Any] = {}
    _schema(ErrorAnswer, schemas)
    paths: dict[str, dict[str, Any]] = {}
    for rule in app.url_map.iter_rules():
        spec = getattr(app.view_functions[rule.endpoint], "spec", None)
        if spec is None:
            continue
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            path = _VARIABLE.sub(r"{\2}", rule.rule)
            paths.setdefault(path, {})[method.lower()] = _operation(app, rule, method.lower(), spec, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Vigia isolation agent",
            "version": __version__,
            "description": "Rate-limits flooding tenants. Errors have one shape; times are RFC 3339.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "vigia_session"},
            },
        },
    }


def _operation(app: Flask, rule: Rule, method: str, spec: _Spec, schemas: dict[str, Any]) -> dict[str, Any]:
    scope = scope_of(app, rule.endpoint)
    text = inspect.getdoc(app.view_functions[rule.endpoint]) or rule.endpoint
    operation: dict[str, Any] = {
        "operationId": rule.endpoint.replace(".", "_"),
        "summary": text.splitlines()[0],
        "description": f"{text}\n\nWho may: {scope}.",
        "parameters": [*_path_parameters(rule), *_query_parameters(spec)],
        "responses": _responses(spec, scope, schemas, method),
    }
    if spec.body is not None:
        content = {"application/json": {"schema": _schema(spec.body, schemas, "validation")}}
        operation["requestBody"] = {"required": True, "content": content}
    if scope != OPEN:
        operation["security"] = [{"token": []}] if scope == WEBHOOK else [{"token": []}, {"session": []}]
    if scope in WRITERS and method in _WRITES:
        operation["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$"},
                "description": "The same key again gives the same answer, and nothing happens twice.",
            }
        )
    return operation


def _path_parameters(rule: Rule) -> list[dict[str, Any]]:
    kinds = {"uuid": {"type": "string", "format": "uuid"}}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": kinds.get(kind, {"type": "string", "pattern": "^[A-Za-z0-9_.:@-]+$"}),
        }
        for kind, name in _VARIABLE.findall(rule.rule)
    ]


def _query_parameters(spec: _Spec) -> list[dict[str, Any]]:
    return [
        {
            "name": p.name,
            "in": "query",
            "required": p.required,
            "schema": p.schema,
            "description": p.description,
        }
        for p in spec.query
    ]


def _responses(spec: _Spec, scope: str | None, schemas: dict[str, Any], method: str) -> dict[str, Any]:
    good = (
        {"application/json": {"schema": _schema(spec.answer, schemas)}} if spec.answer is not None else _TEXT
    )
    responses: dict[str, Any] = {
        str(status): {"description": "done", "content": good} for status in (spec.status, *spec.also)
    }
    error = {"application/json": {"schema": {"$ref": _REF.format(model="ErrorAnswer")}}}
    known = {
        400: "the request is malformed",
        401: "no valid token or session",
        403: "not allowed",
        404: "there is no such thing",
        409: "not possible as things stand",
        413: "the body is too large",
        415: "the body is not JSON",
        422: "the idempotency key was used for another request",
        429: "too many wrong tokens; wait as Retry-After says",
        500: "internal error",
        503: "nothing can be stored; try again",
    }
    if scope == OPEN and spec.body is None:
        known = {503: known[503]}
    elif method not in _WRITES:
        known = {k: v for k, v in known.items() if k not in (409, 413, 415, 422)}
    for status, description in known.items():
        responses.setdefault(
            str(status),
            {"description": description, "content": error if spec.answer or status != 503 else _TEXT},
        )
    return responses


def _schema(model: Any, schemas: dict[str, Any], mode: JsonSchemaMode = "serialization") -> dict[str, Any]:
    """Put a model's schema and those that it needs among the components; return the reference to it."""
    made = TypeAdapter(model).json_schema(ref_template=_REF, mode=mode)
    schemas.update(made.pop("$defs", {}))
    if "title" not in made or "$ref" in made:
        return dict(made)
    schemas[made["title"]] = made
    return {"$ref": _REF.format(model=made["title"])}
