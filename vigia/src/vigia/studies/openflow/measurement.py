"""E2: delay of timed packets through a switch under rules that were installed beforehand."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from vigia.campaign import jobs, results
from vigia.campaign.hosts import Place
from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import LabTestbed, Testbed
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import openflow, openvswitch
from vigia.lab.openflow import Switch
from vigia.studies.openflow import packets, rulesets
from vigia.studies.openflow.rulesets import Rewrite, SwitchedFlow
from vigia.studies.study import Estimate, Factors, Measurement, level, whole

__all__ = ["MEASUREMENT", "TABLES", "OpenFlow", "fitting"]

TABLES = (1_000, 10_000, 100_000)
"""Rules of a table that is neither of one nor full."""

_CLIENT_PORT, _SERVER_PORT = 20862, 862
_OVERHEAD = 0.5
_FIRST = 1000  # rules of the first try


class OpenFlow(Measurement):
    """Rules, one packet to see that they do what they say, then the probe."""

    factors: Mapping[str, Sequence[str] | None] = {
        "path": None,
        "match": ("none", *rulesets.MATCHES),
        "size": None,
        "rules": ("none", "one", *map(str, TABLES), "full"),
        "rewrite": rulesets.REWRITES,
    }

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        rules = str(factors["rules"])
        held = settings.table if rules == "full" else int(rules) if rules.isdigit() else 0
        fill = 1.5e-4 * held
        seconds = settings.probes * settings.interval + _OVERHEAD + fill
        return Estimate(seconds, settings.probes * 2.0 * (whole(factors, "size") + 42))

    def described(self, settings: Settings) -> str:
        """Return how one repetition is made."""
        return (
            "rules are installed, one packet is checked field by field, then "
            f"{settings.probes} timed UDP packets go there and back, one every {settings.interval * 1e3:g} "
            f"ms; a full table is sought up to {settings.table} rules"
        )

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        path = level(factors, "path")
        if factors["match"] == "none":
            source, sink = testbed.pairs(path, "cross-node", 2)[0]
            return _delays(source, sink.address, 862, factors, settings)
        if not isinstance(testbed, LabTestbed):
            raise VigiaError("rules are installed in the lab only; on real switches write match: none")
        source, _ = testbed.pairs(path, "same-node", 2)[0]
        return _under_rules(testbed, source, factors, settings)


MEASUREMENT = OpenFlow()


def _under_rules(testbed: LabTestbed, source: Place, factors: Factors, settings: Settings) -> list[Series]:
    flow = _flow(testbed, level(factors, "path"))
    switch = openflow.switch(testbed.lab.layout, testbed.lab.node(flow.client.node))
    how = rulesets.rewrite(level(factors, "rewrite"), flow)
    wanted = rulesets.rules(level(factors, "match"), how, flow)
    try:
        size = level(factors, "rules")
        if size == "full":
            held = fitting(switch, wanted, settings.table)
            extra = [Series("rules", "rules", [float(held)])]
        else:
            more = int(size) - len(wanted) if size.isdigit() else 0
            openflow.install(switch, [*wanted, *rulesets.filler(more)])
            extra = []
    except commands.CommandError:
        return [Series("supported", "", [0.0])]
    openvswitch.forget_cached_flows(testbed.lab.layout, flow.client.node)
    _neighbours(flow, how)
    if factors["match"] != "normal":
        _check(flow, level(factors, "rewrite"), packets.cross(flow, how))
        extra.append(Series("supported", "", [1.0]))
    address = ipaddress.IPv4Address(how.address) if how.address else flow.server.address.ip
    return [*_delays(source, address, how.port or _SERVER_PORT, factors, settings), *extra]


def _flow(testbed: LabTestbed, path: str) -> SwitchedFlow:
    node = testbed.node_of(path)
    client, server = (testbed.endpoint(node.name, path, n) for n in (1, 2))
    numbers = openflow.ports(node)
    return SwitchedFlow(
        client, server, numbers[client.device], numbers[server.device], _CLIENT_PORT, _SERVER_PORT
    )


def fitting(switch: Switch, wanted: list[str], most: int) -> int:
    """Fill a bridge's table around the wanted rules and return how many it holds. Raises CommandError.

    Twice as many are tried each time, then half-way between the last that fitted
    and the first that did not; most ends the search.
    """
    openflow.install(switch, wanted)
    fits, refused, tried = len(wanted), 0, min(_FIRST, most)
    while True:
        try:
            openflow.install(switch, [*wanted, *rulesets.filler(tried - len(wanted))])
            fits = openflow.count(switch)
        except commands.CommandError:
            refused = tried
        if fits >= most or (refused and refused - fits <= max(1, fits // 50)):
            break
        tried = (fits + refused) // 2 if refused else min(2 * fits, most)
    if refused:
        openflow.install(switch, [*wanted, *rulesets.filler(fits - len(wanted))])
    return fits


def _neighbours(flow: SwitchedFlow, how: Rewrite) -> None:
    """Make the client know the hardware address to send to; the server answers to the real client."""
    lladdr = how.mac or flow.server.mac
    lines = [f"neigh replace {flow.server.address.ip} lladdr {lladdr} dev eth0 nud permanent"]
    if how.address:
        lines.append(f"neigh replace {how.address} lladdr {lladdr} dev eth0 nud permanent")
    commands.ip_batch(lines, netns=flow.client.netns)


def _check(flow: SwitchedFlow, rewrite: str, seen: packets.Seen) -> None:
    """Raise VigiaError if a packet did not arrive as the rules say."""
    expected = packets.Seen(
        mac=flow.server.mac,
        address=str(flow.server.address.ip),
        tos=rulesets.TOS if rewrite == "ip_tos" else 0,
        port=_SERVER_PORT,
        vlan_priority=rulesets.PRIORITY if rewrite == "vlan_priority" else None,
    )
    if seen != expected:
        raise VigiaError(f"the switch does not rewrite {rewrite} as told: {seen} arrived, not {expected}")


def _delays(
    source: Place, address: ipaddress.IPv4Address, port: int, factors: Factors, settings: Settings
) -> list[Series]:
    printed = source.host.run(
        jobs.Probe(
            netns=source.netns,
            source=source.address,
            source_port=_CLIENT_PORT,
            address=address,
            port=port,
            count=settings.probes,
            interval=settings.interval,
            size=whole(factors, "size"),
        )
    )
    kernel, application = results.probes(printed)
    return [Series("rtt", "s", kernel), Series("rtt_application", "s", application)]
