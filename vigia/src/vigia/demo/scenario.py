"""The flood: one tenant floods, another suffers, the stack stops it; every step is observed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vigia.demo import transfer
from vigia.demo.records import Probes, Records
from vigia.demo.transfer import Interval, Transfer
from vigia.errors import OptionError, VigiaError
from vigia.flood import order
from vigia.flood import run as floods
from vigia.lab.model import Endpoint, Lab
from vigia.stack import places
from vigia.stack.agent import IsolationAction, IsolationAgent
from vigia_prometheus import Prometheus
from vigia_service.patience import Patience

__all__ = ["Cast", "Play", "cast", "play"]

BEFORE = 5.0
"""Seconds of undisturbed transfer."""

FLOOD = 12.0
AFTER = 3.0
"""Seconds of transfer after the release."""

EXPECTED = BEFORE + FLOOD + 17 + AFTER
"""Seconds that a play takes, with those until the release."""

RATE = "400Mbit"
LIMIT_DEADLINE = 30.0
RELEASE_DEADLINE = 60.0
_TRANSFER = BEFORE + FLOOD + RELEASE_DEADLINE + AFTER
_SETTLE = 1.5  # seconds until a probe's outcome is known


@dataclass(frozen=True)
class Cast:
    """Who plays: an offender and a victim on one link."""

    offender: Endpoint
    victim: Endpoint
    victim_sink: Endpoint
    guarantee: int
    """What the victim bought, in bytes per second."""


@dataclass(frozen=True)
class Play:
    """What was observed."""

    cast: Cast
    flood: floods.FloodReport
    action: IsolationAction
    limit: float
    """Bytes per second, as first read back from the kernel."""
    intervals: list[Interval]
    probes: dict[str, Probes]
    """The victim's, until each boundary: begin, flood, limit, flood_end, end."""
    transfer_begin: float


def cast(lab: Lab, path: str, offender: str = "red", victim: str = "blue") -> Cast:
    """Choose the endpoints for a path. Raises VigiaError if a tenant is not on it."""
    floods_from = next((e for e in lab.endpoints if (e.tenant, e.path) == (offender, path)), None)
    if floods_from is None:
        paths = ", ".join(sorted({e.path for e in lab.endpoints if e.tenant == offender}))
        raise OptionError(f'--path "{path}" has no endpoint of tenant {offender}; it has them on {paths}')
    node = lab.node(floods_from.node)
    bought = next(t for t in lab.tenants() if t.name == victim)
    return Cast(
        offender=floods_from,
        victim=lab.endpoint(node.name, victim, path),
        victim_sink=lab.endpoint(node.peer, victim, path),
        guarantee=bought.guarantee,
    )


def play(
    who: Cast, prometheus: Prometheus, agent: IsolationAgent, tell: Callable[[str], None], lab: Lab
) -> Play:
    """Play the flood and observe it to its end. Raises VigiaError naming the step that did not happen."""
    known = agent.newest(who.offender.node, who.offender.port)
    with (
        transfer.running(who.victim, who.victim_sink, _TRANSFER) as carried,
        Records(places.agent_address(lab, who.victim.node, "vigia-probe"), _labels(who)) as records,
    ):
        tell(f"{who.victim.tenant} transfers by TCP from {who.victim.node} to {who.victim_sink.node}")
        time.sleep(BEFORE)
        if carried.over:
            raise VigiaError(f"the transfer of {who.victim.tenant} ended early: {_why(carried)}")
        flooding = _Flooding(lab, who)
        tell(f"{who.offender.tenant} floods random UDP ports at {RATE} from {who.offender.node}")
        action = _await(
            lambda: _verified(agent, who, known),
            LIMIT_DEADLINE,
            lambda: _explain_no_limit(prometheus, who),
            records,
        )
        limit = action.limit or 0  # before it is relaxed on the way to release
        tell(f"rate-limited at its own port: {who.offender.port}, {limit * 8 / 1e6:g} Mbit/s of UDP")
        report = flooding.result()
        tell(f"the flood has ended: {report.rate / 1e6:.0f} Mbit/s for {report.seconds:.1f} s")
        action = _await(
            lambda: _released(agent, who, action),
            RELEASE_DEADLINE,
            lambda: f"action {action.id} is not released after the flood; see GET /v1/actions/{action.id}",
            records,
        )
        times = "once" if action.extensions == 1 else f"{action.extensions} times"
        tell(f"released on evidence; the limit was extended {times}")
        time.sleep(AFTER)
        end = time.time() - _SETTLE
        records.read()
        carried.stop()
        intervals = carried.intervals()
    moments = {
        "begin": carried.begin + 1,
        "flood": report.outcome.first_ns / 1e9,
        "limit": action.instants["limit_verified"],
        "flood_end": report.outcome.last_ns / 1e9,
        "release": action.instants["released"],
        "end": end,
    }
    probes = {name: records.until(at) for name, at in moments.items()}
    return Play(who, report, action, limit, intervals, probes, carried.begin)


