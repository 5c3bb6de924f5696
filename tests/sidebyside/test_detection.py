"""Who named whom, and when: the enforcer's limits and FastNetMon's words judged alike."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from sidebyside import detection, fastnetmon
from sidebyside.detection import VIGIA, seen
from sidebyside.fastnetmon import Named
from vigia.attacks.corpus import CORPUS
from vigia.attacks.experiment import AttackTrial
from vigia.host import commands

TRIAL = AttackTrial("one-port", "linuxbridge", 1.0, 1.0, 5.0, 0.03, 0.0, 1.0, 0.0, 90.0, 100.0, 1.0)
SENDER, OTHER = "10.61.0.3", "10.60.0.2"
PEER, SHIPPED = "FastNetMon, tuned", "FastNetMon, as shipped"
CPU = {VIGIA: 0.1, PEER: 0.4, SHIPPED: 0.3}


def judged(entry: str, trial: AttackTrial, *named: Named) -> detection.Seen:
    return seen(CORPUS[entry], trial, 100.0, {PEER: named, SHIPPED: []}, [SENDER], CPU, 1000)


def test_an_attacker_that_both_name() -> None:
    found = judged("one-port", TRIAL, Named(101.5, SENDER, "outgoing"), Named(101.2, OTHER, "outgoing"))
    assert found.named == {VIGIA: 0.03, PEER: 1.5, SHIPPED: None}
    assert found.wrong[PEER] == [OTHER] and found.wrong[SHIPPED] == []
    assert not found.honest and not found.suffered


def test_a_word_before_the_onset_names_nobody() -> None:
    found = judged("one-port", TRIAL, Named(99.0, SENDER, "outgoing"))
    assert found.named[PEER] is None


def test_honest_traffic_that_is_named_is_accused() -> None:
    quiet = replace(TRIAL, entry="dns", limited=None, score=0.0)
    found = judged("dns", quiet, Named(101.0, SENDER, "incoming"))
    assert found.honest and found.named[VIGIA] is None and found.named[PEER] == 1.0
    assert judged("dns", replace(quiet, limited=0.5)).named[VIGIA] == 0.5
    assert judged("dns", replace(quiet, score=80.0)).named[VIGIA] is not None
    assert judged("backup", replace(quiet, entry="backup", limited=0.5)).named[VIGIA] is None, (
        "TCP is asked for room"
    )


def test_an_attack_without_a_limit_is_missed_unless_it_is_suspected() -> None:
    assert judged("one-port", replace(TRIAL, limited=None, score=10.0)).named[VIGIA] is None
    late = judged("one-port", replace(TRIAL, limited=None)).named[VIGIA]
    assert late == CORPUS["one-port"].seconds


def test_the_table_counts_misses_and_accusations() -> None:
    known = [
        judged("one-port", TRIAL, Named(101.5, SENDER, "outgoing")),
        judged("icmp", replace(TRIAL, entry="icmp", limited=None, score=0.0, victim=0.5)),
        judged("dns", replace(TRIAL, entry="dns", limited=None, score=0.0), Named(101.0, SENDER, "incoming")),
    ]
    lines = {(f.what, f.peer): f for f in detection.figures(known)}
    missed = lines["attacks missed, of 2", PEER]
    assert missed.ours == [1.0] and missed.theirs == [1.0] and "in 0 of these" in missed.note
    assert lines["attacks missed, of 2", SHIPPED].theirs == [2.0]
    accused = lines["honest entries accused, of 1", PEER]
    assert accused.ours == [0.0] and accused.theirs == [1.0] and "dns" in accused.note
    assert lines["processor time of a packet at the taps", PEER].theirs == [400.0] * 3


def test_without_fastnetmon_the_table_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastnetmon, "missing", lambda: "missing: apt-get install fastnetmon")
    alone = seen(CORPUS["one-port"], TRIAL, 100.0, {}, [SENDER], {VIGIA: 0.1}, 1000)
    lines = list(detection.figures([alone]))
    assert lines and all(f.theirs == () and "apt-get install fastnetmon" in f.note for f in lines)


def test_a_configuration_keeps_what_it_does_not_change() -> None:
    shipped = "# threshold_pps = 1\nthreshold_pps = 20000\nban_time = 1900\nthreshold_pps = 3\n"
    made = fastnetmon.configuration(shipped, {"threshold_pps": "6000", "interfaces": "t-a"})
    assert made == "# threshold_pps = 1\nthreshold_pps = 6000\nban_time = 1900\ninterfaces = t-a\n"


@pytest.mark.netns
def test_fastnetmon_is_there_or_it_is_said_how_to_get_it() -> None:
    there = os.access(fastnetmon.SHIPPED_FILE, os.R_OK) and commands.find("fastnetmon") is not None
    assert (fastnetmon.missing() == "") == there
