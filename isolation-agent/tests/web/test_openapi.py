"""The OpenAPI document says what the API does: schemathesis asks for everything that it describes."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from isolation_agent.web.app import create_app

from ..support.world import API_TOKEN, WEBHOOK_TOKEN, World

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def schema(world: World) -> Any:
    world.flood()
    app = create_app(world.agent)
    document = world.api("GET", "/v1/openapi.json").get_json()
    made = schemathesis.openapi.from_dict(document)
    made.app = app
    return made


def test_every_route_but_the_pages_is_described(world: World) -> None:
    document = world.api("GET", "/v1/openapi.json").get_json()
    described = {
        (method.upper(), path) for path, operations in document["paths"].items() for method in operations
    }
    app = create_app(world.agent)
    routes = {
        (method, rule.rule.replace("<uuid:action_id>", "{action_id}").replace("<node>", "{node}"))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    not_json = {"/", "/console/<name>", "/-/healthy", "/-/ready", "/metrics", "/v1/openapi.json"}
    assert described == {(method, path) for method, path in routes if path not in not_json}
    assert document["openapi"] == "3.1.0"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert ("security" in operation) == (path != "/v1/session" or method != "post")


@pytest.mark.parametrize("examples", [5, pytest.param(40, marks=pytest.mark.long)])
def test_schemathesis_finds_nothing(world: World, schema: Any, examples: int) -> None:
    """Valid and invalid requests at every operation, each answer held against its schema."""
    asked = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        nonlocal asked
        token = WEBHOOK_TOKEN if "webhook" in case.path else API_TOKEN
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {token}"}
        response = case.call()
        case.validate_response(response, checks=CHECKS)
        asked += 1

    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            if mode is schemathesis.GenerationMode.NEGATIVE and operation.body == []:
                continue
            given(case=operation.as_strategy(generation_mode=mode))(ask)()
    assert asked > 20 * examples
    assert world.verify_audit().ok
