"""Reads what each process, the kernel and the disk hold at this moment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

import vigia_http
from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import openvswitch
from vigia.lab.model import Lab
from vigia.soak.record import Sampled
from vigia.stack import plan
from vigia.stack.places import Places

__all__ = ["Sampler", "page", "process", "size_below"]

_LONGEST = 64 << 20  # bytes of a page of metrics
_TIMEOUT = 10.0

_ANON = {
    "anon_inode:bpf-prog": "bpf_programs",
    "anon_inode:bpf-map": "bpf_maps",
    "anon_inode:bpf_link": "bpf_links",
}
"""What a descriptor of a BPF object points to (kernel/bpf/syscall.c)."""


def process(pid: int) -> dict[str, float]:
    """Return what a process holds. Raises OSError if it has ended.

    memory_bytes is anonymous memory and what of it is swapped out: pages of files, which
    the kernel drops when it likes, would hide a leak.
    """
    root = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line)
    if "RssAnon" not in status:
        raise ProcessLookupError(f"process {pid} has ended")  # a zombie, without memory
    found: dict[str, float] = {
        "memory_bytes": _kilobytes(status["RssAnon"]) + _kilobytes(status.get("VmSwap", "0 kB")),
        "resident_bytes": _kilobytes(status["VmRSS"]),
        "threads": float(status["Threads"]),
        "descriptors": 0.0,
    }
    for descriptor in (root / "fd").iterdir():
        found["descriptors"] += 1
        try:
            kind = _ANON.get(str(descriptor.readlink()))
        except OSError:
            continue  # closed meanwhile
        if kind:
            found[kind] = found.get(kind, 0.0) + 1
    return found


def _kilobytes(text: str) -> float:
    return float(text.split()[0]) * 1024


def size_below(*paths: Path) -> float:
    """Return the bytes of files and of all files in folders; what goes meanwhile is left out."""
    total = 0
    for path in paths:
        below = [Path(folder, name) for folder, _, files in os.walk(path) for name in files]
        for file in [path] if path.is_file() else below:
            try:
                total += file.lstat().st_size
            except OSError:
                continue
    return float(total)


def page(text: str, names: Iterable[str]) -> tuple[int, list[tuple[str, dict[str, str], float]]]:
    """Return how many series a page of metrics has, and the samples of some names. Raises ValueError."""
    wanted = tuple(names)
    series, lines = 0, []
    for line in text.splitlines():
        if line and line[0] != "#":
            series += 1
            if line.startswith(wanted):
                lines.append(line)
    found = [
        (s.name, dict(s.labels), float(s.value))
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for s in family.samples
        if s.name in wanted
    ]
    return series, found


_GOROUTINES = "go_goroutines"
_HEAD = "prometheus_tsdb_head_series"
_DURATION = "prometheus_rule_group_last_duration_seconds"
_INTERVAL = "prometheus_rule_group_interval_seconds"
_MISSED = "prometheus_rule_group_iterations_missed_total"


class Sampler:
    """Samples a lab and its stack; leaving its context closes the connections."""

    def __init__(self, lab: Lab, where: Places) -> None:
        self._lab = lab
        self._where = where
        self._services = plan.read(where.plan)
        self._client = httpx.Client(timeout=_TIMEOUT, trust_env=False, headers=vigia_http.IDENTITY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def sample(self) -> Sampled:
        """Return everything that can be read now; what cannot is among the problems."""
        at = time.time()
        values: dict[str, dict[str, float]] = {}
        problems: list[str] = []

        def note(subject: str, read: Callable[[], dict[str, float]]) -> None:
            try:
                values.setdefault(subject, {}).update(read())
            except (OSError, ValueError, VigiaError, httpx.HTTPError, vigia_http.AnswerError) as e:
                problems.append(f"{subject}: {e}")

        restarts, processes = self._processes(problems)
        for name, pid in processes.items():
            note(name, lambda pid=pid: process(pid))  # type: ignore[misc]
        for service in self._services:
            note(service.name, lambda s=service: self._page(s, values))  # type: ignore[misc]
        for subject, read in self._places():
            note(subject, read)
        load = os.getloadavg()[0]
        return Sampled(at, values, processes, restarts, round(load, 2), tuple(problems))

    def _processes(self, problems: list[str]) -> tuple[int, dict[str, int]]:
        found: dict[str, int] = {}
        restarts = 0
        try:
            status: dict[str, Any] = json.loads(self._where.status.read_text())
            found["supervisor"] = int(status["supervisor"])
            for name, run in status["services"].items():
                restarts += int(run["restarts"])
                if run["pid"]:
                    found[name] = int(run["pid"])
                else:
                    problems.append(f"{name}: does not run")
        except (OSError, ValueError, KeyError) as e:
            problems.append(f"supervisor: {e}")
        for node in (n for n in self._lab.nodes if n.has("openvswitch")):
            for daemon in openvswitch.daemons(self._lab.layout, node.name):
                if daemon.alive:
                    found[f"{daemon.name}@{node.name}"] = daemon.pid
                else:
                    problems.append(f"{daemon.name}@{node.name}: does not run")
        return restarts, found

    def _page(self, service: plan.Service, values: dict[str, dict[str, float]]) -> dict[str, float]:
        """Return what a service says of itself; Prometheus also of its rules."""
        where = f"http://{service.address}/metrics"
        with self._client.stream("GET", where, auth=service.auth) as answer:
            answer.raise_for_status()
            text = vigia_http.read(answer, _LONGEST, _TIMEOUT).decode()
        ours = (_HEAD, _DURATION, _INTERVAL, _MISSED) if service.name == "prometheus" else ()
        series, samples = page(text, (_GOROUTINES, *ours))
        found = {"page_series": float(series)}
        seconds: dict[str, float] = {}
        for metric, labels, value in samples:
            group = "rules " + labels.get("rule_group", "").rpartition(";")[2]
            if metric == _GOROUTINES:
                found["goroutines"] = value
            elif metric == _HEAD:
                found["head_series"] = value
            elif metric == _DURATION:
                values.setdefault(group, {})["rule_seconds"] = value
            elif metric == _INTERVAL:
                seconds[group] = value
            elif metric == _MISSED:
                values.setdefault(group, {})["missed_iterations"] = value
        for group, interval in seconds.items():
            if interval > 0 and "rule_seconds" in values.get(group, {}):
                values[group]["rule_share"] = values[group]["rule_seconds"] / interval
        return found

    def _places(self) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
        """Yield what is held outside of processes: on disk, in the kernel."""
        data, layout = self._where.data, self._lab.layout
        agent = data / "isolation-agent"
        yield (
            "prometheus",
            lambda: {
                "store_bytes": size_below(data / "prometheus"),
                "wal_bytes": size_below(data / "prometheus/wal"),
            },
        )
        yield (
            "isolation-agent",
            lambda: {
                "database_bytes": size_below(*agent.glob("agent.db*")),
                "audit_bytes": size_below(*agent.glob("audit.jsonl*")),
            },
        )
        yield "alertmanager", lambda: {"state_bytes": size_below(data / "alertmanager")}
        yield "lab", lambda: {"log_bytes": size_below(self._where.logs)}
        yield "lab", lambda: {"namespaces": float(len(netns.names(layout.prefix)))}
        yield "lab", lambda: {"pins": float(sum(len(files) for _, _, files in os.walk(layout.bpffs)))}
        for node in self._lab.nodes:
            yield node.name, lambda name=node.netns: _kernel(name)  # type: ignore[misc]


def _kernel(name: str) -> dict[str, float]:
    """Return what a network namespace has."""

    def links() -> int:
        return len(Path("/proc/thread-self/net/dev").read_text().splitlines()) - 2

    qdiscs = commands.run(["tc", "qdisc", "show"], netns=name).stdout.splitlines()
    return {"links": float(netns.inside(name, links)), "qdiscs": float(len(qdiscs))}
