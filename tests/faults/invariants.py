"""What holds after every fault: series, records, kernel objects, and that nobody was accused falsely."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from faults.load import Alert, Load
from faults.registry import Expected, Scene
from faults.site import AGENT, SETTLED, Page, Site, run
from vigia.host import commands
from vigia.lab.files.probe import MESH
from vigia_testing import eventually

__all__ = [
    "Kernel",
    "Moment",
    "check",
    "foreign",
    "grown",
    "plant",
    "recovered",
    "stored",
    "wrongly_blamed",
    "wrongly_told",
]

SERIES = {
    "vigia-probe": {"vigia_probe_sent_total", "vigia_probe_received_total", "vigia_path_info"},
    "vigia-exporter": {"vigia_port_info", "vigia_exporter_collector_success"},
    "vigia-enforcer": {"vigia_isolation_guarantee_bytes_per_second", "vigia_enforcer_ports"},
}
"""What the pages of an agent have before and after, series by series."""

IN_PROMETHEUS = {name for names in SERIES.values() for name in names} | {"up", "vigia_probe_rtt_seconds"}

ACCUSES = re.compile(
    r"Vigia(PathLoss|Unreachable|UdpFlood|TenantInterference|GuaranteeViolated|PortDrops|VfSpoof"
    r"|OverlayTaxGrowth|(Loss|Delay|Jitter)BudgetBurn)"
)
"""Alerts that say something of the network or of a tenant."""

LOST = 0.02
"""Share of a node's probes that may be lost meanwhile without a fault in the network: what a busy machine loses, whose
user-space switch waits for a processor."""

AROUND = 30.0
"""Seconds before and after a flood in which it still does harm: until what is full is empty again, to a few scrapes."""

Series = tuple[str, frozenset[tuple[str, str]]]

FEW = 2.0
"""Probes on their way, which are counted as lost only when the path is well again."""

_NETWORK = {"forward", "reverse", "unknown"}


def plant(site: Site) -> None:
    """Put objects of somebody else beside ours: a qdisc, a classifier in BPF, a firewall table."""
    inside = site.lab.node("node1").netns
    commands.tc_batch(
        [
            "qdisc add dev infra-401 root handle 7777: pfifo limit 77",
            "qdisc add dev infra-402 clsact",
            "filter add dev infra-402 ingress prio 7777 protocol all bpf bytecode '1,6 0 0 0'",
            "qdisc add dev red-110 root handle 7778: pfifo limit 1077",
        ],
        netns=inside,
    )
    run("nft", "add table inet theirs", netns=inside)
    run("nft", "add chain inet theirs input { type filter hook input priority 0 ; }", netns=inside)
    run("nft", "add rule inet theirs input udp dport 7 counter drop", netns=inside)


def foreign(site: Site) -> list[str]:
    """Somebody else's objects, with the numbers that the kernel gave them: also a replacement is seen."""
    inside = site.lab.node("node1").netns
    return [
        *(run("tc", "qdisc", "show", "dev", d, netns=inside) for d in ("infra-401", "infra-402", "red-110")),
        run("tc", "filter", "show", "dev", "infra-402", "ingress", netns=inside),
        run("nft", "--handle", "list", "table", "inet", "theirs", netns=inside),
    ]


@dataclass(frozen=True)
class Kernel:
    """What is in the kernel of the nodes: devices, what is attached to them, and pins."""

    qdiscs: dict[str, list[str]]
    attached: dict[str, list[str]]
    """How our programs are attached to each device, by node."""
    guarantees: dict[str, list[str]]

    @classmethod
    def of(cls, site: Site) -> Kernel:
        nodes = {n.name: n.netns for n in site.lab.nodes}
        return cls(
            {
                n: sorted(_qdisc(q) for q in run("tc", "qdisc", "show", netns=i).splitlines())
                for n, i in nodes.items()
            },
            {n: _attached(site, n, i) for n, i in nodes.items()},
            {
                n: sorted(run("tc", "class", "show", "dev", "eth0", netns=i).splitlines())
                for n, i in nodes.items()
            },
        )


