"""A day of ordinary operation of a small site, as the series that Prometheus scrapes, and what the shipped rules say to it.

Traffic follows the hours and has bursts; single probes are lost, some round trips are slow; scrapes fail now and then;
programs are restarted, and their counters begin anew; ports and targets come and go, and new targets learn their
objectives. Everything is drawn from a seed, so that a day is the same whenever it is played. Troubles can be put into it.

promtool of this version knows no native histograms: of what is recorded from them, the day has the records.
"""

from __future__ import annotations

import math
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["HOUR", "Alert", "Day", "Trouble", "alerts", "notation", "played"]

ROOT = Path(__file__).resolve().parents[1]

SCRAPE = 15
"""Seconds between two scrapes of what isolation does not need within a second."""

CHUNK = 300
"""Seconds for which a rate stays the same."""

RATE = 20
"""Probes per second of a target."""

HOUR = 3600
NODES = ("n1", "n2", "n3")
_PROBED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "n1": {"n2": ("red", "blue"), "n3": ("red",)},
    "n2": {"n1": ("red",)},
    "n3": {"n1": ("red",)},
}
"""Which tenants' paths are probed between which nodes, beside the underlay."""

AGENTS = ("vigia-probe", "vigia-exporter", "vigia-enforcer")
PORTS = {"p1": "red", "p2": "blue", "p3": "green", "p4": "green"}
CAUSES = ("unknown", "forward", "local_overflow")

SENT = RATE * SCRAPE
"""Probes between two scrapes."""

Labels = Mapping[str, str]
Growth = Callable[[float], float | None]
"""By how much a counter grows up to a second; None where there is no counter."""

Value = float | None
"""None where nothing is scraped."""


@dataclass(frozen=True)
class Trouble:
    """Something out of the ordinary, from begin to end in seconds."""

    kind: str
    """down or busy, of a node; loss or slow, of a path from a node; flood, of a port; clock; restarts."""
    node: str
    begin: float
    end: float
    where: str = ""
    """dst of a path, name of a port, or program."""
    share: float = 0.0
    """of the probes, or of the time"""

    def at(self, second: float) -> bool:
        """Whether it is there."""
        return self.begin <= second < self.end


@dataclass(frozen=True)
class Target:
    """What Prometheus scrapes."""

    job: str
    node: str
    period: int
    failed: frozenset[int]
    """Numbers of the scrapes that fail."""
    restarted: frozenset[int]
    """Numbers of the scrapes before which its program began anew."""

    @property
    def labels(self) -> dict[str, str]:
        labels = {"job": self.job, "instance": f"{self.node or 'site'}:{self.job}"}
        return {**labels, "node": self.node} if self.node else labels


