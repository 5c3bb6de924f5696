"""Whether the attacker is named, and nobody else: python -m vigia.attacks.naming, run by make test-naming.

A lab with the whole stack is brought up, once with isolation and once without. The victim transfers by
TCP, an innocent neighbour sends all that it bought, and each attack of the corpus comes from a third tenant.
After each, vigia-compare has 30 s to say who hurt the victim, and must never name another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

import vigia_http
from vigia.attacks import stream as ends
from vigia.attacks.corpus import ATTACKS, Entry, Stream
from vigia.attacks.frames import StreamEnds
from vigia.attacks.present import lab_of, remove, reported
from vigia.console import Steps
from vigia.demo import transfer
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import up as lab_up
from vigia.lab.model import Endpoint, Lab
from vigia.stack import places
from vigia.stack import up as stack_up
from vigia.stack.places import Places
from vigia_text.tables import table

__all__ = ["ENTRIES", "NamingTrial", "faults", "judge", "lab_named", "main"]

LAB = "naming"
AGENTS, STACK = "127.95.0.0/24", "127.95.0.250"
ATTACKER, VICTIM, NEIGHBOUR = "red", "blue", "green"
BOUGHT = {ATTACKER: 40, VICTIM: 100, NEIGHBOUR: 30}
"""Mbit/s, of links of 200."""

LINK = 200_000_000 / 8
"""Bytes per second."""

SECONDS = 8.0
"""How long an attack lasts."""

DEADLINE = 30.0
"""Seconds from an attack's first frame until its sender must be named."""

UNHARMED = 0.9
"""A victim that keeps so much of its throughput was not hurt, and nobody need be named.

Nor need who kept to its contract while the victim had so much of what it bought: what it lost was borrowed.
"""

NEIGHBOURS_SHARE = 0.9
"""Of what the neighbour bought, it sends so much."""

_ONSET, _APART = 3.0, 35.0  # seconds before an attack, and after it until the next
_STEP = 5.0  # seconds to which vigia-compare knows when there was harm
_ENCAPSULATION = 50  # bytes
_FIRST_MINUTES = 75.0  # seconds after the start until there is something to compare with
_WINDOWS = {"linuxbridge": "linuxbridge-vxlan", "openvswitch": "ovs-vxlan"}

ENTRIES: Mapping[str, Entry] = {
    e.name: e
    for e in ATTACKS
    if all(s.tenant == "b" and s.source in (1, 3) and s.sink in (1, 3) for s in e.streams)
}
"""Attacks of one guest on one other: what two nodes can show."""


@dataclass(frozen=True)
class NamingTrial:
    """What vigia-compare said after one attack."""

    entry: str
    switch: str
    isolation: bool
    offered: float
    """what the attacker sent, of what it bought: frames of its port, as contracts count them"""
    kept: float
    """of its throughput before the attack, the victim's during it"""
    of_bought: float
    """of what it bought, the victim's throughput during the attack"""
    after: float | None
    """seconds from the first frame until the attacker was named; None: it was not"""
    share: float
    """of what went beyond contracts, the attacker's"""
    measure: str
    evidence: Sequence[str]
    """kinds"""
    innocent: Sequence[str]
    """who else was named"""
    load: float


def faults(trial: NamingTrial) -> list[str]:
    """Return what of the requirement a trial did not meet."""
    found = [f"{name} is named" for name in trial.innocent]
    if trial.after is None:
        if _hurt(trial):
            found.append("the attacker is not named")
    elif trial.after > DEADLINE:
        found.append(f"named after {trial.after:.0f} s")
    return found


def _hurt(trial: NamingTrial) -> bool:
    return trial.kept < UNHARMED and (trial.offered > 1.0 or trial.of_bought < UNHARMED)