def _qdisc(line: str) -> str:
    return re.sub(r"refcnt \d+|direct_packets_stat \d+", "", line)


def _attached(site: Site, node: str, inside: str) -> list[str]:
    """Links are pinned by the device's number; one whose device is gone is shown by that number."""
    names = {str(d["ifindex"]): d["ifname"] for d in json.loads(run("ip", "-j", "link", netns=inside))}
    pins = site.lab.layout.pins(node) / "links"
    found = []
    for pin in pins.iterdir():
        number, _, how = pin.name.partition("-")
        found.append(f"{names.get(number, 'gone ' + number)} {how}")
    return sorted(found)


@dataclass(frozen=True)
class Moment:
    """How the site was at a moment at which all was well."""

    at: float
    pids: dict[str, int | None]
    restarts: dict[str, int]
    series: dict[str, set[Series]]
    kernel: Kernel
    foreign: list[str]
    probes: dict[str, Page]
    actions: set[str]

    @classmethod
    def of(cls, site: Site) -> Moment:
        status = site.status()["services"]
        return cls(
            time.monotonic(),
            {name: s["pid"] for name, s in status.items()},
            {name: s["restarts"] for name, s in status.items()},
            {s: _shown(answered(site, s), s) for s in _agents(site)},
            Kernel.of(site),
            foreign(site),
            {n.name: answered(site, f"vigia-probe@{n.name}") for n in site.lab.nodes},
            _actions(site),
        )


def _agents(site: Site) -> list[str]:
    return [s for s in site.services if s.partition("@")[0] in SERIES]


def _series(site: Site, service: str) -> set[Series]:
    return _shown(site.page(service), service)


def _shown(page: Page, service: str) -> set[Series]:
    """A pair of a mesh has series of its own only while it is bad, and for five minutes after: they come and go."""
    names = SERIES[service.partition("@")[0]]
    return {s for s in page if s[0] in names and ("probe", MESH) not in s[1]}


def answered(site: Site, service: str) -> Page:
    """The page of an agent, which answers, even if it is late: this machine may be busy."""
    found = eventually(lambda: site.page(service), f"the page of {service}", SETTLED)
    assert isinstance(found, dict)
    return found


def stored(site: Site) -> dict[str, int]:
    """How many series of each name Prometheus has at this moment."""
    found = site.query(
        f'count by (__name__) ({{__name__=~"{"|".join(sorted(IN_PROMETHEUS))}",probe!="{MESH}"}})'
    )
    return {r["metric"]["__name__"]: int(r["value"][1]) for r in found}


def _actions(site: Site) -> set[str]:
    return {a["id"] for a in site.api("/v1/actions", limit="100")["actions"]}


def recovered(site: Site, before: Moment) -> None:
    """Wait until everything works as before, with nobody's help."""
    for service in site.services:
        site.works(service)
    for service in _agents(site):
        eventually(
            lambda n=service: _series(site, n) == before.series[n],
            lambda n=service: f"the series of {n}: {_difference(_series(site, n), before.series[n])}",
            SETTLED,
        )
    eventually(
        lambda: len(site.query('up{job=~"vigia-.*-fast"} == 1')) == len(_agents(site)),
        "agents to be scraped",
        SETTLED,
    )
    eventually(lambda: _mismatch(site) == 0, "every probe to be accounted for", SETTLED)
    eventually(lambda: _failing(site) == [], lambda: f"all collectors to succeed: {_failing(site)}", SETTLED)
    eventually(
        lambda: Kernel.of(site) == before.kernel,
        lambda: f"the kernel to be as before: {_changes(Kernel.of(site), before.kernel)}",
        SETTLED,
    )


def _difference(now: set[Series], before: set[Series]) -> str:
    some = [(name, sorted(labels)) for name, labels in list(now ^ before)[:3]]
    return f"{len(before - now)} missing, {len(now - before)} new: {some}"


