"""What the bed with an overlay does before anybody sends."""

from __future__ import annotations

from labkit import ROOT

from vigia.isolation.model import IsolationPlan, Mode, TrafficFlow
from vigia.isolation.overlay import OverlaySwitch, OverlayTestbed
from vigia.lab import buffers


def test_open_vswitch_loses_nothing_before_the_queue_of_the_uplink(root: None) -> None:
    """All of its sockets have large buffers, the one that it sends through, too."""
    plan = IsolationPlan(Mode.VIGIA, {"a": 0.5, "b": 0.4}, hosts=2)
    with OverlayTestbed(plan, ROOT / "bin" / "vigia-enforcer", OverlaySwitch.OPENVSWITCH) as bed:
        pids = [int((bed._ovs(host) / "ovs-vswitchd.pid").read_text()) for host in (1, 2)]
        before = [buffers.read_all(pid) for pid in pids]
        # On a busy machine a first SYN may be lost, and the next one comes a second later.
        for _ in range(20):
            (outcome,) = bed.run([TrafficFlow("a", 2, 1)], 1.0)
            if outcome.mean() > 0:
                break
        assert outcome.mean() > 0
        after = [buffers.read_all(pid) for pid in pids]
    assert [len(a) for a in after] == [len(b) for b in before], "a socket was opened by the first packet"
    for found in (*before, *after):
        assert found and all(b.send >= buffers.SEND and b.receive >= buffers.RECEIVE for b in found), found
