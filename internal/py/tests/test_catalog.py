"""The Python view of the metric catalogue."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from vigia_catalog import Factory, load, part_metrics


def test_every_part_is_there() -> None:
    assert {m.part for m in load().values()} >= {"probe", "exporter", "enforcer", "agent", "self"}


def test_self_metrics_take_the_parts_name() -> None:
    names = [m.name for m in part_metrics("agent")]
    assert "vigia_agent_build_info" in names
    assert not [n for n in names if "PART" in n or n.startswith("vigia_probe_")]
    assert names == sorted(names)


def test_factory_registers_with_catalogued_labels_and_help() -> None:
    registry = CollectorRegistry()
    factory = Factory("agent", registry)
    factory.counter("vigia_agent_webhook_requests_total").labels(code="200").inc()
    factory.gauge("vigia_agent_dry_run").set(1)
    factory.histogram("vigia_isolation_reaction_seconds", (0.1, 1.0)).labels(stage="apply").observe(0.5)
    text = generate_latest(registry).decode()
    assert 'vigia_agent_webhook_requests_total{code="200"} 1.0' in text
    assert "# HELP vigia_agent_dry_run 1 while the agent decides but does not act." in text
    assert 'vigia_isolation_reaction_seconds_bucket{le="1.0",stage="apply"} 1.0' in text


@pytest.mark.parametrize("name", ["vigia_nothing_total", "vigia_probe_sent_total", "vigia_agent_dry_run"])
def test_factory_refuses_what_is_not_a_counter_of_the_part(name: str) -> None:
    with pytest.raises(LookupError, match=name):
        Factory("agent", CollectorRegistry()).counter(name)