def _changes(now: Kernel, before: Kernel) -> list[str]:
    pairs = ((getattr(now, f), getattr(before, f)) for f in ("qdiscs", "attached", "guarantees"))
    return [
        f"{sign} {node}: {line}"
        for new, old in pairs
        for node in old
        for sign, lines in (("+", set(new[node]) - set(old[node])), ("-", set(old[node]) - set(new[node])))
        for line in sorted(lines)
    ]


def _mismatch(site: Site) -> float:
    pages = [site.page(f"vigia-probe@{n.name}") for n in site.lab.nodes]
    return sum(
        abs(v) for page in pages for (name, _), v in page.items() if name == "vigia_probe_accounting_mismatch"
    )


def _failing(site: Site) -> list[str]:
    return [str(r["metric"]) for r in site.query("vigia_exporter_collector_success == 0")]


def check(scene: Scene, before: Moment, expected: Expected) -> None:
    """Judge what happened since a moment, after everything has recovered."""
    site = scene.site
    _only_expected_restarts(site, before, expected)
    assert foreign(site) == before.foreign, "somebody else's objects have changed"
    _nobody_is_accused(scene, before, expected)
    _nothing_is_lost(scene)


def _only_expected_restarts(site: Site, before: Moment, expected: Expected) -> None:
    now = site.status()["services"]
    others = {
        name: (before.restarts[name], s["restarts"])
        for name, s in now.items()
        if s["pid"] != before.pids[name] and not expected.may_restart(name)
    }
    assert not others, f"started again without need: {others}"


def wrongly_blamed(interference: list[dict[str, Any]], floods: list[tuple[float, float]]) -> list[object]:
    """Whom vigia-compare names without a reason, of what it says of interference.

    It looks back for longer than a fault lasts: that red hurt blue is true for as long as a flood is within
    its period, if it names the time of one.
    """

    def excused(one: dict[str, Any]) -> bool:
        known = one["known"]
        begin, end = (known["begin"], known["end"]) if known else (-math.inf, math.inf)
        flooded = any(begin - AROUND <= to and since <= end + AROUND for since, to in floods)
        return one["offender"] == "red" and flooded

    return [i for i in interference if i["verdict"] == "attributed" and not excused(i)]


def _blamed(site: Site) -> list[dict[str, Any]]:
    """What vigia-compare says of interference, while its series name anybody."""
    if not site.query('vigia_compare_interference_verdict{verdict="attributed"} > 0'):
        return []
    answer = site.client.get(site.url("vigia-compare", "/v1/comparisons"), timeout=30.0)
    found: list[dict[str, Any]] = answer.raise_for_status().json()["interference"]
    return found


def _nobody_is_accused(scene: Scene, before: Moment, expected: Expected) -> None:
    site = scene.site

    def lost(alert: Alert) -> float:
        src = dict(alert.labels)["src"]
        return lost_on(alert, answered(site, f"vigia-probe@{src}"), before.probes[src])

    wrong = wrongly_told(scene.load, before.at, expected, lost)
    assert not wrong, f"people were told of a network that was well: {wrong[:5]}; {_where_lost(site)}"
    if not expected.limits:
        assert _actions(site) <= before.actions, "the isolation agent acted upon somebody"
        seconds = max(1, int(time.monotonic() - before.at))
        limits = site.query(f"max_over_time(vigia_isolation_limit_bytes_per_second[{seconds}s])")
        assert limits == [], "somebody was limited"
    blamed = wrongly_blamed(_blamed(site), scene.load.floods)
    assert not blamed, f"somebody was blamed: {blamed}; floods: {scene.load.floods}"
    if not expected.loses:
        shares = {node: _lost(site, node, page) for node, page in before.probes.items()}
        assert max(shares.values()) <= LOST, f"probes were counted as lost in the network: {shares}"


