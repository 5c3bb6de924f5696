"""Whether the counter that saw a loss is named: python -m vigia.attacks.losses, run by make test-losses.

A lab with the whole stack is brought up, and each cause of loss is planted for some seconds: policers, a full
queue, sockets of both ends, forced drops, MTUs, a table miss, and losses that no host has. Once vigia-compare
has evaluated the minute, it must point at a counter that saw the cause, or say that it is not on these hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from vigia.attacks.planting import CAUSES, FAR, NEAR, Cause, Scene
from vigia.attacks.present import lab_of, remove, reported
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.lab import up as lab_up
from vigia.lab.model import Lab
from vigia.stack import places
from vigia.stack import up as stack_up
from vigia.stack.places import Places
from vigia_service.patience import Patience
from vigia_text.tables import table

__all__ = ["LossTrial", "faults", "judge", "lab_named", "main", "share"]

LAB = "losses"
AT = "127.93.0.0/24", "127.93.0.250"
BOUGHT = {"red": 30, "blue": 30, "green": 30, "amber": 30, "violet": 30}
"""Mbit/s, of links of 200."""

PATHS = {"linuxbridge-vxlan": 100, "ovs-vxlan": 200}
_OPENFLOW = {
    "tenant": "_infra",
    "path": "ovs-openflow-mac",
    "key": 402,
    "subnet": "192.168.42.0/24",
    "machines": 1,
}

SECONDS = 20.0
"""How long a cause is there."""

REQUIRED = 0.9
"""Share of the trials in which the right thing must be said."""

LEAST = 8.0
"""Probes that must be lost in one direction, or the cause was none."""

PATIENCE = 240.0
"""Seconds from a cause's end until the minute must have been evaluated."""

_SETTLED = 80.0
"""Seconds after a cause's end, by which its losses are counted and scraped (deadlines, and 15 s), and are not
in the newest window any more: counters that are new show up to 45 s later."""

_FIRST_MINUTES = 220.0  # seconds after the start until minutes without losses lie before the first cause
_POLL = 2.0
_WEIGHED = 6  # counters that are kept of each loss
NOWHERE = "not on these hosts"


@dataclass(frozen=True)
class PinnedLoss:
    """What vigia-compare says of one direction."""

    src: str
    dst: str
    lost: float
    """since the cause was planted"""
    verdict: str
    counter: tuple[str, str, str] | None
    """node (near or far), counter and detail that the loss is pinned to"""
    weighed: Sequence[Mapping[str, Any]] = ()
    """counters as vigia-compare shows them, the first ones"""


@dataclass(frozen=True)
class LossTrial:
    """What vigia-compare said after one cause."""

    cause: str
    expected: str
    said: Sequence[PinnedLoss]
    after: float
    """seconds from the cause's end until its minute was evaluated"""
    load: float


def faults(trial: LossTrial) -> list[str]:
    """Return what of the requirement a trial did not meet."""
    seen = CAUSES[trial.cause].seen
    if not trial.said:
        return ["nothing is said of the losses"]
    return [_words(s) for s in trial.said if not _right(s, seen)]


def _right(s: PinnedLoss, seen: frozenset[tuple[str, str, str]]) -> bool:
    return (s.verdict == "pinned" and s.counter in seen) if seen else s.verdict == NOWHERE


def _words(s: PinnedLoss) -> str:
    return s.verdict if s.counter is None else f"{s.verdict}: {' '.join(filter(None, s.counter))}"


def judge(
    losses: Sequence[Mapping[str, Any]], cause: Cause, before: Mapping[tuple[str, str], float], lab: Lab
) -> list[PinnedLoss]:
    """Return what is said of each direction that has lost probes since a cause was planted."""
    ends = {lab.nodes[0].name: NEAR, lab.nodes[1].name: FAR}
    found = []
    for one in losses:
        key = one["src"], one["dst"]
        lost = one["lost"] - before.get(key, 0.0)
        if (one["path"], one["tenant"]) != (cause.path, cause.tenant) or lost < LEAST:
            continue
        best = one["counters"][0] if one["verdict"] == "pinned" else None
        counter = (ends.get(best["node"], best["node"]), best["name"], best["detail"]) if best else None
        found.append(PinnedLoss(*key, lost, one["verdict"], counter, one["counters"][:_WEIGHED]))
    return found


def lost_before(losses: Sequence[Mapping[str, Any]], cause: Cause) -> dict[tuple[str, str], float]:
    """Return what each direction of a cause's path has lost so far."""
    return {
        (one["src"], one["dst"]): one["lost"]
        for one in losses
        if (one["path"], one["tenant"]) == (cause.path, cause.tenant)
    }


def lab_named(name: str, at: tuple[str, str] = AT) -> Lab:
    """Return a lab of two nodes with both switches, and a path by OpenFlow rules."""
    return lab_of(name, at, BOUGHT, PATHS, [_OPENFLOW])


@contextmanager
def _running(lab: Lab, steps: Steps) -> Iterator[Places]:
    remove(lab)
    try:
        yield stack_up.bring_up(lab_up.bring_up(lab, "auto", steps), steps)
    finally:
        remove(lab)


def _probes(lab: Lab, where: Places) -> dict[str, int]:
    services = json.loads(where.status.read_text())["services"]
    return {n.name: int(services[f"vigia-probe@{n.name}"]["pid"]) for n in lab.nodes}


