"""The Python view of the metric catalogue."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from vigia_catalog import (
    FAST_PAGE,
    MAIN_PAGE,
    VERDICT_PAGE,
    CatalogueError,
    Factory,
    Metric,
    load,
    open_labels,
    part_metrics,
)
from vigia_catalog.listing import listing


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


def toy(metric: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A catalogue of one metric; what is more goes into its file, but sets, which are shared."""
    whole = {"name": "vigia_a", "type": "gauge", "unit": "u", "labels": ["who", "direction"], "help": "H."}
    shared = {"open": {"who": "someone"}, "sets": more.pop("sets", {"way": ["forward", "reverse"]})}
    return {"labels.yaml": shared, "x.yaml": {"part": "x", "metrics": [whole | metric], **more}}


@pytest.mark.parametrize(
    ("documents", "values"),
    [
        (toy({"values": {"direction": ["up", "down"]}}), ("up", "down")),
        (toy({"values": {"direction": "way"}}), ("forward", "reverse")),
        (toy({"values": {"direction": [{"set": "way"}, "both"]}}), ("forward", "reverse", "both")),
        (toy({}, values={"direction": "way"}), ("forward", "reverse")),
        (toy({"values": {"direction": ["up"]}}, values={"direction": "way"}), ("up",)),
    ],
)
def test_values_come_from_metric_file_or_set(documents: dict[str, Any], values: tuple[str, ...]) -> None:
    assert load(documents)["vigia_a"].values == {"direction": values}


def test_a_label_can_be_open_for_one_metric() -> None:
    documents = toy({"values": {"direction": "open"}}, values={"direction": "way"})
    assert load(documents)["vigia_a"].values == {}


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        (toy({}), "label direction has no values; list them, or declare it open in labels.yaml"),
        (
            toy({"values": {"kind": ["x"]}}, values={"direction": "way"}),
            "values for kind, which is none of its",
        ),
        (toy({"values": {"direction": "ways"}}), "no set ways in labels.yaml"),
        (toy({"values": {"direction": [{"sets": "way"}]}}), "no set None in labels.yaml"),
        (toy({"values": {"direction": []}}), "the list of values is empty"),
        (toy({"values": {"direction": ["x", "x"]}}), "bad or repeated value 'x'"),
        (toy({"values": {"direction": ["forward", {"set": "way"}]}}), "bad or repeated value 'forward'"),
        (toy({"values": {"direction": [True]}}), "bad or repeated value True; values are strings, quote it"),
        (toy({"values": {"direction": [64]}}), "bad or repeated value 64"),
        (toy({"values": {"direction": "way"}}, sets={"way": ["a\nb"]}), "bad or repeated value"),
    ],
)
def test_a_catalogue_that_contradicts_itself_is_refused(documents: dict[str, Any], problem: str) -> None:
    with pytest.raises(CatalogueError, match=problem) as refused:
        load(documents)
    assert "metric vigia_a" in str(refused.value)


def test_every_label_is_closed_or_explained() -> None:
    explained = open_labels()
    assert "tenant" in explained and all(explained.values())
    closed = {(m.name, label) for m in load().values() for label in m.values}
    assert ("vigia_isolation_actions", "state") in closed and len(closed) > 100


def test_factory_refuses_values_that_are_not_listed() -> None:
    factory = Factory("agent", CollectorRegistry())
    actions = factory.gauge("vigia_isolation_actions")
    reaction = factory.histogram("vigia_isolation_reaction_seconds", (0.1, 1.0))
    alerts = factory.counter("vigia_agent_alerts_total")
    actions.labels("active", "L2", "any policy at all").set(1)
    actions.labels(state="active", level="L2", policy="x").set(1)
    with pytest.raises(
        CatalogueError,
        match=r"vigia_isolation_actions: label state cannot be 'ACTIVE': the catalogue lists received, ",
    ):
        actions.labels("ACTIVE", "L2", "x")
    with pytest.raises(CatalogueError, match="label level cannot be 'L9'"):
        actions.labels(policy="x", level="L9", state="active")
    with pytest.raises(CatalogueError, match="label stage cannot be 'think'"):
        reaction.labels("think")
    with pytest.raises(CatalogueError, match="label outcome cannot be 'None'"):
        alerts.labels("firing", None)
    with pytest.raises(ValueError, match="label"):
        alerts.labels("firing")
    samples = {tuple(s.labels.values()): s.value for m in actions.collect() for s in m.samples}
    assert samples == {("active", "L2", "any policy at all"): 1.0, ("active", "L2", "x"): 1.0}


def test_a_metric_is_on_the_main_page_unless_the_catalogue_says_more() -> None:
    fast = {m.name: m.pages for m in load().values() if m.on_fast_page}
    assert fast["vigia_port_flood_score"] == (MAIN_PAGE, FAST_PAGE)
    assert fast["vigia_probe_recent_bad_targets"] == (FAST_PAGE,)
    assert load()["vigia_probe_sent_total"].pages == (MAIN_PAGE,) and len(fast) <= 10
    documents = toy({"pages": [FAST_PAGE]}, values={"direction": "way"})
    assert load(documents)["vigia_a"].pages == (FAST_PAGE,)


METRIC = Metric(
    "vigia_a_total", "counter", "packets", ("x", "y"), "Help.", "p", {"y": ("one", "own traffic", "")}
)
PLAIN = Metric("vigia_b", "gauge", "ratio", (), "More.", "p")
FAST = Metric("vigia_c", "gauge", "ratio", (), "Now.", "p", pages=(MAIN_PAGE, FAST_PAGE))
SLOW = Metric("vigia_d", "gauge", "ratio", (), "Slow.", "p", pages=(VERDICT_PAGE,))


def test_listings() -> None:
    """What print.go prints of the same metrics; a contract test compares both for the whole catalogue."""
    assert listing([METRIC, PLAIN, FAST, SLOW], "text").splitlines() == [
        "vigia_a_total{x,y} counter, packets",
        "    Help.",
        '    y: one, "own traffic", ""',
        "vigia_b{} gauge, ratio",
        "    More.",
        "vigia_c{} gauge, ratio",
        "    Now.",
        "    pages: /metrics, /metrics/fast",
        "vigia_d{} gauge, ratio",
        "    Slow.",
        "    pages: /metrics/verdicts",
    ]
    rows = listing([METRIC, PLAIN, FAST, SLOW], "markdown").splitlines()
    assert rows[2] == '| `vigia_a_total` | counter | packets | `x` `y` (`one`, `own traffic`, `""`) | Help. |'
    assert rows[3] == "| `vigia_b` | gauge | ratio |  | More. |"
    assert rows[4] == "| `vigia_c` | gauge | ratio |  | Now. On `/metrics`, `/metrics/fast`. |"
    assert rows[5] == "| `vigia_d` | gauge | ratio |  | Slow. On `/metrics/verdicts`. |"
    first, second, third, _ = json.loads(listing([METRIC, PLAIN, FAST, SLOW], "json"))
    assert second["pages"] == ["/metrics"] and third["pages"] == ["/metrics", "/metrics/fast"]
    assert first["values"] == {"y": ["one", "own traffic", ""]} and "values" not in second
    with pytest.raises(ValueError, match="unknown format xml: use text, json or markdown"):
        listing([METRIC], "xml")
