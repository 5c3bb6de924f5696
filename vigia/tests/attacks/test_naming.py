"""Who is taken for named, and where attacks for it are played."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vigia.attacks import naming
from vigia.attacks.naming import ENTRIES, NamingTrial, faults, judge, lab_named
from vigia.demo.transfer import Interval
from vigia.errors import VigiaError

BEGUN = 1_800_000_000.0
GOOD = NamingTrial("one-port", "linuxbridge", True, 9.0, 0.6, 17.0, 0.8, "bandwidth", ["heedless"], [], 1.0)


def said(tenant: str = "blue", offender: str | None = "red", **changed: Any) -> dict[str, Any]:
    known = {"begin": BEGUN, "end": BEGUN + 10.0, "share": 0.8} if offender else None
    return {"tenant": tenant, "offender": offender, "verdict": "attributed", "known": known} | changed


def test_the_attacker_is_named_for_harm_since_the_attack() -> None:
    one = said()
    assert judge([said("green", None), one], BEGUN) == (one, set())


@pytest.mark.parametrize(
    "other",
    [
        said(known={"begin": BEGUN - 90.0, "end": BEGUN - 60.0}),
        said(verdict="likely"),
        said(verdict="own traffic", offender=None),
        said("_infra"),
    ],
    ids=["an earlier attack", "only likely", "nobody", "another victim"],
)
def test_what_is_said_of_other_things_does_not_count(other: dict[str, Any]) -> None:
    assert judge([other], BEGUN) == (None, set())


def test_innocents_that_are_named_are_told_with_their_victims() -> None:
    _, innocent = judge([said(), said("red", "blue"), said("blue", "green")], BEGUN)
    assert innocent == {"blue as who hurt red", "green as who hurt blue"}
    assert judge([said("blue", "green", verdict="likely")], BEGUN)[1] == set()


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (GOOD, []),
        (replace(GOOD, after=31.0), ["named after 31 s"]),
        (replace(GOOD, after=None), ["the attacker is not named"]),
        (replace(GOOD, after=None, kept=0.95), []),
        (replace(GOOD, innocent=["green as who hurt blue"]), ["green as who hurt blue is named"]),
    ],
)
def test_a_trial_must_name_who_harmed_in_time_and_nobody_else(trial: NamingTrial, words: list[str]) -> None:
    assert faults(trial) == words


def test_the_lab_has_three_tenants_on_both_switches() -> None:
    lab = lab_named("named")
    bought = {t.name: t.guarantee * 8 // 10**6 for t in lab.tenants()}
    assert bought == naming.BOUGHT and sum(bought.values()) < 190, "what the link gives out"
    for node in lab.nodes:
        ports = {(e.tenant, e.path, e.machine) for e in node.endpoints if e.tenant != "_infra"}
        paths = ("linuxbridge-vxlan", "ovs-vxlan")
        assert ports == {(t, p, m) for t in bought for p in paths for m in (1, 2)}


def test_every_attack_of_one_guest_is_played() -> None:
    assert {"one-port", "many-ports", "spoofed-mac", "forged-replies", "pulses-2000ms"} <= set(ENTRIES)
    assert not {"two-senders", "two-tenants", "from-the-victims-node"} & set(ENTRIES)


def test_what_the_victim_kept_is_of_what_it_had() -> None:
    rates = [10.0] * 10 + [100.0] * 20 + [40.0] * 40 + [100.0] * 10
    given = [Interval(BEGUN - 6.0 + i / 5, BEGUN - 5.8 + i / 5, r, 0) for i, r in enumerate(rates)]
    assert naming._kept(given, BEGUN) == pytest.approx(0.4, rel=0.2)
    with pytest.raises(VigiaError, match="before and during"):
        naming._kept(given[:20], BEGUN)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runs", "0"], "argument --runs: 0 is out of range; write 1 or more"),
        (["--only", "two-senders"], 'argument --only: "two-senders" is not known; write one of one-port'),
        (
            ["--switches", "ovs"],
            'argument --switches: "ovs" is not known; write one of linuxbridge, openvswitch',
        ),
        (["--isolation", "no"], 'argument --isolation: "no" is not known; write one of on, off'),
    ],
)
def test_a_wrong_option_names_the_right_ones(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        naming.main(options)
    assert ended.value.code == 2 and words in capsys.readouterr().err.replace("\n", " ")
