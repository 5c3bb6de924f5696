"""Configurations, policies and enforcers' answers of any content: taken, or refused in words."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import vigia_config
from isolation_agent.config import Config
from isolation_agent.decision.evidence import evidence_of, missing, offered_load, verified
from isolation_agent.enforcers.client import Applied, PairList, RemovedAll
from isolation_agent.model.node import NodeState, View
from isolation_agent.policy import PolicyFile
from vigia_config import ConfigError

from .support.world import policy

SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["1s", "60s", "1e9h", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", 2**64, 1e308]
    )
)
TREE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
MANY = settings(max_examples=120, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def changed(draw: st.DrawFn, good: Any) -> Any:
    """A document like the good one, but for the values in a few places."""
    document = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(1, 3))):
        at = document
        while isinstance(at, (dict, list)) and at:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else list(range(len(at)))))
            if not isinstance(at[key], (dict, list)) or not at[key] or draw(st.booleans()):
                at[key] = draw(TREE)
                break
            at = at[key]
    return document


def refused_in_words(text: str, model: Any) -> None:
    try:
        vigia_config.parse("file.yaml", text, model)
    except ConfigError as e:
        assert str(e).startswith("file.yaml"), e
        assert len(str(e)) < 20_000


CONFIG = {
    "listen": "127.0.0.1:9874",
    "database": "sqlite:///agent.db",
    "auth": {
        "webhook_token_file": "w",
        "api_token_file": "a",
        "users": [{"name": "eve", "role": "viewer", "token_file": "e"}],
    },
    "policies": "policies.yaml",
    "hosts": [{"node": "lb1", "url": "http://127.0.0.1:1", "token_file": "t"}],
    "limits": {"alerts": 10, "request_time": "1s"},
    "controller": {"tick": "1s", "max_alert_age": "5m"},
}
POLICIES = {
    "version": 1,
    "policies": [policy(step={"up_to": "L3", "harm": {"alertname": "X"}, "after": "1s"})],
    "guards": {
        "allow": [{"tenant": "red", "role": "source", "reason": "r"}],
        "breaker": {"actions": 3, "within": "1m"},
    },
}
STATE = {
    "node": "lb1",
    "time": "2026-01-02T03:04:05.678901Z",
    "supports": ["term"],
    "term": 7,
    "ports": [
        {
            "port": "p",
            "tenant": "red",
            "guarantee_bytes_per_second": 5_000_000,
            "offered": {"udp_bytes_per_second": 1.0},
            "signals": {
                "flood_score": 1,
                "flood_detected_at": "2026-01-02T03:04:05Z",
                "flood_last_seen_at": None,
            },
            "limit": {"id": "x", "protocol": "udp", "rate_bytes_per_second": 1, "expires_in_seconds": 3.0},
        }
    ],
}


@MANY
@given(changed(CONFIG))
def test_any_configuration(document: Any) -> None:
    refused_in_words(yaml.safe_dump(document), Config)


@MANY
@given(changed(POLICIES))
def test_any_policies(document: Any) -> None:
    refused_in_words(yaml.safe_dump(document), PolicyFile)


@pytest.mark.parametrize(
    ("good", "model"), [(CONFIG, Config), (POLICIES, PolicyFile)], ids=["config", "policies"]
)
def test_any_bytes_in_place_of_some(good: Any, model: Any) -> None:
    text, source = yaml.safe_dump(good), random.Random(7)  # noqa: S311 - the same every time
    for _ in range(300):
        raw = list(text)
        for _ in range(source.randint(1, 4)):
            raw[source.randrange(len(raw))] = source.choice(
                ["\0", "{", "}", ":", "\n", "\t", "&a ", "*a", "!!python/x ", "\ud800", "9" * 40]
            )
        try:
            vigia_config.parse("file.yaml", "".join(raw).encode("utf-8", "surrogatepass"), model)
        except ConfigError as e:
            assert str(e).startswith("file.yaml"), e


@MANY
@given(changed(STATE))
def test_any_answer_of_an_enforcer(document: Any) -> None:
    try:
        state = NodeState.model_validate_json(json.dumps(document))
    except ValidationError:
        return
    for port in state.ports:
        view = View(state, accused=frozenset({port.port}))
        assert verified(view, port.port, 0.8) in (True, False)
        json.dumps(evidence_of(view, port))
        offered_load(port)
        missing(port)


@MANY
@given(TREE, st.sampled_from([Applied, PairList, RemovedAll, NodeState]))
def test_any_json_is_an_answer_or_refused(document: Any, model: Any) -> None:
    try:
        model.model_validate_json(json.dumps(document))
    except ValidationError:
        return


def test_a_good_document_is_taken() -> None:
    assert vigia_config.parse("c", yaml.safe_dump(CONFIG), Config).listen == "127.0.0.1:9874"
    assert len(vigia_config.parse("p", yaml.safe_dump(POLICIES), PolicyFile).policies) == 1
    assert NodeState.model_validate(STATE).find("p") is not None
