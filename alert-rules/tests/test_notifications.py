"""One cause, one notification: what a real Alertmanager, configured as shipped, sends of alerts that are planted in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from alertkit import rules
from alertmanagerkit import SHIPPED, Alertmanager, Notification, running
from daykit import HOUR, Day, Trouble, played

from vigia_testing import eventually

Labels = Mapping[str, str]

ALERTS = {r["alert"]: r for r in rules("alert")}
PATH = {"path": "ovs-vxlan", "tenant": "red", "probe": "stamp-64"}
UNDERLAY = {"path": "direct", "tenant": "_infra", "probe": "stamp-64"}
FROM, TO = {"src": "n1", "dst": "n2"}, {"src": "n3", "dst": "n1"}
OF_PATHS = (
    "VigiaPathLoss",
    "VigiaLossBudgetBurn",
    "VigiaDelayBudgetBurn",
    "VigiaJitterBudgetBurn",
    "VigiaOverlayTaxGrowth",
)


def alert(name: str, **labels: str) -> Labels:
    """An alert with the labels that its rule gives it; those that are made of its node are as for n1."""
    fixed = {
        k: v.replace("{{ $labels.node }}", labels.get("node", "")) for k, v in ALERTS[name]["labels"].items()
    }
    return {"alertname": name, **{k: v for k, v in fixed.items() if v}, **labels}


def paths(of: Labels, kind: Labels = PATH) -> list[Labels]:
    """Every alert about a path."""
    return [alert(name, **of, **kind) for name in OF_PATHS]


def settle(server: Alertmanager) -> list[Notification]:
    """Return what people were told, once everything that was planted has been dealt with.

    A group is dealt with its wait after its first alert: so a message about an alert that was planted last comes
    last, and one about another that is planted then comes after whatever was still on its way.
    """
    for _ in range(2):
        name = f"Last{len(server.inbox.of('people'))}"
        server.plant([{"alertname": name, "severity": "warning"}])
        eventually(lambda name=name: told(server.inbox.of("people"), name), f"a message about {name}")
    return [n for n in server.inbox.of("people") if not n.group["alertname"].startswith("Last")]


def told(notifications: Sequence[Notification], name: str) -> bool:
    return any(n.group.get("alertname") == name for n in notifications)


def about(server: Alertmanager, name: str) -> int:
    """How many alerts are in the newest message of a name."""
    return len([n for n in server.inbox.of("people") if n.group["alertname"] == name][-1].firing)


def groups(notifications: Sequence[Notification]) -> list[str]:
    """Names of the alerts of each group, however often it was told of: an alert that comes late tells it again."""
    return sorted(dict(g)["alertname"] for g in {tuple(sorted(n.group.items())) for n in notifications})


def firing(notifications: Sequence[Notification]) -> list[str]:
    """Names of the alerts in each message about one that fires."""
    return sorted(n.group["alertname"] for n in notifications if n.firing)


def test_a_node_that_is_taken_away_is_one_notification(tmp_path: Path) -> None:
    """With the alerts that the rules raise of it, while it is away and when it is back."""
    half = HOUR // 2
    day = Day(hours=1.5, troubles=[Trouble("down", "n3", half, half + 600)])
    away, after = played(day, tmp_path, [(half, half + 600), (half + 660, 1.5 * HOUR)], every=30)
    assert {dict(a)["alertname"] for a in away} >= {"VigiaNodeDown", "VigiaPathLoss", "VigiaProbeDown"}
    assert {"VigiaNodeReturned", "VigiaLossBudgetBurn"} <= {dict(a)["alertname"] for a in after}
    assert any(dict(a).get("dst") == "n3" for a in after)
    with running(tmp_path / "alertmanager", wait="2s") as server:
        server.plant(map(dict, away))
        (one,) = settle(server)
        assert [a["alertname"] for a in one.firing] == ["VigiaNodeDown"]
        assert one.firing[0]["node"] == "n3"
        # What keeps alerts back once the node is there again comes before what kept them back until then ends.
        server.plant(map(dict, after))
        server.plant(map(dict, away - after), ended=True)
        eventually(
            lambda: any(n.resolved for n in server.inbox.of("people")), "the message that the node is back"
        )
        assert [(firing([n]), len(n.resolved)) for n in settle(server)] == [(["VigiaNodeDown"], 0), ([], 1)]


CAUSES: Mapping[str, tuple[list[Labels], list[Labels]]] = {
    "a node is down": (
        [alert("VigiaNodeDown", node="n1")],
        [
            *(alert(f"Vigia{p}Down", node="n1", instance="i") for p in ("Probe", "Exporter", "Enforcer")),
            alert("VigiaNodeExporterDown", node="n1", instance="i", job="node"),
            alert("VigiaPeerUnresponsive", node="n2", peer="n1"),
            *paths(FROM),
            *paths(TO, UNDERLAY),
        ],
    ),
    "a probe is down": (
        [alert("VigiaProbeDown", node="n1", instance="i")],
        [
            *paths(TO),
            alert("VigiaNoProbes"),
            alert("VigiaProbeAccounting", node="n1"),
            alert("VigiaTenantInterference", node="n1", tenant="red", path="ovs-vxlan"),
        ],
    ),
    "an exporter is down": (
        [alert("VigiaExporterDown", node="n1", instance="i")],
        [
            alert("VigiaFloodsUnseen", node="n1"),
            alert("VigiaCollectorFailing", node="n1", collector="bpf"),
            alert("VigiaSeriesLimited", node="n1", collector="netdev"),
        ],
    ),
    "an enforcer is down": (
        [alert("VigiaEnforcerDown", node="n1", instance="i")],
        [
            alert("VigiaPeerUnresponsive", node="n2", peer="n1"),
            alert("VigiaGuaranteesOff", node="n1", state="changed", action="left"),
        ],
    ),
    "a host is busy": (
        [alert("VigiaHostBusy", node="n1")],
        [
            *paths(FROM),
            *paths(TO),
            alert("VigiaTenantInterference", node="n1", tenant="red", path="ovs-vxlan"),
        ],
    ),
    "a tenant floods": (
        [alert("VigiaUdpFlood", node="n1", port="p1", tenant="blue")],
        [alert("VigiaTenantInterference", node="n1", tenant="red", path="ovs-vxlan")],
    ),
    "a tenant disturbs another": (
        [alert("VigiaTenantInterference", node="n1", tenant="red", path="ovs-vxlan")],
        [a for a in paths(FROM) if a["alertname"] != "VigiaOverlayTaxGrowth"],
    ),
    "a path loses": (
        [alert("VigiaLossBudgetBurn", **FROM, **PATH)],
        [alert("VigiaPathLoss", **FROM, **PATH)],
    ),
    "a path is slow": (
        [alert("VigiaDelayBudgetBurn", **FROM, **PATH)],
        [alert(f"Vigia{what}", **FROM, **PATH) for what in ("JitterBudgetBurn", "OverlayTaxGrowth")],
    ),
    "the comparison is down": (
        [alert("VigiaCompareDown", job="vigia-compare", instance="i")],
        [alert("VigiaCompareStale", job="vigia-compare", instance="i")],
    ),
}
"""What is the matter: the alerts about it, which people are told, and those that it explains."""


ELSEWHERE = [
    alert("VigiaPathLoss", src="n4", dst="n5", **PATH),
    alert("VigiaFloodsUnseen", node="n4"),
    alert("VigiaTenantInterference", node="n6", tenant="red", path="ovs-vxlan"),
    alert("VigiaPeerUnresponsive", node="n4", peer="n5"),
]
"""Alerts that none of the causes explains."""


def moved(alerts: Sequence[Labels], what: str) -> list[Labels]:
    """The same alerts, at nodes of their own."""
    number = list(CAUSES).index(what)
    places = ("node", "src", "dst", "peer")
    return [{k: f"{v}-{number}" if k in places else v for k, v in a.items()} for a in alerts]


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[Labels]:
    """The alerts that people are told of when everything is the matter, each thing at nodes of its own."""
    with running(tmp_path_factory.mktemp("alertmanager")) as server:
        for what, (causes, _) in CAUSES.items():
            server.plant(moved(causes, what))
        settle(server)
        for what, (_, explained) in CAUSES.items():
            server.plant([*moved(explained, what), *moved(ELSEWHERE, what)])
        return [a for n in settle(server) for a in n.firing]


@pytest.mark.parametrize("what", CAUSES)
def test_a_cause_keeps_back_what_it_explains_and_nothing_else(what: str, messages: list[Labels]) -> None:
    causes, explained = CAUSES[what]
    for a in moved([*causes, *ELSEWHERE], what):
        assert a in messages
    for a in moved(explained, what):
        assert a not in messages


def test_what_is_kept_back_is_told_when_its_cause_ends(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.plant([alert("VigiaHostBusy", node="n1")])
        settle(server)
        server.plant(paths(FROM))
        assert firing(settle(server)) == ["VigiaHostBusy"]
        assert server.kept_back() == set(OF_PATHS)
        server.plant([alert("VigiaHostBusy", node="n1")], ended=True)
        eventually(lambda: told(server.inbox.of("people"), "VigiaLossBudgetBurn"), "the path's own alert")


def test_paths_are_grouped_and_nodes_are_not(tmp_path: Path) -> None:
    """However many paths lose; of each node that something is told; and once of a machine that several share."""
    nodes = [f"n{i}" for i in range(6)]
    losing = [
        alert("VigiaPathLoss", src=a, dst=b, **kind)
        for a in nodes
        for b in nodes
        if a != b
        for kind in (PATH, UNDERLAY)
    ]
    with running(tmp_path) as server:
        server.plant(losing)
        server.plant(alert("VigiaGuaranteesOff", node=n, state="changed", action="left") for n in nodes[:2])
        server.plant(alert("VigiaClock", node=n) for n in nodes)
        assert groups(settle(server)) == ["VigiaClock", *["VigiaGuaranteesOff"] * 2, "VigiaPathLoss"]
        eventually(lambda: about(server, "VigiaPathLoss") == len(losing) == 60, "a message about every path")
        server.plant(alert("VigiaHostBusy", node=n) for n in nodes)
        assert groups(settle(server)).count("VigiaHostBusy") == 1
        eventually(lambda: about(server, "VigiaHostBusy") == len(nodes), "a message about every host")


def test_the_isolation_agent_gets_every_flood_whatever_else_is_the_matter(tmp_path: Path) -> None:
    """Each port's in a message of its own; and people are told of a node once."""
    floods = [
        alert("VigiaUdpFlood", node=node, port=port, tenant=tenant)
        for node in ("n1", "n2")
        for port, tenant in (("p1", "red"), ("p2", "blue"))
    ]
    others = [
        alert(
            name,
            node="n1",
            src="n1",
            dst="n1",
            peer="n1",
            port="p1",
            tenant="red",
            path="ovs-vxlan",
            probe="x",
        )
        for name in ALERTS
        if name != "VigiaUdpFlood"
    ]
    with running(tmp_path) as server:
        server.plant(others)
        settle(server)
        server.plant(floods)
        said = settle(server)
        to_agent = server.inbox.of("isolation-agent")
    assert [len(n.firing) for n in to_agent] == [1] * len(floods)
    key = lambda a: (a["node"], a["port"], a["tenant"])  # noqa: E731
    assert sorted(key(n.firing[0]) for n in to_agent) == sorted(map(key, floods))
    assert sum(len(n.firing) for n in said if n.group["alertname"] == "VigiaUdpFlood") >= len(floods)
    assert {n.group["node"] for n in said if n.group["alertname"] == "VigiaUdpFlood"} == {"n1", "n2"}


