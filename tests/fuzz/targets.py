"""What is fuzzed in Python: each target takes any bytes, and raises nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

import vigia_config
from isolation_agent.alerts.payload import FUTURE, PAST, BadPayload, parse_payload
from isolation_agent.config import Config as AgentConfig
from isolation_agent.policy import PolicyFile, policy_set
from vigia.campaign.model import Campaign
from vigia.lab.schema import TopologySpec
from vigia.nodes.settings import Agent as NodeAgent
from vigia_compare.config import Config as CompareConfig
from vigia_config import ConfigError
from vigia_json import JsonError, loads
from vigia_prometheus import Prometheus, PrometheusError

__all__ = ["SEEDS", "TARGETS", "Target"]

SEEDS = Path(__file__).parent / "seeds"

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
_LONGEST = 64 << 10
"""Characters that an error may have: one line for each mistake, of which a file may have many."""


@dataclass(frozen=True)
class Target:
    """Something that reads bytes. It raises what is wrong with how it took them."""

    check: Callable[[bytes], None]
    seeds: tuple[Path, ...] = ()
    """Files elsewhere, beside those in seeds/NAME/."""


def _webhook(raw: bytes) -> None:
    """Every alert of a message is taken within the window of times, or refused in printable words."""
    try:
        found = parse_payload(raw, 1000, _NOW)
    except BadPayload as e:
        assert str(e).isprintable() and len(str(e)) < 500, e
        return
    assert len(found.alerts) + found.refused_total == len(json.loads(raw)["alerts"])
    for taken in found.alerts:
        assert _NOW - PAST <= taken.started <= _NOW + FUTURE
        assert taken.ended is None or abs(taken.ended - _NOW) <= PAST + timedelta(days=1)
    for refused in found.refused:
        assert refused.problem.isprintable() and len(refused.content) <= 2000


def _configuration(model: type[BaseModel], use: Callable[[Any], object] = lambda _: None) -> Target:
    def check(raw: bytes) -> None:
        try:
            parsed = vigia_config.parse("file.yaml", raw, model)
        except ConfigError as e:
            assert str(e).startswith("file.yaml"), e
            assert len(str(e)) < _LONGEST, "an error without end"
        else:
            use(parsed)

    return Target(check)


def _prometheus(raw: bytes) -> None:
    """Every question is answered with data or with one declared error, in a line."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=httpx.ByteStream(raw)))
    with Prometheus("http://prometheus.example:9090", transport=transport) as client:
        asked: list[Callable[[], object]] = [
            lambda: client.instant("x"),
            lambda: client.range("x", 1, 2, 1),
            lambda: client.total("x"),
            lambda: client.series(["x"]),
            lambda: client.label_values("x"),
            client.version,
        ]
        for ask in asked:
            try:
                ask()
            except PrometheusError as e:
                assert str(e).isprintable() and len(str(e)) < 500, e


def _policies(file: Any) -> None:
    for policy in policy_set(file).policies:
        assert 2 <= policy.ttl <= policy.ttl_max <= 60
        assert 0 < policy.params(repeats=1 << 30)["ttl"] <= 60
        policy.matches({"alertname": "x"})


def _json(raw: bytes) -> None:
    """Any text is a value or refused: bodies, and the files in which evidence is kept."""
    with suppress(JsonError):
        loads(raw)


_ROOT = Path(__file__).resolve().parents[2]

TARGETS: Mapping[str, Target] = {
    "webhook": Target(_webhook, tuple((_ROOT / "isolation-agent/tests/alerts/testdata").glob("*.json"))),
    "agent-config": _configuration(AgentConfig),
    "policies": _configuration(PolicyFile, _policies),
    "compare-config": _configuration(CompareConfig),
    "node-config": _configuration(NodeAgent),
    "campaign": _configuration(Campaign),
    "topology": _configuration(TopologySpec),
    "prometheus": Target(_prometheus),
    "json": Target(_json),
}
