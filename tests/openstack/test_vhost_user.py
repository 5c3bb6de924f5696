"""A guest at a vhost-user port of Open vSwitch with DPDK: no device in the kernel, so the switch itself has to hold it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from vhostkit import RATE, VhostNode

from vigia.lab.neutron import guestfiles
from vigia_testing import eventually

pytestmark = [pytest.mark.openstack, pytest.mark.long]

_PATIENCE = 120.0
_FLOOD = 4 * RATE
"""Bytes per second above which the guest sends more than it has bought."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VhostNode]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not guestfiles.possible():
        pytest.skip("a guest's kernel is Debian's for x86-64, which this machine is not")
    with VhostNode.up(tmp_path_factory.mktemp("vhost")) as made:
        made.flood()
        yield made


def passes(node: VhostNode, seconds: float) -> float:
    """Return the bytes that come through from the guest, per second of some seconds."""
    before, began = node.arrived(), time.monotonic()
    time.sleep(seconds)
    return (node.arrived() - before) / (time.monotonic() - began)


def floods(node: VhostNode) -> bool:
    return passes(node, 1) > _FLOOD


def test_the_port_is_known_and_counted_though_it_has_no_device(node: VhostNode) -> None:
    eventually(lambda: floods(node), "the guest to send more than it has bought", _PATIENCE)
    state = node.state()
    assert (state["tenant"], state["attached"], state["hook"]) == ("red", True, "")
    assert state["offered"] is None, "nobody counts it in the kernel"
    before = node.exported("vigia_port_bytes_total", direction="from_tenant")
    eventually(
        lambda: node.exported("vigia_port_bytes_total", direction="from_tenant") > before + RATE,
        "the switch's counters",
        _PATIENCE,
    )


def test_the_switch_holds_the_guest_until_the_limit_is_removed(node: VhostNode) -> None:
    eventually(lambda: floods(node), "the guest to send more than it has bought", _PATIENCE)
    said = node.limit(60)
    assert said.status_code == 200, said.text
    assert node.policing() == RATE * 8 // 1000
    assert said.json()["limit"]["whole_port"] is True
    time.sleep(2)  # what the switch had in hand, and the burst
    # It counts bytes without Ethernet headers: some more come through.
    assert passes(node, 10) < 1.25 * RATE
    eventually(
        lambda: node.exported("vigia_port_drops_total", direction="from_tenant", reason="rate_limit") > 0,
        "the switch's drops",
        _PATIENCE,
    )
    assert node.ask("DELETE", f"/v1/ports/{node.state()['port']}/limit").json()["removed"] is True
    assert node.policing() == 0
    eventually(lambda: floods(node), "the flood to come through again", _PATIENCE)


def test_a_limit_ends_in_time_also_when_the_enforcer_was_killed(node: VhostNode) -> None:
    assert node.limit(5).status_code == 200
    node.agents["enforcer"].kill()
    node.agents["enforcer"].wait()
    assert node.policing() == RATE * 8 // 1000, "nobody else takes it off the switch"
    node.start_agent("enforcer")
    eventually(lambda: node.policing() == 0, "the next enforcer to end it", _PATIENCE)
    eventually(lambda: floods(node), "the flood to come through again", _PATIENCE)