def test_what_only_keeps_others_back_is_no_message(tmp_path: Path) -> None:
    information = [alert(n, node="n9") for n in ALERTS if ALERTS[n]["labels"]["severity"] == "info"]
    assert information
    with running(tmp_path) as server:
        server.plant(information)
        settle(server)
        server.plant([alert("VigiaPathLoss", src="n1", dst="n9", **PATH)])
        assert settle(server) == []
        assert {n.group["alertname"] for n in server.inbox.of("nobody")} == {
            a["alertname"] for a in information
        }


CONFIG = yaml.safe_load(SHIPPED.read_text())
INHIBITIONS = CONFIG["inhibit_rules"]


def matched(matchers: Sequence[str]) -> set[str]:
    """Names of the shipped alerts that matchers let through by name."""
    (pattern,) = [m for m in matchers if m.startswith("alertname")]
    operator, text = re.fullmatch(r'alertname(=~?)"(.*)"', pattern).groups()  # type: ignore[union-attr]
    if operator == "=":
        assert text in ALERTS, text
        return {text}
    for part in re.sub(r"\([^)]*\)", "X", text).split("|"):
        assert part, text
    return {name for name in ALERTS if re.fullmatch(text, name)}


@cache
def labels_seen() -> Mapping[str, set[str]]:
    """The labels that each alert has where promtool has raised it."""
    seen: dict[str, set[str]] = {}
    for file in Path(__file__).parent.glob("*.test.yml"):
        for test in yaml.load(file.read_text(), yaml.CSafeLoader)["tests"]:
            for case in test.get("alert_rule_test", []):
                for expected in case["exp_alerts"]:
                    seen.setdefault(case["alertname"], set()).update(expected["exp_labels"])
    return seen


