"""The bed of the isolation experiments, with real enforcers and real traffic."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from labkit import ROOT

from vigia.errors import VigiaError
from vigia.host import netns
from vigia.isolation.bench import payload
from vigia.isolation.model import FlowOutcome, IsolationPlan, Mode, TrafficFlow
from vigia.isolation.testbed import IsolationTestbed
from vigia.isolation.traffic import BIN
from vigia_testing import eventually

ENFORCER = ROOT / "bin" / "vigia-enforcer"
SHARES = {"a": 0.75, "b": 0.25}
PATIENCE = 240.0
"""Seconds for a run that had the processor time it needs."""


def test_an_outcome_is_averaged_between_two_moments() -> None:
    outcome = FlowOutcome(TrafficFlow("a", 1, 2), [10.0, 20.0, 30.0, 40.0], 0.0)
    assert outcome.mean() == 25.0
    assert outcome.mean(2 * BIN) == 35.0
    assert outcome.mean(BIN, 3 * BIN) == 25.0


def test_a_missing_enforcer_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(VigiaError, match="make build"),
        IsolationTestbed(IsolationPlan(Mode.RIGID, SHARES), tmp_path / "none"),
    ):
        pass


def test_guarantees_fit_the_link() -> None:
    bed = IsolationTestbed(IsolationPlan(Mode.VIGIA, SHARES, link=100_000_000), ENFORCER)
    assert sum(bed.guarantee(t) for t in SHARES) <= 0.95 * 0.99 * 100e6 + 1


def test_a_flood_is_held_back_at_its_source(root: None) -> None:
    flows = [TrafficFlow("a", 2, 1), TrafficFlow("b", 3, 1, "udp")]
    with IsolationTestbed(IsolationPlan(Mode.VIGIA, SHARES), ENFORCER) as bed:
        own = bed.fabric.removesuffix("f")
        assert len(netns.names(own)) == 10
        deadline = time.monotonic() + PATIENCE
        while True:
            outcomes = bed.run(flows, 3)
            receiver, sender = bed.metrics(1), bed.metrics(3)
            told = receiver.get('vigia_enforcer_notices_total{kind="ack",outcome="received"}', 0)
            held = sender.get('vigia_enforcer_reaction_seconds_count{stage="apply"}', 0)
            kept = outcomes[0].mean(begin=1.0) / payload(bed.guarantee("a"))
            good = told and held and kept >= 0.9 and outcomes[1].lost > 0.5
            if good or time.monotonic() > deadline:
                break
        assert told > 0
        assert held > 0
        assert kept >= 0.9, "the victim has what it bought; without control it has a fifth of it"
        assert outcomes[1].lost > 0.5, "the flood is held where it is sent: most of it never leaves its node"
        assert all(sum(o.goodput) > 0 for o in outcomes)
    assert netns.names(own) == []


def test_a_borrower_keeps_what_its_neighbour_leaves(root: None) -> None:
    """TCP of a borrows beside a neighbour that sends a fortieth of the link, within its contract."""
    alone, after, rate = 3, 4, 5e6
    flows = [TrafficFlow("a", 2, 1), TrafficFlow("b", 3, 1, "udp", rate=rate, delay=alone)]
    plan = IsolationPlan(Mode.VIGIA, {"a": 0.5, "b": 0.2}, link=200_000_000)
    with IsolationTestbed(plan, ENFORCER) as bed:
        deadline = time.monotonic() + PATIENCE
        while True:  # on a machine that is busy with other things a run may lack processor time
            borrower, neighbour = bed.run(flows, alone + 1 + after)
            left = borrower.mean(1, alone) - rate
            kept = [borrower.mean(s, s + 1) / left for s in range(alone + 1, alone + 1 + after)]
            good = min(kept) >= 0.9 and neighbour.lost < 0.02
            if good or time.monotonic() > deadline:
                break
        assert min(kept) >= 0.9, f"held to its guarantee it has half of it: {kept}"
        assert neighbour.lost < 0.02
        policed = 'vigia_isolation_policed_packets_total{port="a-2",tenant="a"}'
        assert bed.metrics(2).get(policed, 0) == 0, "it is delayed, not dropped"


def test_without_control_nothing_is_held_back(root: None) -> None:
    with IsolationTestbed(IsolationPlan(Mode.NONE, SHARES, hosts=2), ENFORCER) as bed:

        def carried() -> Any:
            """On a busy machine the ends may begin when the time is over."""
            (outcome,) = bed.run([TrafficFlow("a", 1, 2, connections=3)], 2)
            return outcome if sum(outcome.goodput) > 0 else None

        outcome = eventually(carried, "something to arrive")
        assert outcome.offered >= sum(outcome.goodput) * BIN
        with pytest.raises(VigiaError, match="enforcer of host 1"):
            bed.metrics(1)


@pytest.mark.parametrize("offload", [False, True])
def test_guests_send_frames_or_leave_that_to_devices(root: None, offload: bool) -> None:
    """A guest's device counts what TCP hands it: a frame at a time, or more at once."""
    plan = IsolationPlan(Mode.NONE, SHARES, hosts=2, offload=offload)
    with IsolationTestbed(plan, ENFORCER) as bed:
        guest = bed.guest(1, "a")

        def sent() -> tuple[int, int]:
            """Return the bytes and packets that a guest's device has sent."""
            (line,) = (
                text.split()
                for text in Path("/proc/thread-self/net/dev").read_text().splitlines()
                if text.lstrip().startswith("eth0:")
            )
            return int(line[9]), int(line[10])

        def counted() -> Any:
            """On a busy machine the ends may begin when the time is over."""
            before = netns.inside(guest, sent)
            bed.run([TrafficFlow("a", 1, 2, connections=3)], 2)
            size, packets = (now - was for now, was in zip(netns.inside(guest, sent), before, strict=True))
            return (size, packets) if packets > 100 else None

        size, packets = eventually(counted, "more than a hundred packets to be sent")
    assert (size / packets > 1514) is offload, f"{size} bytes in {packets} packets"