def _where_lost(site: Site) -> str:
    """What probes of the last minutes were lost, by cause, and for how long the hosts had no time for them."""
    lost = site.query(
        "sort_desc(sum by (src, dst, path, cause) (increase(vigia_probe_lost_total[3m])) > 0.5)"
    )
    shares = ", ".join(
        f"{m['src']}-{m['dst']} {m['path']} {m['cause']} {float(r['value'][1]):.0f}"
        for r in lost[:12]
        for m in [r["metric"]]
    )
    busy = site.query("sum by (node) (increase(vigia_probe_host_busy_seconds_total[3m]))")
    hosts = ", ".join(f"{r['metric']['node']} {float(r['value'][1]):.1f} s" for r in busy)
    return f"lost in 3 minutes: {shares or 'nothing'}; hosts too busy to measure: {hosts or 'not known'}"


def wrongly_told(
    load: Load, since: float, expected: Expected, lost: Callable[[Alert], float] = lambda _: math.inf
) -> list[str]:
    """What people were told of the network or a tenant since a moment without a reason.

    Budgets look back for hours: once a fault has really lost packets, that one is spent is true, also later.
    Of a path's loss people are told up to two minutes later: that it lost probes is true then, too, if none but
    those on their way are lost since, of which ``lost`` returns how many.
    """
    load.lost = load.lost or expected.loses
    told = [a for a in load.told_since(since) if ACCUSES.fullmatch(a.name)]
    earlier = [
        a for a in told if a.name.endswith("BudgetBurn") or (a.name == "VigiaPathLoss" and lost(a) <= FEW)
    ]
    true = earlier if load.lost else []
    return sorted(str(a) for a in told if a not in true and not expected.may_tell(a.name))


def lost_on(alert: Alert, now: Page, before: Page) -> float:
    """Probes that the network lost on an alert's path since a page was read; infinity if the page has no such path."""
    path = {pair for pair in alert.labels if pair[0] in ("src", "dst", "path", "tenant", "probe")}
    own, earlier = ({s: v for s, v in page.items() if path <= s[1]} for page in (now, before))
    return grown(own, earlier, "vigia_probe_lost_total", _NETWORK) if own else math.inf


def _lost(site: Site, node: str, before: Page) -> float:
    """Share of a node's probes that were lost in the network since a page was read."""
    now = answered(site, f"vigia-probe@{node}")
    sent = grown(now, before, "vigia_probe_sent_total", None)
    return grown(now, before, "vigia_probe_lost_total", _NETWORK) / max(sent, 1.0)


def grown(now: Page, before: Page, metric: str, causes: set[str] | None) -> float:
    total = 0.0
    for (name, labels), value in now.items():
        if name == metric and (causes is None or dict(labels).get("cause") in causes):
            earlier = before.get((name, labels), 0.0)
            total += value - earlier if value >= earlier else value  # it was started again
    return total


def on_record(site: Site) -> set[str]:
    """Fingerprints of all alerts in the audit log, and in what was moved away of it."""
    found: set[str] = set()
    for log in site.disk(AGENT).glob("audit.jsonl*"):
        whole, _, _ = log.read_text().rpartition("\n")  # what follows is being written
        for line in whole.splitlines():
            if (fingerprint := json.loads(line).get("fingerprint")) is not None:
                found.add(fingerprint)
    return found


def _nothing_is_lost(scene: Scene) -> None:
    """Every alert that was acknowledged is on record, and the records are one unbroken chain."""
    acknowledged = set(scene.load.acknowledged)
    assert acknowledged, "no alert has been acknowledged at all"
    eventually(
        lambda: acknowledged <= on_record(scene.site),
        lambda: f"acknowledged alerts to be on record; {len(acknowledged - on_record(scene.site))} are not",
    )
    agent = scene.site.services[AGENT].argv[2]
    config = scene.site.where.directory / "isolation-agent.yaml"
    done = subprocess.run(
        [agent, "--config", str(config), "audit", "verify"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