@pytest.mark.parametrize("rule", INHIBITIONS, ids=lambda r: r["source_matchers"][0] + str(r.get("equal", "")))
def test_inhibitions_name_alerts_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    """An equal label that both lack is equal, too: then the one would keep back the other wherever it is."""
    sources, targets = matched(rule["source_matchers"]), matched(rule["target_matchers"])
    assert sources and targets
    assert not sources & targets, "an alert cannot keep itself back"
    for name in sources | targets:
        assert set(rule.get("equal", ())) <= labels_seen()[name], name


def test_nothing_keeps_back_what_the_isolation_agent_acts_upon() -> None:
    for rule in INHIBITIONS:
        assert 'isolate!="auto"' in rule["target_matchers"]
    first = CONFIG["route"]["routes"][0]
    assert first["matchers"] == ['isolate="auto"'] and first["receiver"] == "isolation-agent"
    assert first["group_wait"] == "0s" and {"node", "port", "tenant"} <= set(first["group_by"])


def test_every_alternative_of_an_inhibition_is_an_alert() -> None:
    """A name that is misspelt would match nothing, and nobody would notice."""
    text = SHIPPED.read_text()
    for group in re.findall(r"Vigia\(([A-Za-z|]+)\)([A-Za-z]*)", text):
        for part in group[0].split("|"):
            assert f"Vigia{part}{group[1]}" in ALERTS
    for name in re.findall(r"Vigia[A-Z][A-Za-z]+", text):
        assert name in ALERTS
