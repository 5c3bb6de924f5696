"""What goes on while faults are done: tenants send within their contracts, alerts are posted, people are notified."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx

from faults.site import AGENT, Site
from vigia.isolation import traffic
from vigia.isolation.traffic import TrafficOrder
from vigia.lab.model import Endpoint

__all__ = ["Alert", "Load", "loaded"]

RATES = {"linuxbridge-vxlan": 20e6, "ovs-vxlan": 8e6}
"""What blue sends on a path, in bits per second of UDP payload: it has bought 100 Mbit/s."""

_HOURS = 2
_PORT = 7000
_POST_EVERY = 0.25
_LOOK_EVERY = 1.0


@dataclass(frozen=True)
class Alert:
    """What people are told: an alert that is neither inhibited nor silenced."""

    name: str
    labels: frozenset[tuple[str, str]]

    def __str__(self) -> str:
        shown = ("src", "dst", "path", "tenant", "node", "port", "peer", "collector")
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in sorted(self.labels) if k in shown)})"


@dataclass
class Load:
    """What has been acknowledged, and what people were told, since the beginning."""

    acknowledged: list[str] = field(default_factory=list)
    """Fingerprints of alerts that the agent answered 200 or 202 for."""
    refused: int = 0
    """Messages that it refused, or did not answer: Alertmanager would send them again."""
    told: dict[Alert, float] = field(default_factory=dict)
    """When an alert was first seen to be told, on the monotonic clock; it is forgotten when it has ended."""
    ended: list[tuple[Alert, float, float]] = field(default_factory=list)
    lost: bool = False
    """Whether a fault has really lost packets."""
    floods: list[tuple[float, float]] = field(default_factory=list)
    """When red really flooded, from and to, in Unix time."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    posting: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Have no alert posted: what is in a file that is destroyed can be kept by nobody."""
        with self.posting:
            yield

    def told_since(self, moment: float) -> set[Alert]:
        """What people were told after a moment of the monotonic clock that they did not know then."""
        with self.lock:
            begun = {a for a, at in self.told.items() if at >= moment}
            return begun | {a for a, at, _ in self.ended if at >= moment}


@contextmanager
def loaded(site: Site) -> Iterator[Load]:
    """Keep the site busy."""
    load, stop = Load(), threading.Event()
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(timeout=5.0, trust_env=False)) for _ in range(2)]
        works = (
            (_poster(site, load, clients[0]), _POST_EVERY),
            (_looker(site, load, clients[1]), _LOOK_EVERY),
        )
        threads = [threading.Thread(target=_again, args=(*work, stop), daemon=True) for work in works]
        for path, rate in RATES.items():
            stack.enter_context(_transfer(site, path, rate))
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(stop.set)
        yield load


def _again(work: Callable[[], None], every: float, stop: threading.Event) -> None:
    while not stop.wait(every):
        with suppress(httpx.HTTPError, OSError, ValueError):
            work()


def _end(site: Site, path: str, node: str) -> Endpoint:
    return next(
        e for e in site.lab.node(node).endpoints if (e.tenant, e.path, e.machine) == ("blue", path, 1)
    )


@contextmanager
def _transfer(site: Site, path: str, rate: float) -> Iterator[None]:
    source, sink = _end(site, path, "node1"), _end(site, path, "node2")
    start, seconds = time.monotonic() + 1.0, _HOURS * 3600.0
    ends = []
    try:
        for role, end in (("receive", sink), ("send", source)):
            order = TrafficOrder(
                role, end.netns, "udp", str(sink.address.ip), _PORT, start, seconds, rate=rate / 8
            )
            child = subprocess.Popen(
                traffic.command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
            ends.append(child)
            assert child.stdin is not None
            child.stdin.write(traffic.encode(order))
            child.stdin.close()
        yield
    finally:
        for child in ends:
            child.kill()
            child.wait()


def _poster(site: Site, load: Load, client: httpx.Client) -> Callable[[], None]:
    """Post alerts, each of its own, about a node that no enforcer has: each is put on record and nothing is done."""
    token = site.where.webhook_token.read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    numbers = iter(range(1 << 30))

    def post() -> None:
        with load.posting:
            send()

    def send() -> None:
        fingerprint = f"{next(numbers):016x}"
        try:
            url = site.url(AGENT, "/v1/webhook/alertmanager")
            answer = client.post(url, content=message(fingerprint), headers=headers)
        except httpx.HTTPError:
            load.refused += 1
            return
        if answer.status_code in (httpx.codes.OK, httpx.codes.ACCEPTED):
            load.acknowledged.append(fingerprint)
        else:
            load.refused += 1

    return post


def message(fingerprint: str) -> str:
    """A message of Alertmanager's with one alert."""
    labels = {"alertname": "VigiaUdpFlood", "isolate": "auto"}
    labels |= {"node": "elsewhere", "port": "a-port", "tenant": "red"}
    alert = {
        "status": "firing",
        "labels": labels,
        "annotations": {},
        "startsAt": datetime.now(UTC).isoformat(),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": fingerprint,
    }
    return json.dumps(
        {
            "version": "4",
            "groupKey": "faults",
            "truncatedAlerts": 0,
            "status": "firing",
            "receiver": "isolation-agent",
            "groupLabels": {},
            "commonLabels": labels,
            "commonAnnotations": {},
            "externalURL": "",
            "alerts": [alert],
        }
    )


def _looker(site: Site, load: Load, client: httpx.Client) -> Callable[[], None]:
    """Look at what Alertmanager tells people."""
    auth = site.services["alertmanager"].auth
    asked = {"active": "true", "inhibited": "false", "silenced": "false"}

    def look() -> None:
        answer = client.get(site.url("alertmanager", "/api/v2/alerts"), params=asked, auth=auth)
        found = {
            Alert(a["labels"]["alertname"], frozenset(a["labels"].items()))
            for a in answer.raise_for_status().json()
        }
        now = time.monotonic()
        with load.lock:
            for alert in found - load.told.keys():
                load.told[alert] = now
            for alert in load.told.keys() - found:
                load.ended.append((alert, load.told.pop(alert), now))

    return look
