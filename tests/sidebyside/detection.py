"""Detection: the enforcer beside FastNetMon, tuned and as shipped, at the same taps and in the same traffic."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from sidebyside import fastnetmon
from sidebyside.fastnetmon import Named, Watcher
from sidebyside.figures import Figure
from sidebyside.part import Bench
from vigia.attacks import experiment
from vigia.attacks.corpus import ATTACKS, CORPUS, LEGITIMATE, SHORT, Entry
from vigia.attacks.experiment import ONSET, SUSPECT, AttackTrial
from vigia.host import netns
from vigia.isolation import bench as isolation
from vigia.isolation.overlay import OverlaySwitch, OverlayTestbed
from vigia.stack import places

HOSTS = (2, 3)
"""Nodes of those who attack. Every stream of the corpus passes a tap of one of them, before any limit."""
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "FastNetMon, as shipped": fastnetmon.SHIPPED,
    "FastNetMon, tuned": fastnetmon.TUNED,
}
VIGIA = "vigia-enforcer"
SAMPLE: Sequence[str] = (
    *(e.name for e in LEGITIMATE),
    "one-port",
    "many-destinations",
    "small-packets",
    "from-the-victims-node",
    "spoofed-mac",
    "spoofed-source",
    "ipv6",
    "later-fragments",
    "icmp",
    "unknown-ethertype",
    "arp-everybody",
    "syn",
    "pulses-100ms",
    "rare-pulses",
    "ramp",
    "two-tenants",
    "vxlan-inside",
)
"""What is played where not the whole corpus is asked for: all that is honest, and of every kind of attack one."""
_HONEST = frozenset(e.name for e in LEGITIMATE)


@dataclass(frozen=True)
class Seen:
    """What became of one entry."""

    entry: str
    honest: bool
    named: dict[str, float | None]
    """by tool: seconds from the onset to the first word of it; None: not a word"""
    wrong: dict[str, list[str]]
    """by FastNetMon's setting: addresses it named that did not send the attack"""
    cpu: dict[str, float]
    """by tool: seconds of processor time on both nodes, BPF programs included"""
    packets: int
    """that passed the taps"""
    suffered: bool
    """whether the victim had less than it bought"""
    load: float


