"""Who named whom, and when: the enforcer's limits and FastNetMon's words judged alike."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sidebyside import detection, fastnetmon
from sidebyside.detection import VIGIA, seen
from sidebyside.fastnetmon import Named
from sidebyside.part import Bench
from vigia.attacks.corpus import ATTACKS, CORPUS, LEGITIMATE, SHORT, Entry
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
    missed = lines[f"attacks missed, of a sample of 2 of {len(ATTACKS)}", PEER]
    assert missed.ours == [1.0] and missed.theirs == [1.0] and "in 0 of these" in missed.note
    assert lines[f"attacks missed, of a sample of 2 of {len(ATTACKS)}", SHIPPED].theirs == [2.0]
    accused = lines["honest entries accused, of a sample of 1 of 10", PEER]
    assert accused.ours == [0.0] and accused.theirs == [1.0] and "dns" in accused.note
    assert lines["processor time of a packet at the taps", PEER].theirs == [400.0] * 3


def test_the_sample_has_all_honest_entries_and_attacks_of_every_kind(tmp_path: Path) -> None:
    def names(*, short: bool, whole: bool) -> list[str]:
        return list(detection.chosen(Bench(tmp_path, short, 1, print, whole)))

    sample, whole = names(short=False, whole=False), names(short=False, whole=True)
    assert set(whole) == set(CORPUS) and len(whole) == len(CORPUS)
    assert len(sample) == len(set(sample)) == 27 and set(sample) <= set(CORPUS)
    assert {e.name for e in LEGITIMATE} <= set(sample)
    attacks = [CORPUS[n] for n in sample if n not in {e.name for e in LEGITIMATE}]
    assert any(len(e.streams) > 1 for e in attacks), "two who collude"
    assert any(s.ramp for e in attacks for s in e.streams) and any(s.on for e in attacks for s in e.streams)
    assert {s.source for e in attacks for s in e.streams} == set(detection.HOSTS), "every tap"
    assert names(short=True, whole=False) == names(short=True, whole=True) == list(SHORT)


def test_the_whole_corpus_is_called_so() -> None:
    every = [judged(e.name, replace(TRIAL, entry=e.name, limited=None, score=0.0)) for e in CORPUS.values()]
    said = {f.what for f in detection.figures(every)}
    assert {f"attacks missed, of {len(ATTACKS)}", f"honest entries accused, of {len(LEGITIMATE)}"} <= said


def test_what_was_watched_before_is_not_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder with the whole corpus the sample takes its own entries, and asks for no bed."""
    known = [judged(e.name, replace(TRIAL, entry=e.name)) for e in CORPUS.values()]
    lines = [json.dumps(asdict(s)) for s in known]
    (tmp_path / "detection.jsonl").write_text("".join(f"{line}\n" for line in lines))
    asked: list[str] = []

    def watch(_: Bench, todo: Sequence[Entry], __: Path) -> list[detection.Seen]:
        asked.extend(e.name for e in todo)
        return []

    monkeypatch.setattr(detection, "watch", watch)
    found = list(detection.beside(Bench(tmp_path, False, 1, print)))
    assert (
        any(f.what == f"attacks missed, of a sample of 17 of {len(ATTACKS)}" for f in found) and asked == []
    )
    (tmp_path / "detection.jsonl").write_text("".join(f"{line}\n" for line in lines[:-1]))
    list(detection.beside(Bench(tmp_path, False, 1, print, whole=True)))
    assert asked == [known[-1].entry]


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
