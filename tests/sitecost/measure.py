"""What is measured of a running site: processor time, memory, samples, rules, panels, the comparison."""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sitecost import node
from sitecost.processes import processor_seconds, resident
from sitecost.site import URL, Running
from vigia_dashboards.expressions import substituted
from vigia_dashboards.live import every_panel
from vigia_prometheus import Prometheus, PrometheusError

TIMEOUT = 20.0
PATIENT = 300.0
"""For questions that no panel asks."""
MINUTE = 60.0
ON_TIME = 0.97
"""Of the scrapes that are due at least so many are made by a Prometheus that has the processor time it needs."""
SLOW = 2.0
"""Seconds; what took longer is not asked again."""


@dataclass(frozen=True)
class Group:
    """A group of rules: how long its evaluations took, in seconds."""

    interval: float
    median: float
    worst: float
    evaluations: int
    missed: int
    rules: Mapping[str, float]
    """Of each rule the last evaluation's duration."""

    @property
    def share(self) -> float:
        """Of its interval, of the median."""
        return self.median / self.interval


@dataclass(frozen=True)
class PanelTime:
    """The seconds that all queries of a panel took, one after the other."""

    dashboard: str
    title: str
    one: float
    """With the variables set to one node, path and tenant."""
    every: float | None
    """With all variables at All, where that was asked."""
    failed: str = ""


