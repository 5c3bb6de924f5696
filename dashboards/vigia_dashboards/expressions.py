"""PromQL against the catalogue: every metric and label must be declared somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import yaml

import vigia_catalog

__all__ = [
    "ACTIONS",
    "FOREIGN",
    "FOREIGN_VALUES",
    "IN_FORCE",
    "UnknownName",
    "alerts",
    "check",
    "check_matchers",
    "histogram_ranges",
    "is_histogram",
    "labels_of",
    "parse",
    "ranges",
    "recorded",
    "selectors",
    "substituted",
    "values_of",
]

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alert-rules"

_LED = "{} and on (instance) vigia_agent_leader == 1"
"""A replica that no longer leads keeps what it counted last: the leader's alone is true."""

ACTIONS = _LED.format("vigia_isolation_actions")
"""Actions that have not ended."""

IN_FORCE = _LED.format('vigia_isolation_actions{state=~"active|stepped_up|stepped_down"}')
"""Actions whose limit was read back from the kernel; 0 for a policy that has none."""

TARGET_LABELS = {"node", "job", "instance"}
"""Labels that the scrape configuration adds to every series."""

_ALERT = {"alertname", "severity", "isolate", "policy", "tenant", "port", "path", "src", "dst"}

FOREIGN: Mapping[str, set[str]] = {
    "up": set(),
    "ALERTS_FOR_STATE": _ALERT,
    "scrape_duration_seconds": set(),
    "scrape_samples_scraped": set(),
    "ALERTS": _ALERT | {"alertstate"},
    "process_cpu_seconds_total": set(),
    "process_start_time_seconds": set(),
    "process_resident_memory_bytes": set(),
    "node_cpu_seconds_total": {"cpu", "mode"},
    "node_softnet_dropped_total": {"cpu"},
    "node_softnet_times_squeezed_total": {"cpu"},
    "node_network_receive_drop_total": {"device"},
    "node_network_transmit_drop_total": {"device"},
    "node_nf_conntrack_entries": set(),
    "node_nf_conntrack_entries_limit": set(),
    "node_netstat_Tcp_RetransSegs": set(),
    "node_netstat_Udp_RcvbufErrors": set(),
    "node_pressure_cpu_waiting_seconds_total": set(),
    "node_timex_sync_status": set(),
    "node_timex_maxerror_seconds": set(),
    "node_timex_offset_seconds": set(),
}
"""Series of other programs that dashboards and rules may use, with their labels."""

FOREIGN_VALUES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("ALERTS", "alertstate"): ("pending", "firing"),
    ("ALERTS", "severity"): ("critical", "warning", "info"),
    ("ALERTS", "isolate"): ("auto", "manual", "never"),
    ("ALERTS_FOR_STATE", "severity"): ("critical", "warning", "info"),
    ("ALERTS_FOR_STATE", "isolate"): ("auto", "manual", "never"),
    ("node_cpu_seconds_total", "mode"): (
        "user",
        "nice",
        "system",
        "idle",
        "iowait",
        "irq",
        "softirq",
        "steal",
    ),
}
"""All values that a label of those can have, where that is known."""

MACROS = {
    "$__rate_interval": "1m",
    "$__interval": "1m",
    "$__range": "1h",
}


class UnknownName(LookupError):
    """A metric, a label or a label value that nothing declares."""


def substituted(expression: str, variables: Mapping[str, str] | None = None) -> str:
    """Return an expression with Grafana's macros and variables replaced, as Grafana does for "All"."""
    for macro, value in {**MACROS, **(variables or {})}.items():
        expression = expression.replace(macro, value)
    return re.sub(r"\$\{?[a-z_]+\}?", ".+", expression)


def parse(expression: str) -> Any:
    """Return the parsed expression. Raises ValueError."""
    try:
        return promql_parser.parse(substituted(expression))
    except ValueError as e:
        raise ValueError(f"{e}: {expression}") from e


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    """Yield every vector selector of an expression. Raises UnknownName for one without a metric."""
    for node in _nodes(expression):
        if isinstance(node, promql_parser.VectorSelector):
            if not node.name:
                raise UnknownName(f"a selector names no metric: {expression}")
            yield node


def _nodes(expression: str) -> Iterator[Any]:
    waiting: list[Any] = [parse(expression)]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, promql_parser.VectorSelector):
            continue
        waiting += _children(node)