def judge(said: Sequence[Mapping[str, Any]], begun: float) -> tuple[Mapping[str, Any] | None, set[str]]:
    """Return what is said of the attacker since a Unix time, and who else is named for harm since then.

    Floods that are little apart are one to vigia-compare, so that its harm may have begun earlier.
    """
    attacker: Mapping[str, Any] | None = None
    innocent = set()
    for one in said:
        known = one["known"]
        if one["verdict"] != "attributed" or known is None or known["end"] <= begun:
            continue
        if (one["tenant"], one["offender"]) == (VICTIM, ATTACKER):
            attacker = one
        elif one["offender"] != ATTACKER:
            innocent.add(f"{one['offender']} as who hurt {one['tenant']}")
    return attacker, innocent


def lab_named(name: str) -> Lab:
    """Return a lab of two nodes with both switches, an attacker, a victim and a neighbour."""
    return lab_of(name, (AGENTS, STACK), BOUGHT, {"linuxbridge-vxlan": 100, "ovs-vxlan": 200})


@contextmanager
def _running(lab: Lab, steps: Steps, *, isolation: bool) -> Iterator[Places]:
    """Have the lab and its stack up; without isolation nothing but the schedulers acts."""
    remove(lab)
    try:
        present = lab_up.bring_up(lab, "auto", steps)
        if not isolation:
            for node in lab.nodes:
                _without_fast_loop(lab.layout.node(node.name) / "enforcer.yaml")
        where = stack_up.bring_up(present, steps)
        if not isolation:
            _kill_switch(present.lab, where)
        yield where
    finally:
        remove(lab)


def _without_fast_loop(file: Path) -> None:
    content = yaml.safe_load(file.read_text())
    del content["fast_loop"]
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def _kill_switch(lab: Lab, where: Places) -> None:
    answer = httpx.put(
        f"http://{places.stack_address(lab, 9874)}/v1/killswitch",
        headers={"Authorization": f"Bearer {where.api_token.read_text().strip()}", **vigia_http.IDENTITY},
        json={"on": True, "reason": "attacks without isolation"},
        timeout=10,
        trust_env=False,
    )
    if answer.status_code != httpx.codes.OK:
        raise VigiaError(f"the kill switch cannot be set: {answer.status_code} {answer.text[:200]}")


def _ends(lab: Lab, path: str, tenant: str, source: str, sink: str) -> StreamEnds:
    sender, receiver = lab.endpoint(source, tenant, path), lab.endpoint(sink, tenant, path)
    victim = lab.endpoint(sink, VICTIM, path)
    return StreamEnds(
        mac=sender.mac,
        address=str(sender.address.ip),
        peer_mac=receiver.mac,
        peer_address=str(receiver.address.ip),
        other_mac=lab.endpoint(sink, tenant, path, 2).mac,
        victim_mac=victim.mac,
        victim_address=str(victim.address.ip),
        victim_network=victim.key,
        node=str(lab.node(source).tunnel.ip),
        peer_node=str(lab.node(sink).tunnel.ip),
    )


def _order(lab: Lab, path: str, entry: Entry, index: int, at: float) -> ends.Order:
    """Return a stream of an attack, from host 3 of the corpus, which is node1, to host 1, or back."""
    s: Stream = entry.streams[index]
    nodes = {3: lab.nodes[0].name, 1: lab.nodes[1].name}
    return ends.Order(
        role="send",
        entry=entry.name,
        index=index,
        namespace=lab.endpoint(nodes[s.source], ATTACKER, path).netns,
        ends=_ends(lab, path, ATTACKER, nodes[s.source], nodes[s.sink]),
        link=LINK,
        start=at,
        seconds=SECONDS,
        overhead=_ENCAPSULATION,
        parent=os.getpid(),
    )


def _said(lab: Lab) -> list[dict[str, Any]]:
    """Return what vigia-compare says of interference; nothing while it is busy."""
    try:
        answer = httpx.get(
            f"http://{places.stack_address(lab, 9875)}/v1/comparisons", timeout=20, trust_env=False
        )
    except httpx.HTTPError:
        return []
    return list(answer.json()["interference"]) if answer.status_code == httpx.codes.OK else []


