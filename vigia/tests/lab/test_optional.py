"""Optional paths are left out where the machine cannot have them, with all that depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import ipsec, model, optional, sriov
from vigia.lab.model import Lab
from vigia.lab.topology import Topology

CONFINED = "cupsd (enforce)\n/usr/sbin/charon-systemd (enforce)\n"


@pytest.fixture
def no_strongswan(monkeypatch: pytest.MonkeyPatch) -> None:
    real = commands.find
    monkeypatch.setattr(commands, "find", lambda name: None if name == "charon-systemd" else real(name))


def test_a_machine_without_strongswan_has_the_rest_of_the_demo(demo: Lab, no_strongswan: None) -> None:
    found, reasons = optional.without_impossible(demo)
    assert set(reasons) == {"ipsec-macvlan", "ipsec-ovs-vxlan"}
    assert all("charon-systemd is not installed; run: apt-get install" in r for r in reasons.values())
    assert [p.name for p in found.topology.paths] == [
        p.name for p in demo.topology.paths if p.kind != "ipsec"
    ]
    assert not any(ipsec.stations(found))
    again, reasons = optional.without_impossible(found)
    assert (again.topology, reasons) == (found.topology, {}), "it is the same lab the next time"


def test_what_goes_over_a_path_that_is_left_out_is_left_out(
    demo: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise VigiaError("no card")

    monkeypatch.setattr(sriov, "take", none)
    given = demo.topology.model_dump(mode="json")
    given["paths"] = [
        *(p for p in given["paths"] if p["name"] in ("direct", "ovs-vxlan")),
        {"name": "sriov", "kind": "sriov", "subnet": "192.168.9.0/24", "optional": True},
        {"name": "ipsec-sriov", "kind": "ipsec", "over": "sriov", "subnet": "10.1.1.0/24"},
    ]
    given["networks"] = [n for n in given["networks"] if n["path"] == "ovs-vxlan"]
    lab = model.resolve(Topology.model_validate(given))
    found, reasons = optional.without_impossible(lab)
    assert reasons == {"sriov": "no card", "ipsec-sriov": "there is no sriov"}
    assert [p.name for p in found.topology.paths] == ["direct", "ovs-vxlan"]


def test_a_path_that_is_not_optional_stays(pairs: Lab, no_strongswan: None) -> None:
    """Bringing the lab up then says what is missing."""
    given = pairs.topology.model_dump(mode="json")
    given["paths"].append({"name": "esp", "kind": "ipsec", "over": "direct", "subnet": "10.1.1.0/24"})
    lab = model.resolve(Topology.model_validate(given))
    assert optional.without_impossible(lab) == (lab, {})


def test_apparmor_that_keeps_strongswan_from_the_lab_is_named(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.write_text(CONFINED)
    with pytest.raises(
        VigiaError, match=r"AppArmor keeps charon-systemd .*; run: aa-complain /usr/sbin/charon-systemd"
    ):
        ipsec.check(profiles)
    profiles.write_text(CONFINED.replace("charon-systemd (enforce)", "charon-systemd (complain)"))
    ipsec.check(profiles)
    ipsec.check(tmp_path / "absent")
