"""What a machine can do is tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vigia import commands, netns
from vigia.lab import capabilities


def test_paths_that_the_demo_has_are_possible(root: None, vigia: Callable[..., Any]) -> None:
    done = vigia("lab", "paths", "--json")
    assert done.status == 0, done.stderr
    found = {c["path"]: c for c in done.json}
    for path in ("direct", "linuxbridge-vxlan", "ovs-vxlan", "ovs-gre", "ovs-openflow", "macvlan"):
        assert found[path]["possible"], found[path]
    assert found["ipsec"]["possible"] == (commands.find("charon-systemd") is not None)
    assert found["sriov"]["explanation"]
    assert [n for n in netns.names("vigia-p") if n.endswith("-check")] == [], "nothing stays"


def test_virtual_functions_are_found(tmp_path: Path) -> None:
    (tmp_path / "eth1" / "device").mkdir(parents=True)
    assert capabilities.virtual_functions(tmp_path) == []
    (tmp_path / "eth1" / "device" / "sriov_numvfs").write_text("0\n")
    assert capabilities.virtual_functions(tmp_path) == ["eth1"]