@dataclass
class Day:
    """A day from midnight on, or some hours of it, in steps of so many seconds."""

    hours: float = 24.0
    step: int = SCRAPE
    seed: int = 1
    troubles: Sequence[Trouble] = ()
    series: dict[str, str] = field(default_factory=dict)
    """Values in promtool's notation by series."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - traffic, not secrets
        self._seconds = int(self.hours * HOUR)
        self._make_site()
        for node in NODES:
            self._make_probe(node)
            self._make_exporter(node)
            self._make_enforcer(node)
            self._make_host(node)

    # Scrapes.

    def _count(self, period: int) -> int:
        return self._seconds // period + 1

    def _target(self, job: str, node: str, period: int = SCRAPE) -> Target:
        """A target of which a scrape fails every few hours, and whose program is restarted once a day."""
        draw, count = self.random, self._count(period)
        failed = {k for k in range(count) if draw.random() < period / (3 * HOUR)}
        restarted = {draw.randrange(count)} if self.hours >= 1 and node else set()
        failed |= {
            k + i for k in restarted for i in range(1 + 2 // period)
        }  # it does not answer while it starts
        for t in self.of("down", node):
            gone = {k for k in range(count) if t.at(k * period)}
            failed |= gone
            restarted |= {max(gone) + 1} if gone else set()
        target = Target(job, node, period, frozenset(failed), frozenset(restarted))
        self._put("up", target, {}, [0.0 if k in failed else 1.0 for k in range(count)], always=True)
        return target

    def of(self, kind: str, node: str, where: str | None = None) -> list[Trouble]:
        return [
            t for t in self.troubles if (t.kind, t.node) == (kind, node) and where in (None, t.where or where)
        ]

    def _put(
        self, name: str, target: Target, labels: Labels, values: Sequence[Value], *, always: bool = False
    ) -> None:
        """Keep a series as it is scraped: where a scrape fails, it is stale."""
        scraped: list[Value] = list(values)
        if not always:
            scraped = [None if k in target.failed else v for k, v in enumerate(scraped)]
        all_labels = {**labels, **target.labels}
        self._add(name, all_labels, scraped, target.period)

    def _add(self, name: str, labels: Labels, values: Sequence[Value], period: int) -> None:
        inner = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))
        series = f"{name}{{{inner}}}"
        assert series not in self.series, series
        self.series[series] = " ".join(notation(values, period // self.step or 1))

    def _rising(self, name: str, target: Target, labels: Labels, growth: Growth) -> None:
        """Put a counter that grows so much between two scrapes; there is none where the growth is not known."""
        values: list[Value] = []
        total: float | None = None
        for k in range(self._count(target.period)):
            more = growth(k * target.period)
            if k in target.restarted:
                total = 0.0
            if more is None:
                total = None
            elif total is None:
                total = 0.0
            else:
                total += more
            values.append(total)
        self._put(name, target, labels, values)

    def _flat(self, name: str, target: Target, value: float, **labels: str) -> None:
        self._put(name, target, labels, [value] * self._count(target.period))

    def by_chunk(self, draw: Callable[[float], float]) -> Callable[[float], float]:
        """A value that is drawn anew every few minutes."""
        drawn = [draw(c * CHUNK) for c in range(self._seconds // CHUNK + 1)]
        return lambda second: drawn[int(second) // CHUNK]

    # The parts.

    def _make_site(self) -> None:
        agent = self._target("isolation-agent", "")
        self._flat("vigia_agent_breaker_tripped", agent, 0)
        self._flat("vigia_agent_config_last_reload_successful", agent, 1)
        compare = self._target("vigia-compare", "")
        self._flat("vigia_compare_prometheus_up", compare, 1)
        self._flat("vigia_compare_state_unsaved_seconds", compare, 0)
        self._flat("vigia_compare_config_last_reload_successful", compare, 1)

    def _make_probe(self, node: str) -> None:
        page = self._target("vigia-probe", node)
        fast = self._target("vigia-probe-fast", node, min(self.step, SCRAPE))
        self._flat("vigia_probe_config_last_reload_successful", page, 1)
        busy = self.of("busy", node)
        backup = self.random.randrange(HOUR // 2, max(self._seconds, HOUR))  # takes a node's processors

        def starved(second: float) -> float:
            shares = [t.share for t in busy if t.at(second)]
            return SCRAPE * max([*shares, 1.0 if backup <= second < backup + 45 else 0.0])

        self._rising("vigia_probe_host_busy_seconds_total", page, {}, starved)
        mesh = {
            "src": node,
            "src_zone": "z",
            "dst_zone": "z",
            "path": "direct",
            "tenant": "_infra",
            "probe": "c",
        }
        self._rising("vigia_probe_mesh_sent_total", page, mesh, lambda _: SENT)
        self._rising("vigia_probe_mesh_lost_total", page, {**mesh, "cause": "network"}, lambda _: 0.0)
        for dst, tenants in _PROBED[node].items():
            for tenant in ("_infra", *tenants):
                path = "direct" if tenant == "_infra" else "ovs-vxlan"
                self._make_path(page, fast, {"src": node, "dst": dst, "path": path, "tenant": tenant})

    def _make_path(self, page: Target, fast: Target, path: dict[str, str]) -> None:
        labels = {**path, "probe": "stamp-64"}
        there = _Path(self, path)
        rising: list[tuple[str, Labels, Growth]] = [("vigia_probe_sent_total", {}, there.sent)]
        rising += [("vigia_probe_lost_total", {"cause": c}, there.lost(c)) for c in CAUSES]
        rising += [("vigia_probe_judged_total", {"objective": o}, there.judged) for o in ("delay", "jitter")]
        rising += [("vigia_probe_slow_total", {}, there.beyond(0.01))]
        rising += [("vigia_probe_unsteady_total", {}, there.beyond(0.015))]
        reasons = ("clock_step", "implausible")
        rising += [("vigia_probe_quarantined_total", {"reason": r}, there.quarantined(r)) for r in reasons]
        for name, more, growth in rising:
            self._rising(name, page, {**labels, **more}, growth)
        exists = [there.exists(k * SCRAPE) for k in range(self._count(SCRAPE))]
        self._put("vigia_probe_accounting_mismatch", page, labels, [0.0 if e else None for e in exists])
        self._make_recent(fast, labels, (*there.lossy, *there.slow))
        if path["tenant"] != "_infra":
            draw = self.random
            tax = self.by_chunk(lambda second: 30e-6 * draw.uniform(0.9, 1.1) * (1 + load(second) / 4))
            values = [tax(k * SCRAPE) if e else None for k, e in enumerate(exists)]
            self._add("path:vigia_probe_overlay_tax_seconds:p50_rate1m", labels, values, SCRAPE)

    def _make_recent(self, fast: Target, labels: Labels, troubles: Sequence[Trouble]) -> None:
        """The fast page: the node's worst targets alone, for as long as there is something to tell of them."""
        draw, count = self.random, self._count(fast.period)
        if labels["tenant"] == "_infra":
            return
        for name, kind, usual in (
            ("vigia_probe_recent_loss_ratio", "loss", 1 / (10 * RATE)),
            ("vigia_probe_recent_slow_ratio", "slow", 0.05),
        ):
            values: list[Value] = [None] * count
            for begin in (draw.randrange(count) for _ in range(max(1, int(self.hours)))):
                for k in range(begin, min(count, begin + max(1, 10 // fast.period))):
                    values[k] = usual
            for t in troubles:
                for k in range(count):
                    if t.kind == kind and t.at(k * fast.period):
                        values[k] = t.share
            self._put(name, fast, labels, values)

    def _make_exporter(self, node: str) -> None:
        page = self._target("vigia-exporter", node)
        fast = self._target("vigia-exporter-fast", node, min(self.step, SCRAPE))
        self._flat("vigia_exporter_config_last_reload_successful", page, 1)
        self._flat("vigia_exporter_ports", page, 4, state="resolved")
        self._flat("vigia_exporter_flood_watched_ports", fast, 4)
        self._flat("vigia_exporter_ports", page, 0, state="unresolved")
        for collector in ("netdev", "bpf", "openflow"):
            self._flat("vigia_exporter_collector_success", page, 1, collector=collector)
            self._flat("vigia_exporter_series_limited_total", page, 0, collector=collector)
        for port, tenant in PORTS.items():
            self._make_port(page, fast, {"port": port, "tenant": tenant})
        draw = self.random
        flows = self.by_chunk(lambda second: 20000 * load(second) * draw.uniform(0.8, 1.2))
        samples = [k * SCRAPE for k in range(self._count(SCRAPE))]
        table, datapath = {"bridge": "br-int", "table": "0"}, {"datapath": "netdev@ovs-netdev"}
        self._put("vigia_openflow_table_flows", page, table, [flows(s) // 10 for s in samples])
        self._put("vigia_openflow_table_limit", page, table, [10000.0] * len(samples))
        self._put("vigia_ovs_datapath_flows", page, datapath, [flows(s) for s in samples])
        self._put("vigia_ovs_flow_limit", page, datapath, [200000.0] * len(samples))
        for result, per_scrape in (("hit", 500000.0), ("missed", 3000.0), ("lost", 0.0)):
            self._rising(
                "vigia_ovs_datapath_lookups_total",
                page,
                {**datapath, "result": result},
                lambda _, n=per_scrape: n,
            )
        for result, per_scrape in (("success", 3000.0), ("failed", 0.0)):
            self._rising(
                "vigia_ovs_thread_upcalls_total",
                page,
                {"thread": "handler10", "result": result},
                lambda _, n=per_scrape: n,
            )

    def _make_port(self, page: Target, fast: Target, port: dict[str, str]) -> None:
        """A port's traffic by the hour, with bursts of a few minutes; one is there by day alone."""
        draw = self.random
        floods = self.of("flood", page.node, port["port"])

        def exists(second: float) -> bool:
            return port["port"] != "p4" or 8 * HOUR <= second < 20 * HOUR

        for direction, usual in (("from_tenant", 400_000), ("to_tenant", 900_000)):

            def amount(second: float, usual: int = usual) -> float:
                burst = 8 if draw.random() < CHUNK / (2 * HOUR) else 1
                return round(usual * load(second) * draw.uniform(0.7, 1.3) * burst)

            rate = self.by_chunk(amount)
            way = {**port, "direction": direction}

            def size(second: float, rate: Callable[[float], float] = rate) -> float | None:
                more = 60e6 if any(t.at(second) for t in floods) else 0.0
                return (rate(second) + more) * SCRAPE if exists(second) else None

            def packets(second: float, size: Callable[[float], float | None] = size) -> float | None:
                n = size(second)
                return n and n // 1000

            self._rising("vigia_port_bytes_total", page, way, size)
            self._rising("vigia_port_packets_total", page, way, packets)
            full = self.by_chunk(lambda _: draw.choice((0.0, 0.0, 0.0, 5e-4)))

            def dropped(
                second: float,
                packets: Callable[[float], float | None] = packets,
                full: Callable[[float], float] = full,
            ) -> float | None:
                n = packets(second)
                return n and n * full(second) // 1

            self._rising("vigia_port_drops_total", page, {**way, "reason": "queue_full"}, dropped)
            # A tenant that sends more than its contract allows is limited, which is meant.
            limit = 30000.0 if port["port"] == "p3" and direction == "from_tenant" else 0.0
            self._rising(
                "vigia_port_drops_total",
                page,
                {**way, "reason": "rate_limit"},
                lambda second, n=limit: n * (14 * HOUR <= second < 15 * HOUR) if exists(second) else None,
            )
        # A name server speaks to many ports, which answer: just below a flood. It is on both pages while it has something to tell.
        server = port["port"] == "p2"
        score = self.by_chunk(lambda second: (65.0 if server and load(second) > 0.9 else draw.randrange(20)))
        for target in (page, fast):
            seconds = [k * target.period for k in range(self._count(target.period))]
            scores = [100.0 if any(t.at(s) for t in floods) else score(s) for s in seconds]
            told = [exists(s) and v >= 40 for s, v in zip(seconds, scores, strict=True)]
            spread = [v * 40 for v in scores]
            for name, values in (
                ("vigia_port_flood_score", scores),
                ("vigia_port_udp_destination_ports", spread),
            ):
                self._put(
                    name, target, port, [v if there else None for v, there in zip(values, told, strict=True)]
                )

    def _make_enforcer(self, node: str) -> None:
        page = self._target("vigia-enforcer", node)
        fast = self._target("vigia-enforcer-fast", node, min(self.step, SCRAPE))
        del fast  # no limit is in force: its page is empty
        self._flat("vigia_enforcer_config_last_reload_successful", page, 1)
        self._flat("vigia_enforcer_contracts_left_out", page, 0)
        for port, tenant in PORTS.items():
            for direction in ("from_tenant", "to_tenant"):
                self._flat(
                    "vigia_isolation_guarantee_bytes_per_second",
                    page,
                    1_250_000,
                    port=port,
                    tenant=tenant,
                    direction=direction,
                )
        self._rising(
            "vigia_enforcer_drift_total",
            page,
            {"state": "changed", "action": "repaired"},
            lambda _: float(self.random.random() < SCRAPE / (6 * HOUR)),
        )
        self._flat("vigia_enforcer_drift_total", page, 0, state="failed", action="given_up")
        for peer in NODES:
            if peer != node:
                away = self.of("down", peer)
                seconds = [k * SCRAPE for k in range(self._count(SCRAPE))]
                asked = [float(any(t.at(s - SCRAPE) for t in away)) for s in seconds]
                self._put("vigia_enforcer_peer_unresponsive", page, {"peer": peer}, asked)

    def _make_host(self, node: str) -> None:
        draw = self.random
        page = self._target("node", node)
        entries = self.by_chunk(lambda second: round(100_000 * load(second) * draw.uniform(0.6, 1.4)))
        seconds = [k * SCRAPE for k in range(self._count(SCRAPE))]
        self._put("node_nf_conntrack_entries", page, {}, [entries(s) for s in seconds])
        self._flat("node_nf_conntrack_entries_limit", page, 262144)
        restart = draw.randrange(max(self._seconds, 1))  # of the time service
        lost = self.of("clock", node)
        synchronised = [
            float(not (restart <= s < restart + 180 or any(t.at(s) for t in lost))) for s in seconds
        ]
        self._put("node_timex_sync_status", page, {}, synchronised)


class _Path:
    """What becomes of the probes of a target between two scrapes."""

    def __init__(self, day: Day, path: Labels) -> None:
        src, dst = path["src"], path["dst"]
        self._day, self._draw = day, day.random
        # One target is new in the morning, and learns for an hour; another is given up in the evening.
        self._begin = 6 * HOUR if (dst, path["tenant"]) == ("n2", "blue") else 0
        self._end = 18 * HOUR if (dst, path["tenant"]) == ("n1", "red") else math.inf
        self._learned = self._begin + HOUR if self._begin else 0
        self.lossy, self.slow = day.of("loss", src, dst), day.of("slow", src, dst)
        self._busy = [t for n in (src, dst) for t in day.of("busy", n)]
        self._away, self._stepped = day.of("down", dst), day.of("clock", src)

    def exists(self, second: float) -> bool:
        return self._begin <= second < self._end

    def _gone(self, second: float) -> bool:
        return any(t.at(second - SCRAPE) for t in self._away)

    def sent(self, second: float) -> float | None:
        return float(SENT) if self.exists(second) else None

    def judged(self, second: float) -> float | None:
        """None while the objective is learned, and of probes that are lost."""
        if not self.exists(second):
            return None
        return 0.0 if self._gone(second) or second < self._learned else float(SENT)

    def lost(self, cause: str) -> Growth:
        def growth(second: float) -> float | None:
            if not self.exists(second):
                return None
            if cause == "local_overflow":  # our own socket: not the network's
                return 40.0 if self._draw.random() < SCRAPE / (6 * HOUR) else 0.0
            if cause == "unknown" and self._gone(second):
                return float(SENT)
            share = sum(t.share for t in self.lossy if t.at(second)) if cause == "forward" else 0.0
            return share * SENT + float(self._draw.random() < SENT * 1e-5 / 2)

        return growth

    def beyond(self, calm: float) -> Growth:
        """Those beyond an objective: more by day, and bursts of a few minutes."""

        def share(second: float) -> float:
            burst = 0.05 if self._draw.random() < CHUNK / (8 * HOUR) else 0.0
            return self._draw.uniform(0, calm) * load(second) + burst

        usual = self._day.by_chunk(share)

        def growth(second: float) -> float | None:
            of = self.judged(second)
            troubles = sum(t.share for t in (*self.slow, *self._busy) if t.at(second))
            return of and min(of, round(of * (usual(second) + troubles)))

        return growth

    def quarantined(self, reason: str) -> Growth:
        def growth(second: float) -> float | None:
            if not self.exists(second):
                return None
            if reason == "clock_step":
                return float(any(t.at(second) for t in self._stepped))
            return float(self._draw.random() < SCRAPE / HOUR)

        return growth


def load(second: float) -> float:
    """Share of the day's peak, which is at three in the afternoon."""
    return 0.6 + 0.4 * math.sin(2 * math.pi * (second / HOUR - 9) / 24)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def notation(values: Sequence[Value], every: int) -> Iterator[str]:
    """Write values as promtool reads them: what comes after the end of a run is stale, not merely missing."""
    i, there = 0, False
    gap = f"_x{every - 1}" if every > 1 else ""
    while i < len(values):
        first = values[i]
        if first is None:
            run = i
            while run < len(values) and values[run] is None:
                run += 1
            missing = (run - i) * every
            if there:
                yield "stale"
                missing -= 1
            if missing:
                yield f"_x{missing}"
            i, there = run, False
            continue
        there = True
        run = i + 1
        if every == 1 and run < len(values):
            step = _difference(first, values[run])
            while (
                step is not None and run < len(values) and _difference(values[run - 1], values[run]) == step
            ):
                run += 1
            if run - i > 1 and step is not None:
                sign = "-" if step < 0 else "+"
                yield f"{_number(first)}{sign}{_number(abs(step))}x{run - i - 1}"
                i = run
                continue
        yield _number(first)
        if gap:
            yield gap
        i = i + 1


def _difference(before: Value, after: Value) -> float | None:
    """By how much an integer grows; fractions would add up wrongly."""
    if before is None or after is None:
        return None
    if before == after:
        return 0.0
    return after - before if before == int(before) and after == int(after) else None


Alert = tuple[tuple[str, str], ...]
"""Labels of an alert that fired, sorted."""

_SAMPLE = re.compile(r"\{([^{}]*)\} [0-9.E+]+")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def played(
    day: Day,
    folder: Path,
    spans: Sequence[tuple[float, float]],
    every: int = 60,
    files: Sequence[str] = ("*",),
) -> list[set[Alert]]:
    """Play a day to the shipped rules, or some files of them, evaluated every so many seconds.

    Returns the alerts that fired in each span of seconds, the last of which is not in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rules = sorted(str(p) for name in files for p in (ROOT / "alert-rules").glob(f"{name}.rules.yml"))
    asked = [
        {
            "expr": f'count_over_time(ALERTS{{alertstate="firing"}}[{int(end - begin) - 1}s])',
            "eval_time": f"{int(end) - 1}s",
            "exp_samples": [{"labels": '{none="none"}', "value": 0}],
        }
        for begin, end in spans
    ]
    test = {
        "rule_files": rules,
        "evaluation_interval": f"{every}s",
        "tests": [
            {
                "interval": f"{day.step}s",
                "input_series": [{"series": s, "values": v} for s, v in day.series.items()],
                "promql_expr_test": asked,
            }
        ],
    }
    file = folder / "day.test.yml"
    file.write_text(yaml.dump(test, Dumper=yaml.CSafeDumper, width=1 << 30, sort_keys=False))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=3600
    )
    return _fired(done.stdout + done.stderr, len(spans))


def _fired(said: str, spans: int) -> list[set[Alert]]:
    """Read what promtool got where it was told to expect something else."""
    answers = re.findall(r"(?m)^\s*got: ?(.*)$", said)
    assert len(answers) == spans, f"promtool said:\n{said[:3000]}"
    return [alerts(answer) for answer in answers]


def alerts(answer: str) -> set[Alert]:
    """The alerts in what promtool prints of a vector."""
    found: set[Alert] = set()
    for inner in _SAMPLE.findall(answer):
        labels: dict[str, Any] = dict(_LABEL.findall(inner))
        labels.pop("alertstate")
        found.add(tuple(sorted(labels.items())))
    return found