def beside(bench: Bench) -> Iterator[Figure]:
    """Let the sample of the corpus pass once, or all of it."""
    names = chosen(bench)
    file = bench.folder / "detection.jsonl"
    known = [Seen(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    todo = [CORPUS[n] for n in names if n not in {s.entry for s in known}]
    if todo:
        known += watch(bench, todo, file)
    yield from figures([s for s in known if s.entry in names])


def chosen(bench: Bench) -> Sequence[str]:
    """Return the names of the entries that are played, in their order."""
    if bench.short:
        return SHORT
    return [e.name for e in (*LEGITIMATE, *ATTACKS)] if bench.whole else SAMPLE


def watch(bench: Bench, entries: Sequence[Entry], file: Path) -> list[Seen]:
    """Run entries in one bed; each is written to the file once it is over, so that a run can be cut."""
    settings = {} if fastnetmon.missing() else SETTINGS
    out, begun = [], time.monotonic()
    with (
        OverlayTestbed(experiment.plan(), places.built(VIGIA), OverlaySwitch.LINUX_BRIDGE, "debug") as bed,
        isolation.run_statistics(),
    ):
        for number, entry in enumerate(entries):
            out.append(_one(bench.folder / f"watchers-{time.monotonic_ns()}", bed, entry, settings))
            with file.open("a") as kept:
                kept.write(json.dumps(asdict(out[-1])) + "\n")
            left = (time.monotonic() - begun) / (number + 1) * (len(entries) - number - 1)
            bench.say(f"{entry.name}: {out[-1].named}, {left / 60:.0f} min left")
    return out


def _one(folder: Path, bed: OverlayTestbed, entry: Entry, settings: Mapping[str, Mapping[str, str]]) -> Seen:
    devices = [f"t-{t}" for t in bed.plan.guarantees]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        watchers: dict[str, dict[int, Watcher]] = {}
        for number, (name, changes) in enumerate(settings.items()):
            for host in HOSTS:
                guests = [bed.address(host, t) for t in bed.plan.guarantees]
                made = Watcher(folder / f"{number}-{host}", bed.node(host), devices, guests, changes)
                stack.callback(made.stop)
                watchers.setdefault(name, {})[host] = made
        for each in watchers.values():
            for watcher in each.values():
                watcher.ready()
        pids = {VIGIA: [bed.enforcer_pid(h) for h in HOSTS]}
        pids |= {name: [w.pid for w in each.values()] for name, each in watchers.items()}
        cpu, packets = _cpu(pids), _packets(bed, devices)
        trial = experiment.run(bed, entry, honest=entry.name in _HONEST, attempts=1)
        onset = time.time() - time.monotonic() + bed.started + ONSET
        used = {name: seconds - cpu[name] for name, seconds in _cpu(pids).items()}
        told = {name: [n for w in each.values() for n in w.named()] for name, each in watchers.items()}
        return seen(entry, trial, onset, told, _senders(bed, entry), used, _packets(bed, devices) - packets)


def seen(
    entry: Entry,
    trial: AttackTrial,
    onset: float,
    told: Mapping[str, Sequence[Named]],
    senders: Sequence[str],
    cpu: Mapping[str, float],
    packets: int,
) -> Seen:
    """Judge one entry: who was first told of whom, and when."""
    honest = entry.name in _HONEST
    named: dict[str, float | None] = {VIGIA: _ours(entry, trial, honest=honest)}
    wrong = {}
    for name, all_of in told.items():
        right = [n.at - onset for n in all_of if n.at >= onset and (honest or n.address in senders)]
        named[name] = min(right, default=None)
        wrong[name] = sorted({n.address for n in all_of if honest or n.address not in senders})
    suffered = trial.victim < experiment.LEAST
    return Seen(entry.name, honest, named, wrong, dict(cpu), packets, suffered, trial.load)


def _ours(entry: Entry, trial: AttackTrial, *, honest: bool) -> float | None:
    """Return when the enforcer limited a sender; TCP that borrows is asked for room, which accuses nobody."""
    suspected = trial.score >= SUSPECT
    if honest:
        accused = suspected or (trial.limited is not None and all(f.protocol == "udp" for f in entry.flows))
        return (trial.limited or 0.0) if accused else None
    if trial.limited is None and suspected:
        return entry.seconds  # it was seen, and nobody knows when: the latest that it can have been
    return trial.limited


def _senders(bed: OverlayTestbed, entry: Entry) -> list[str]:
    """Return the addresses of those who attack; of an honest entry, of those whom nobody may name."""
    places_ = {(s.source, s.tenant) for s in entry.streams} | {(f.source, f.tenant) for f in entry.flows}
    return [bed.address(host, tenant) for host, tenant in sorted(places_)]


def _cpu(pids: Mapping[str, Sequence[int]]) -> dict[str, float]:
    out = {name: sum(map(isolation.cpu_seconds, each)) for name, each in pids.items()}
    out[VIGIA] += sum(ns for ns, _ in isolation.program_times(pids[VIGIA]).values()) / 1e9
    return out


def _packets(bed: OverlayTestbed, devices: Sequence[str]) -> int:
    """Return how many packets the taps have seen, both ways."""
    total = 0
    for host in HOSTS:
        text = netns.inside(bed.node(host), lambda: Path("/proc/thread-self/net/dev").read_text())
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name.strip() in devices:
                fields = rest.split()
                total += int(fields[1]) + int(fields[9])
    return total


def figures(known: Sequence[Seen]) -> Iterator[Figure]:
    """Return the lines of the table."""
    for peer in SETTINGS:
        watched = [s for s in known if peer in s.named]
        yield from _beside(peer, known, watched, "" if watched else fastnetmon.missing())


def _beside(peer: str, known: Sequence[Seen], watched: Sequence[Seen], lacking: str) -> Iterator[Figure]:
    """Return the lines of one setting; without any entry that it watched, ours alone and what is lacking."""
    attacks, honest = [s for s in known if not s.honest], [s for s in known if s.honest]
    of_attacks, of_honest = _of(attacks, len(ATTACKS)), _of(honest, len(LEGITIMATE))

    def line(what: str, unit: str, mine: Sequence[float], theirs: Sequence[float], *notes: str) -> Figure:
        note = "; ".join(filter(None, [lacking, *notes]))
        return Figure(
            "detection", what, unit, mine, peer, theirs if watched else (), note=note, exact=not unit
        )

    yield line("time to name an attacker, of those named", "s", _times(attacks, VIGIA), _times(attacks, peer))
    missed = {who: [s.entry for s in attacks if s.named.get(who) is None] for who in (VIGIA, peer)}
    unharmed = sum(not s.suffered for s in attacks if s.entry in missed[VIGIA])
    notes = [f"ours: {_list(missed[VIGIA])}"]
    notes += (
        [f"in {unharmed} of these {len(missed[VIGIA])} the victim had all that it bought"]
        if missed[VIGIA]
        else []
    )
    notes += [f"the peer's: {_list(missed[peer])}"] if watched else []
    yield line(f"attacks missed, {of_attacks}", "", *_counts(missed, peer), *notes)
    false = {who: [s.entry for s in honest if _accused(s, who)] for who in (VIGIA, peer)}
    notes = [f"{who}: {_list(names)}" for who, names in false.items() if names]
    yield line(f"honest entries accused, {of_honest}", "", *_counts(false, peer), *notes)
    others = [s.entry for s in attacks if s.wrong.get(peer)]
    what = f"attacks in which it named somebody else, {of_attacks}"
    yield line(what, "", [], [float(len(others))], _list(others) if watched else "")
    ours, theirs = ([s.cpu[who] / s.packets * 1e6 for s in watched if s.packets] for who in (VIGIA, peer))
    yield line("processor time of a packet at the taps", "µs", ours, theirs)


def _of(played: Sequence[Seen], all_: int) -> str:
    return f"of {all_}" if len(played) == all_ else f"of a sample of {len(played)} of {all_}"


def _counts(names: Mapping[str, Sequence[str]], peer: str) -> tuple[list[float], list[float]]:
    return [float(len(names[VIGIA]))], [float(len(names[peer]))]


def _accused(s: Seen, who: str) -> bool:
    return s.named.get(who) is not None or bool(s.wrong.get(who))


def _times(attacks: Sequence[Seen], who: str) -> list[float]:
    return [at for s in attacks if (at := s.named.get(who)) is not None]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