def attack(lab: Lab, switch: str, entry: Entry, *, isolation: bool) -> NamingTrial:
    """Let an attack meet the victim and its neighbour, and wait for what is said of it. Raises VigiaError."""
    path = _WINDOWS[switch]
    near, far = lab.nodes[0].name, lab.nodes[1].name
    children: list[subprocess.Popen[str]] = []
    with transfer.running(*_pair(lab, near, far, VICTIM, path), _ONSET + SECONDS + _APART) as carried:
        time.sleep(_ONSET)
        if carried.over:
            raise VigiaError(f"the transfer of {VICTIM} ended early")
        at = time.monotonic() + 1.0
        begun = time.time() + 1.0
        try:
            orders = [_order(lab, path, entry, i, at) for i in range(len(entry.streams))]
            children += [commands.spawn(ends.command(), ends.encode(o)) for o in orders]
            found, innocent, after = None, set[str](), None
            while time.time() - begun < DEADLINE + _STEP:
                time.sleep(1.0)
                named, others = judge(_said(lab), begun)
                innocent |= others
                if named is not None and found is None:
                    found, after = named, time.time() - begun
            sent = 0.0
            for order, child in zip(orders, children, strict=True):
                out, err = child.communicate(timeout=30)
                if child.returncode != 0:
                    raise VigiaError(f"a stream of {entry.name} failed: {err.strip()[-300:]}")
                sent += sum(json.loads(out)) * ends.beneath(order)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                child.communicate()
        carried.stop()
        before, during = _carried(carried.intervals(), begun)
    return NamingTrial(
        entry=entry.name,
        switch=switch,
        isolation=isolation,
        offered=sent * 8 / (SECONDS * BOUGHT[ATTACKER] * 1e6),
        kept=during / before,
        of_bought=during / (BOUGHT[VICTIM] * 1e6),
        after=after,
        share=found["known"]["share"] if found else 0.0,
        measure=found["measure"] if found else "",
        evidence=sorted({e["kind"] for e in found["known"]["evidence"]}) if found else [],
        innocent=sorted(innocent),
        load=os.getloadavg()[0],
    )


def _carried(intervals: Sequence[transfer.Interval], begun: float) -> tuple[float, float]:
    """Return the throughput before an attack, but for the first second, and during it, in bits per second."""
    before = [i.bits_per_second for i in intervals if i.begin > intervals[0].begin + 1.0 and i.end <= begun]
    during = [i.bits_per_second for i in intervals if begun <= i.begin and i.end <= begun + SECONDS]
    if not before or not during or not any(before):
        raise VigiaError("the transfer does not say what it had before and during the attack")
    return statistics.fmean(before), statistics.fmean(during)


def _pair(lab: Lab, near: str, far: str, tenant: str, path: str) -> tuple[Endpoint, Endpoint]:
    return lab.endpoint(near, tenant, path), lab.endpoint(far, tenant, path)


@contextmanager
def _neighbour(lab: Lab, path: str) -> Iterator[None]:
    """Have the innocent neighbour send nearly all that it bought, by UDP to one port, all the time."""
    here, there = _pair(lab, lab.nodes[0].name, lab.nodes[1].name, NEIGHBOUR, path)
    rate = round(BOUGHT[NEIGHBOUR] * 1e6 * NEIGHBOURS_SHARE)
    address = str(there.address.ip)
    server = commands.spawn(["iperf3", "--server", "--bind", address, "--port", "5301"], netns=there.netns)
    client = None
    try:
        deadline = time.monotonic() + 20
        argv = [
            "iperf3",
            "--client",
            address,
            "--port",
            "5301",
            "--udp",
            "--bitrate",
            str(rate),
            "--length",
            "1300",
            "--time",
            "0",
            "--interval",
            "0",
        ]
        while client is None or client.poll() is not None:
            if time.monotonic() > deadline:
                raise VigiaError("the neighbour's traffic does not start")
            client = commands.spawn(argv, netns=here.netns)
            time.sleep(1.0)
        yield
        if client.poll() is not None:
            raise VigiaError("the neighbour's traffic ended early")
    finally:
        for child in (client, server):
            if child is not None:
                child.kill()
                child.communicate()