def _children(node: Any) -> list[Any]:
    children = (getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector", "param"))
    found = [child for child in children if child is not None and not isinstance(child, str | float)]
    return found + list(getattr(node, "args", None) or [])


@cache
def recorded() -> Mapping[str, str]:
    """Return the expression of every recorded series."""
    found: dict[str, str] = {}
    for file in sorted(RULES.glob("*.rules.yml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            found |= {r["record"]: r["expr"] for r in group["rules"] if "record" in r}
    return found


@cache
def alerts() -> Mapping[str, Mapping[str, str]]:
    """Return the annotations of every alert, as the rules have them."""
    found: dict[str, Mapping[str, str]] = {}
    for file in sorted(RULES.glob("*.rules.yml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            found |= {r["alert"]: r["annotations"] for r in group["rules"] if "alert" in r}
    return found


@cache
def _declared() -> Mapping[str, vigia_catalog.Metric]:
    parts = {m.part for m in vigia_catalog.load().values()} - {"self"}
    return {m.name: m for part in parts for m in vigia_catalog.part_metrics(part)}


def labels_of(name: str) -> set[str] | None:
    """Return the labels that a metric or recorded series can have, None if nothing declares it."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    for candidate in (name, base):
        metric = _declared().get(candidate)
        if metric and (candidate == name or metric.type == "histogram"):
            return set(metric.labels) | TARGET_LABELS | ({"le"} if name != candidate else set())
    if name in FOREIGN:
        return FOREIGN[name] | TARGET_LABELS
    if name in recorded():
        return set().union(*(labels_of(str(s.name)) or set() for s in selectors(recorded()[name])))
    return None


@cache
def _jobs() -> tuple[str, ...]:
    """The scrape jobs as shipped."""
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    return tuple(j["job_name"] for j in yaml.safe_load(text)["scrape_configs"])


def values_of(name: str, label: str) -> tuple[str, ...] | None:
    """Return all values that a label of a metric or recorded series can have, None if they are not listed."""
    if label == "job":
        return _jobs()
    if (name, label) in FOREIGN_VALUES:
        return FOREIGN_VALUES[name, label]
    if name in recorded():
        return _recorded_values(recorded()[name], label)
    metric = _declared().get(name) or _declared().get(re.sub(r"_(bucket|sum|count)$", "", name))
    return metric.values.get(label) if metric else None


def _recorded_values(expression: str, label: str) -> tuple[str, ...] | None:
    """What the selectors of a recorded series let through."""
    found: dict[str, None] = {}
    for selector in selectors(expression):
        name = str(selector.name)
        if label not in (labels_of(name) or ()):
            continue
        values = values_of(name, label)
        if values is None:
            return None
        wanted = [m for m in selector.matchers.matchers if m.name == label]
        found |= dict.fromkeys(v for v in values if all(_passes(m, v) for m in wanted))
    return tuple(found) or None


def _passes(matcher: promql_parser.Matcher, value: str) -> bool:
    """Whether a matcher lets a label value pass."""
    if matcher.op in (promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual):
        return (value == matcher.value) == (matcher.op == promql_parser.MatchOp.Equal)
    return bool(re.fullmatch(matcher.value, value)) == (matcher.op == promql_parser.MatchOp.Re)


def _alternatives(pattern: str) -> list[str]:
    """The branches of a regular expression, those within brackets left whole."""
    branches, depth = [""], 0
    for character in pattern:
        depth += (character in "([") - (character in ")]")
        if character == "|" and depth == 0:
            branches.append("")
        else:
            branches[-1] += character
    return branches


def check_matchers(expression: str) -> None:
    """Raise UnknownName for a matcher on a closed label that cannot do what it is there for.

    What it names, each branch of a regular expression, must be among the label's
    values; and it must let one of them pass.
    """
    for selector in selectors(expression):
        for matcher in selector.matchers.matchers:
            values = values_of(str(selector.name), matcher.name)
            if values is None:
                continue
            by_pattern = matcher.op in (promql_parser.MatchOp.Re, promql_parser.MatchOp.NotRe)
            named = _alternatives(matcher.value) if by_pattern else [re.escape(matcher.value)]
            unknown = [n for n in named if not any(re.fullmatch(n, v) for v in values)]
            about = f"{selector.name}{{{matcher.name}}}"
            if unknown:
                raise UnknownName(f"{about} is never {unknown[0]!r}, but {', '.join(values)}: {expression}")
            if not any(_passes(matcher, v) for v in values):
                raise UnknownName(f"{about} has no value that {matcher.value!r} lets pass: {expression}")


def ranges(expression: str) -> Iterator[tuple[promql_parser.VectorSelector, timedelta]]:
    """Yield every selector that is read over a range, with the range; subqueries count as a whole."""
    waiting: list[tuple[Any, timedelta]] = [(parse(expression), timedelta(0))]
    while waiting:
        node, outside = waiting.pop()
        if isinstance(node, promql_parser.VectorSelector):
            if outside:
                yield node, outside
            continue
        outside += getattr(node, "range", None) or timedelta(0)
        waiting += [(child, outside) for child in _children(node)]


def histogram_ranges(expression: str) -> Iterator[tuple[str, timedelta]]:
    """Yield every histogram that is read over a range, with the range."""
    for selector, over in ranges(expression):
        name = str(selector.name)
        if is_histogram(name):
            yield name, over


def is_histogram(name: str) -> bool:
    """Whether a series is a histogram's, by the catalogue."""
    metric = _declared().get(name) or _declared().get(re.sub(r"_(bucket|sum|count)$", "", name))
    return metric is not None and metric.type == "histogram"


_OF_COUNTERS = {"rate", "increase", "irate"}
_OF_ANY = {"absent", "absent_over_time", "count", "count_over_time", "changes", "resets", "timestamp"}


def _counters_have_rates(expression: str) -> None:
    """Raise ValueError for a counter that is used as it is, or a gauge of which a rate is taken."""
    waiting: list[tuple[Any, str]] = [(parse(expression), "")]
    while waiting:
        node, within = waiting.pop()
        if isinstance(node, promql_parser.VectorSelector):
            name = str(node.name)
            counts = _counts(name)
            if counts is False and within in _OF_COUNTERS:
                raise ValueError(f"{name} is no counter and has no {within}: {expression}")
            if counts and name.endswith("_total") and within not in _OF_COUNTERS | _OF_ANY:
                raise ValueError(f"{name} is a counter: take its rate: {expression}")
            continue
        here = within
        if isinstance(node, promql_parser.Call):
            here = str(node.func.name)
        elif isinstance(node, promql_parser.AggregateExpr) and str(node.op) == "count":
            here = "count"
        elif _asks_for_zero(node):
            here = "absent"
        waiting += [(child, here) for child in _children(node)]


def _asks_for_zero(node: Any) -> bool:
    """Whether a node is ``... == 0``: that a counter has counted nothing yet is no matter of its rate."""
    if not isinstance(node, promql_parser.BinaryExpr) or str(node.op) != "==":
        return False
    return isinstance(node.rhs, promql_parser.NumberLiteral) and node.rhs.val == 0


def _counts(name: str) -> bool | None:
    """Whether a series only grows; None if nothing says so."""
    if name in _declared():
        return _declared()[name].type in ("counter", "histogram")
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base in _declared():
        return True
    return name.endswith("_total") if name in FOREIGN and not name.startswith("node_netstat") else None


def check(expression: str) -> None:
    """Raise UnknownName unless every metric, label and value is declared, ValueError for bad PromQL.

    A counter without its rate says how long a program has run, and the rate of
    a gauge says nothing: both are errors, too.
    """
    known_here: set[str] = set()
    for selector in selectors(expression):
        known = labels_of(str(selector.name))
        if known is None:
            raise UnknownName(f"{selector.name} is neither in the catalogue nor recorded: {expression}")
        used = {m.name for m in selector.matchers.matchers}
        if not used <= known:
            raise UnknownName(f"{selector.name} has no label {sorted(used - known)}: {expression}")
        known_here |= known
    check_matchers(expression)
    made = {
        str(node.args[1].val)
        for node in _nodes(expression)
        if isinstance(node, promql_parser.Call) and node.func.name in ("label_replace", "label_join")
    }
    grouped = {
        label.strip()
        for clause in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression)
        for label in clause.split(",")
        if label.strip()
    }
    unknown = grouped - known_here - made - {"le"}
    if unknown:
        raise UnknownName(f"no series of the expression has the labels {sorted(unknown)}: {expression}")
    _counters_have_rates(expression)