def _labels(who: Cast) -> dict[str, str]:
    return {"tenant": who.victim.tenant, "path": who.victim.path}


class _Flooding:
    """A flood on a thread of its own."""

    def __init__(self, lab: Lab, who: Cast) -> None:
        o = who.offender
        wanted = order.make(
            lab, tenant=o.tenant, path=o.path, node=o.node, to=None, rate=RATE, seconds=FLOOD, size=1400
        )
        self._reports: list[floods.FloodReport] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(wanted,), name="flood", daemon=True)
        self._thread.start()

    def _run(self, wanted: order.FloodOrder) -> None:
        try:
            self._reports.append(floods.run(wanted))
        except BaseException as e:  # handed to result()
            self._errors.append(e)

    def result(self) -> floods.FloodReport:
        """Wait for the end of the flood and return what was sent."""
        self._thread.join()
        if self._errors:
            raise self._errors[0]
        return self._reports[0]


def _why(carried: Transfer) -> str:
    try:
        carried.intervals()
    except VigiaError as e:
        return str(e)
    return "iperf3 stopped"


def _await(
    look: Callable[[], IsolationAction | None], seconds: float, problem: Callable[[], str], records: Records
) -> IsolationAction:
    patience = Patience(seconds)
    while True:
        found = look()
        records.keep()
        if found is not None:
            return found
        if patience.over():
            raise VigiaError(problem())
        time.sleep(0.2)


def _verified(agent: IsolationAgent, who: Cast, known: IsolationAction | None) -> IsolationAction | None:
    """The new action, once its limit was read back from the kernel."""
    action = agent.newest(who.offender.node, who.offender.port)
    if action is None or (known is not None and action.number <= known.number):
        return None
    return action if "limit_verified" in action.instants else None


def _released(agent: IsolationAgent, who: Cast, before: IsolationAction) -> IsolationAction | None:
    """The action, once its limit is gone from the kernel on evidence."""
    action = agent.newest(who.offender.node, who.offender.port)
    if action is None or action.number < before.number or "released" not in action.instants:
        return None
    if action.cause != "evidence":
        raise VigiaError(f"action {action.id} ended by {action.cause}, not on evidence")
    return action


def _explain_no_limit(prometheus: Prometheus, who: Cast) -> str:
    port = f'port="{who.offender.port}"'
    score = prometheus.total(f"max(vigia_port_flood_score{{{port}}})")
    firing = prometheus.total(f'count(ALERTS{{alertname="VigiaUdpFlood",alertstate="firing",{port}}})')
    where = (
        "the alert fires, but no limit was set: see GET /v1/actions of the isolation agent"
        if firing
        else f"the alert VigiaUdpFlood does not fire: the flood score of {who.offender.port} is {score:.0f}"
    )
    return f"no limit within {LIMIT_DEADLINE:g} s of the flood: {where}"