def _run_all(options: argparse.Namespace, trials: list[NamingTrial], say: Callable[[str], None]) -> None:
    entries = [ENTRIES[n] for n in options.only.split(",") if n] or list(ENTRIES.values())
    switches = options.switches.split(",")
    modes = [m == "on" for m in options.isolation.split(",")]
    each = _ONSET + DEADLINE + _STEP + 3.0 + options.apart
    todo = len(entries) * len(switches) * len(modes) * options.runs
    say(f"{todo} attacks, about {todo * each / 60:.0f} min")
    begun, done = time.monotonic(), 0
    steps = Steps(sys.stderr)
    lab = lab_named(LAB)
    for isolation in modes:
        with _running(lab, steps, isolation=isolation):
            time.sleep(_FIRST_MINUTES)
            for switch in switches:
                with _neighbour(lab, _WINDOWS[switch]):
                    for entry in [e for e in entries for _ in range(options.runs)]:
                        trial = attack(lab, switch, entry, isolation=isolation)
                        trials.append(trial)
                        done += 1
                        left = (time.monotonic() - begun) * (todo - done) / done
                        say(f"{_told(trial)}  ({done} of {todo}, {left / 60:.0f} min left)")
                        time.sleep(options.apart)


def _told(t: NamingTrial) -> str:
    named = (
        "not named"
        if t.after is None
        else f"named after {t.after:.0f} s by {', '.join(t.evidence)} ({t.measure})"
    )
    bad = "; ".join(faults(t))
    mode = "on" if t.isolation else "off"
    kept = (
        f"sent {t.offered:.1f} of the contract, victim kept {t.kept:.2f} and had {t.of_bought:.2f} of its own"
    )
    return f"isolation {mode}, {t.switch:<11} {t.entry:<25} {kept}, {named}{'  ' + bad if bad else ''}"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-naming", description=__doc__)
    both = ",".join(_WINDOWS)
    parser.add_argument("--runs", type=int, default=1, help="runs of each attack")
    parser.add_argument("--switches", default=both, help=f"of {both}")
    parser.add_argument("--isolation", default="on,off", help="of on,off")
    parser.add_argument("--only", default="", help="names of attacks, with commas; default: all of one guest")
    parser.add_argument(
        "--apart", type=float, default=30.0, help="seconds between two attacks, beside those of waiting"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document to standard output")
    options = parser.parse_args(argv)
    if options.runs < 1:
        parser.error(f"argument --runs: {options.runs} is out of range; write 1 or more")
    for field, known in (("switches", _WINDOWS), ("isolation", ("on", "off")), ("only", ENTRIES)):
        for name in filter(None, getattr(options, field).split(",")):
            if name not in known:
                parser.error(f'argument --{field}: "{name}" is not known; write one of {", ".join(known)}')
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the attacks and print who was named; 1 if a requirement is not met, 2 for a wrong option."""
    options = _options(argv)
    trials, whole = reported(
        lambda trials, say: _run_all(options, trials, say),
        _summary,
        as_json=options.json,
        broken="cannot run all attacks",
    )
    return int(not whole or any(faults(t) for t in trials))


def _summary(trials: Sequence[NamingTrial]) -> str:
    rows = []
    for isolation in (True, False):
        for switch in _WINDOWS:
            of = [t for t in trials if t.isolation == isolation and t.switch == switch]
            if of:
                named = sorted(t.after for t in of if t.after is not None)
                rows.append(
                    (
                        "on" if isolation else "off",
                        switch,
                        len(of),
                        sum(1 for t in of if not faults(t)),
                        f"{named[len(named) // 2]:.0f} s" if named else "–",
                        sum(len(t.innocent) for t in of),
                    )
                )
    return table(("isolation", "switch", "attacks", "named in time", "median", "innocents named"), rows)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("cannot make network namespaces; run make test-naming as root")
    sys.exit(main())