def _evaluated(lab: Lab) -> dict[str, Any]:
    """Return the newest evaluation; one without an end while vigia-compare is busy."""
    url = f"http://{places.stack_address(lab, 9875)}/v1/comparisons"
    try:
        answer = httpx.get(url, timeout=20, trust_env=False)
    except httpx.HTTPError:
        return {"end": 0.0, "losses": []}
    found = answer.json() if answer.status_code == httpx.codes.OK else {}
    return {"end": found.get("end") or 0.0, "losses": found.get("losses", [])}


def _answered(lab: Lab) -> dict[str, Any]:
    """Return the newest evaluation, once there is one. Raises VigiaError."""
    patience = Patience(PATIENCE, time.time)
    while not (found := _evaluated(lab))["end"]:
        if patience.over():
            raise VigiaError(f"vigia-compare has not answered for {PATIENCE:.0f} s; see its log")
        time.sleep(_POLL)
    return found


def trial(lab: Lab, where: Places, cause: Cause, seconds: float) -> LossTrial:
    """Plant a cause, and wait for what is said of its minute. Raises VigiaError."""
    scene = Scene(lab, _probes(lab, where), cause.path, cause.tenant)
    before = lost_before(_answered(lab)["losses"], cause)
    with cause.beneath(scene):
        with cause.plant(scene):
            time.sleep(seconds)
            ended = time.time()
        while (now := _evaluated(lab))["end"] < ended + _SETTLED:
            if time.time() > ended + PATIENCE:
                raise VigiaError(
                    f"vigia-compare has not evaluated the minute {PATIENCE:.0f} s after {cause.name}"
                )
            time.sleep(_POLL)
    return LossTrial(
        cause=cause.name,
        expected=_expected(cause),
        said=judge(now["losses"], cause, before, lab),
        after=time.time() - ended,
        load=os.getloadavg()[0],
    )


def _expected(cause: Cause) -> str:
    return " or ".join(sorted(f"{n} {d}".strip() for _, n, d in cause.seen)) or NOWHERE


def share(trials: Sequence[LossTrial]) -> float:
    """Return the share of the trials in which the right thing was said."""
    return sum(not faults(t) for t in trials) / len(trials) if trials else 0.0


def _run_all(options: argparse.Namespace, trials: list[LossTrial], say: Callable[[str], None]) -> None:
    causes = [CAUSES[n] for n in options.only.split(",") if n] or list(CAUSES.values())
    todo = len(causes) * options.runs
    each = options.seconds + _SETTLED + 30.0 + options.apart
    say(f"{todo} causes, about {(_FIRST_MINUTES + todo * each) / 60:.0f} min")
    lab = lab_named(LAB)
    with _running(lab, Steps(sys.stderr)) as where:
        time.sleep(_FIRST_MINUTES)
        begun = time.monotonic()
        for done, cause in enumerate((c for _ in range(options.runs) for c in causes), start=1):
            trials.append(trial(lab, where, cause, options.seconds))
            left = (time.monotonic() - begun) * (todo - done) / done
            say(f"{_told(trials[-1])}  ({done} of {todo}, {left / 60:.0f} min left)")
            if done < todo:
                time.sleep(options.apart)


def _told(t: LossTrial) -> str:
    bad = "; ".join(faults(t))
    lost = " and ".join(f"{s.lost:.0f}" for s in t.said) or "no"
    return f"{t.cause:<17} {lost} probes lost, {bad or 'right: ' + _words(t.said[0])}, load {t.load:.1f}"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-losses", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each cause")
    parser.add_argument("--only", default="", help="names of causes, with commas; default: all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each cause is there")
    parser.add_argument(
        "--apart", type=float, default=10.0, help="seconds between a verdict and the next cause"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document to standard output")
    options = parser.parse_args(argv)
    if options.runs < 1:
        parser.error(f"argument --runs: {options.runs} is out of range; write 1 or more")
    if not 5.0 <= options.seconds <= 50.0:
        parser.error(f"argument --seconds: {options.seconds:g} is out of range; write 5 to 50")
    if not 0.0 <= options.apart <= 3600.0:
        parser.error(f"argument --apart: {options.apart:g} is out of range; write 0 to 3600")
    for name in filter(None, options.only.split(",")):
        if name not in CAUSES:
            parser.error(f'argument --only: "{name}" is not known; write one of {", ".join(CAUSES)}')
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Plant the causes and print what was said; 1 if that was right too rarely, 2 for a wrong option."""
    options = _options(argv)
    trials, whole = reported(
        lambda trials, say: _run_all(options, trials, say),
        _summary,
        as_json=options.json,
        broken="cannot plant all causes",
    )
    return int(not whole or _below(trials))


def _below(trials: Sequence[LossTrial]) -> bool:
    """Whether of any cause too few were told rightly."""
    return any(share([t for t in trials if t.cause == name]) < REQUIRED for name in {t.cause for t in trials})


def _summary(trials: Sequence[LossTrial]) -> str:
    rows = []
    for name in CAUSES:
        of = [t for t in trials if t.cause == name]
        if of:
            otherwise = "; ".join(sorted({w for t in of for w in faults(t)})) or "–"
            loads = f"{min(t.load for t in of):.1f} to {max(t.load for t in of):.1f}"
            rows.append((name, len(of), sum(not faults(t) for t in of), of[0].expected, otherwise, loads))
    return table(("cause", "runs", "right", "must be said", "said otherwise", "load"), rows)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("cannot make network namespaces; run make test-losses as root")
    sys.exit(main())