@dataclass
class Cell:
    """A site of one size with data of one age."""

    nodes: int
    age: str
    seconds: float
    cores: float
    pages_cores: float
    samples: float
    """A second."""
    scrapes: float
    """A second, as they were made."""
    due: float
    """Scrapes a second, as they are configured."""
    up: float
    """The share of all scrapes of the time that went well."""
    series: float
    anonymous: int
    file_backed: int
    heap: int
    families: Mapping[str, int] = field(default_factory=dict)
    """Of each metric how many series, those with the most first."""
    jobs: Mapping[str, float] = field(default_factory=dict)
    """Samples of one scrape of one target."""
    groups: Mapping[str, Group] = field(default_factory=dict)
    panels: list[PanelTime] = field(default_factory=list)
    comparison: Mapping[str, float] = field(default_factory=dict)
    reached: float = 0.0
    """The share of targets that had answered when series were counted."""
    load: float = 0.0
    """Of the machine, at the end."""
    program: str = ""
    """Which Prometheus, and how its garbage collector is set."""

    @property
    def starved(self) -> bool:
        """Whether the machine was too small for the site: then what it took is not what the site costs."""
        return self.scrapes < ON_TIME * self.due

    def data(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return asdict(self)


def settle(site: Running, seconds: float, evaluations: int) -> None:
    """Wait so long, and until rules of every minute were evaluated so often: they read what other groups record."""
    groups = _Groups(site)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or not groups.evaluated(evaluations):
        if time.monotonic() - begin > seconds + PATIENT:
            raise RuntimeError(
                f"rules of every minute were not evaluated {evaluations} times in {seconds + PATIENT:.0f} s"
            )
        time.sleep(1.0)
        groups.look()


def steady(site: Running, nodes: int, age: str, seconds: float) -> Cell:
    """Measure while nobody asks but the rules."""
    groups = _Groups(site)
    begin, before = time.monotonic(), site.own()
    cores, pages = processor_seconds(site.prometheus), processor_seconds(site.pages)
    while time.monotonic() - begin < seconds:
        time.sleep(min(5.0, max(0.1, seconds - (time.monotonic() - begin))))
        groups.look()
    cores, pages = processor_seconds(site.prometheus) - cores, processor_seconds(site.pages) - pages
    took, after = time.monotonic() - begin, site.own()
    anonymous, file_backed = resident(site.prometheus)

    def grown(*names: str) -> float:
        return sum(v - before.get(k, 0.0) for k, v in after.items() if k.split("{")[0] in names)

    with Prometheus(URL, PATIENT) as server:
        up = server.total(f"avg(avg_over_time(up[{math.ceil(took)}s]))", time.time())
        at = _whole(server)
        return Cell(
            nodes,
            age,
            took,
            cores / took,
            pages / took,
            grown("prometheus_tsdb_head_samples_appended_total") / took,
            grown("prometheus_target_interval_length_seconds_count") / took,
            _due(site),
            up,
            after["prometheus_tsdb_head_series"],
            anonymous,
            file_backed,
            int(after["go_memstats_heap_inuse_bytes"]),
            families=_families(server, at),
            jobs=_jobs(server, at),
            groups=groups.found(),
            reached=server.total("avg(up)", at),
            load=os.getloadavg()[0],
            program=_program(after),
        )


def _program(own: Mapping[str, float]) -> str:
    found = (re.search(r'version="([^"]*)"', k) for k in own if k.startswith("prometheus_build_info{"))
    version = next((f.group(1) for f in found if f), "of no version")
    return f"Prometheus {version}, GOGC {os.environ.get('GOGC', 'as it comes')}"


def _due(site: Running) -> float:
    targets = site.client.get("/api/v1/targets?state=active").json()["data"]["activeTargets"]
    return sum(1.0 / _seconds(t["scrapeInterval"]) for t in targets)


def _seconds(duration: str) -> float:
    """Return what Prometheus writes as 1m30s."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|s|m|h)", duration))


def _whole(server: Prometheus) -> float:
    """Return an instant at which the last scrape of every target went well: series of one that was late are not there for a
    moment. Where some target never answers, it is the end of the wait."""
    end = time.monotonic() + MINUTE
    while server.total("min(up)", at := time.time()) < 1 and time.monotonic() < end:
        time.sleep(0.5)
    return at


def _families(server: Prometheus, at: float) -> dict[str, int]:
    found = server.instant('sort_desc(count by (__name__) ({__name__!=""}))', at)
    return {s.labels["__name__"]: int(s.value) for s in found}


def _jobs(server: Prometheus, at: float) -> dict[str, float]:
    found = server.instant("avg by (job) (scrape_samples_scraped)", at)
    return {s.labels["job"]: s.value for s in found}


class _Groups:
    """Looks at the groups of rules again and again."""

    def __init__(self, site: Running) -> None:
        self._site = site
        self._took: dict[str, dict[str, float]] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._missed = self._misses()

    def _misses(self) -> dict[str, float]:
        own = self._site.own()
        return {k: v for k, v in own.items() if k.startswith("prometheus_rule_group_iterations_missed_total")}

    def look(self) -> None:
        for g in self._site.client.get("/api/v1/rules").json()["data"]["groups"]:
            self._last[g["name"]] = g
            took = self._took.setdefault(g["name"], {})
            if not g["lastEvaluation"].startswith("0001-"):  # Go's zero time: never
                took[g["lastEvaluation"]] = g["evaluationTime"]

    def evaluated(self, times: int) -> bool:
        """Whether every group of at most a minute has been seen to be evaluated so often."""
        counts = [len(took) for name, took in self._took.items() if self._last[name]["interval"] <= MINUTE]
        return bool(counts) and min(counts) >= times

    def found(self) -> dict[str, Group]:
        missed = self._misses()
        out = {}
        for name, took in self._took.items():
            g = self._last[name]
            more = sum(v - self._missed.get(k, 0.0) for k, v in missed.items() if f";{name}" in k)
            rules: dict[str, float] = {}
            for rule in g["rules"]:
                rules[rule["name"]] = rules.get(rule["name"], 0.0) + rule["evaluationTime"]
            known = list(took.values())
            middle, worst = (statistics.median(known), max(known)) if known else (0.0, 0.0)
            out[name] = Group(g["interval"], middle, worst, len(known), int(more), rules)
        return out


ONE = {
    "node": node.node_name(1),
    "src": node.node_name(1),
    "dst": node.node_name(2),
    "path": "ovs-vxlan",
    "tenant": "_infra",
    "probe": "stamp-64",
}
"""What variables of those labels are set to."""


def panels(look_back: float, every: bool) -> list[PanelTime]:
    """Ask what every panel asks, as Grafana does: what has a time axis over so many seconds, in as many steps as a wide
    panel has; what shows the latest values for one instant.

    Each is asked twice if it is quick, and the quicker counts: what else runs on the machine only ever adds.
    """
    out = []
    with Prometheus(URL, TIMEOUT) as server:
        for dashboard, panel in every_panel():
            labels = {v.name: v.query.rstrip(")").split(", ")[-1] for v in dashboard.variables}
            one = {f"${name}": ONE.get(label, ".+") for name, label in labels.items()}
            expressions = [q.expression for q in panel.asked]
            over = None if panel.instant else look_back
            took, failed = _ask(server, expressions, one, over)
            if took < SLOW:
                took, failed = min((took, failed), _ask(server, expressions, one, over))
            at_all = None
            if every:
                at_all, failed_at_all = _ask(server, expressions, {}, over)
                failed = failed or failed_at_all
            out.append(PanelTime(dashboard.uid, panel.title, took, at_all, failed))
    return out


def _ask(
    server: Prometheus, expressions: Iterable[str], variables: Mapping[str, str], over: float | None
) -> tuple[float, str]:
    """Return how long the answers took together, and what the last that failed said; over None is one instant."""
    begin, now, failed = time.monotonic(), time.time(), ""
    for expression in expressions:
        try:
            asked = substituted(expression, variables)
            if over is None:
                server.instant(asked, now)
            else:
                server.range(asked, now - over, now, max(15.0, over / 720))
        except PrometheusError as e:
            failed = str(e)[:200]
    return time.monotonic() - begin, failed


def comparison(site: Running, folder: Path, seconds: float) -> dict[str, float]:
    """Run vigia-compare as shipped for a while: query-seconds a second of Prometheus, and an evaluation's duration."""
    config = folder / "compare.yaml"
    content = yaml.safe_load((node.ROOT / "deploy/compare/compare.yaml").read_text())
    config.write_text(yaml.safe_dump({**content, "listen": "127.0.0.1:9875", "prometheus": URL}))
    program = Path(sys.executable).with_name("vigia-compare")
    before, cores, begin = site.own(), processor_seconds(site.prometheus), time.monotonic()
    with (folder / "compare.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), "--config", str(config), "run"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        time.sleep(seconds)
        own = _comparison_metrics(site)
    finally:
        process.terminate()
        process.wait(timeout=60)
    took, after = time.monotonic() - begin, site.own()

    def grown(prefix: str) -> float:
        return sum(v - before.get(k, 0.0) for k, v in after.items() if k.startswith(prefix))

    return {
        "seconds": took,
        "cores": (processor_seconds(site.prometheus) - cores) / took,
        "queries": grown('prometheus_http_request_duration_seconds_count{handler="/api/v1/query'),
        "query_seconds": grown('prometheus_http_request_duration_seconds_sum{handler="/api/v1/query') / took,
        **own,
    }


def _comparison_metrics(site: Running) -> dict[str, float]:
    with contextlib.suppress(Exception):
        text = site.client.get("http://127.0.0.1:9875/metrics").text
        return {
            line.split()[0]: float(line.split()[1])
            for line in text.splitlines()
            if line.startswith(
                ("vigia_compare_evaluation_duration_seconds", "vigia_compare_evaluations_total")
            )
        }
    return {}
