"""What a campaign says of the machine it ran on."""

from __future__ import annotations

import re

from vigia.host import environment

NAMES = {
    "iperf3": r"iperf \d",
    "ping": r"ping from iputils",
    "ip": r"ip utility, iproute2",
    "ovs": r"ovs-vsctl \(Open vSwitch\) \d",
    "fio": r"fio-\d",
    "cc": r"(gcc|cc|clang) ",
    "strongswan": r"strongSwan \d",
}


def test_every_tool_tells_its_version_whatever_else_it_says() -> None:
    versions = environment.describe(None)["versions"]
    assert versions.keys() == NAMES.keys(), "tools/bootstrap.sh test installs all of them"
    for name, wanted in NAMES.items():
        assert re.match(wanted, versions[name]), versions[name]
