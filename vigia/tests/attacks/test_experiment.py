"""What is required of a run, how runs become a table, and the options of the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from labkit import ROOT

from vigia.attacks import __main__ as command
from vigia.attacks import experiment, table
from vigia.attacks.corpus import ATTACKS, CORPUS, LEGITIMATE, SHARES, SHORT
from vigia.attacks.experiment import AttackTrial
from vigia.errors import VigiaError
from vigia.isolation.overlay import OverlaySwitch, OverlayTestbed

PAGE = "docs/concepts/isolation.md"
GOOD = AttackTrial("one-port", "linuxbridge", 1.2, 1.0, 8.0, 0.08, 0.0, 1.0, 0.0, 100.0, 9.0, 1.5)
HONEST = replace(GOOD, entry="dns", offered=0.5, limited=None, score=60.0, policed=0.0)


def attack(**changed: Any) -> list[str]:
    return experiment.faults(CORPUS["one-port"], replace(GOOD, **changed), honest=False)


def honest(name: str = "dns", **changed: Any) -> list[str]:
    return experiment.faults(CORPUS[name], replace(HONEST, **changed), honest=True)


class ScoresOfABed(OverlayTestbed):
    """A bed of which nothing is asked but the scores of its ports, one look after the other."""

    def __init__(self, *scores: float | None) -> None:
        self._looks, self.looks = list(scores), 0

    def state(self, host: int) -> Any:
        self.looks += 1
        mine = self._looks.pop(0) if self._looks else None
        signals = None if mine is None else {"flood_score": mine}
        return {
            "ports": [{"tenant": "b", "signals": signals}, {"tenant": "a", "signals": {"flood_score": 99.0}}]
        }


@pytest.mark.parametrize(
    ("scores", "looks"), [((), 1), ((0.0,), 1), ((100.0, 40.0, 0.0), 3), ((3.0, None), 2)]
)
def test_an_entry_waits_until_the_flood_before_is_forgotten(
    scores: tuple[float | None, ...], looks: int
) -> None:
    bed = ScoresOfABed(*scores)
    experiment.calm(bed, (3,), ("b",))
    assert bed.looks == looks


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_FADES", 1.0)
    bed = ScoresOfABed(*[100.0] * 1000)
    experiment.calm(bed, (3,), ("b",))
    assert 1 < bed.looks < 1000


def test_what_is_required_of_an_attack() -> None:
    assert attack() == []
    assert attack(limited=None) == [], "what harms nobody needs no limit"
    assert "0.94 of its guarantee" in attack(victim=0.94)[0]
    assert "0.80 in the worst second" in attack(worst=0.8)[0]
    assert "probes" in attack(probes_lost=0.01)[0]
    assert "too busy" in attack(offered=0.9)[0], "who sends within its contract attacks nobody"


def test_what_is_required_beside_honest_traffic() -> None:
    assert honest() == []
    assert "limited within" in honest(limited=0.5)[0]
    assert "policed" in honest(policed=1.0)[0]
    assert "lost" in honest(lost=0.02)[0]
    assert "score 70" in honest(score=70.0)[0]
    assert "victim" in honest(worst=0.5)[0]
    assert honest("backup", limited=0.5, lost=0.02) == [], (
        "TCP that borrows is told to leave others their room"
    )
    assert honest("backup", policed=9.0) == [], "where nothing can shape what it borrows is policed"
    assert "0.90 of what it bought" in honest("backup", kept=0.9)[0]


def test_losses_count_from_a_moment_on() -> None:
    assert experiment.lost([100] * 20, [0] * 10 + [100] * 10, 1.0) == 0.0
    assert experiment.lost([100] * 20, [50] * 20, 1.0) == 0.5
    assert experiment.lost([], [], 1.0) == 0.0


def test_the_first_limit_on_the_attackers_port() -> None:
    line = (
        'time=2026-01-01T00:00:{}Z level=DEBUG msg="source limited" port={}-3 destination=10.61.0.1 floor=1'
    )
    log = "\n".join(
        line.format(*each) for each in (("01.0", "b"), ("02.0", "a"), ("02.5", "b"), ("03.0", "b"))
    )
    begun = 1767225601.5
    assert experiment.time_to_limit([log], ["b"], begun) == pytest.approx(1.0)
    assert experiment.time_to_limit([log], ["c"], begun) is None
    assert experiment.time_to_limit([log], ["b"], begun + 10) is None


def test_the_corpus_has_what_is_asked_for() -> None:
    assert len(CORPUS) == len(ATTACKS) + len(LEGITIMATE), "a name is one entry's"
    assert set(SHORT) < set(CORPUS)
    assert 2 * SHARES["b"] + SHARES["a"] <= 1, "two attackers' contracts and the victim's fit into a link"
    for entry in ATTACKS:
        assert entry.streams, f"{entry.name} sends nothing"
        assert set(entry.gaps) <= {s.value for s in OverlaySwitch}
        for s in entry.streams:
            assert (s.on == 0) == (s.period == 0)
            assert s.source != s.sink
            assert s.tenant in SHARES
    for entry in LEGITIMATE:
        each: dict[tuple[str, int], float] = {}
        for s in entry.streams:
            each[s.tenant, s.source] = each.get((s.tenant, s.source), 0) + s.rate
        assert all(rate < SHARES[t] for (t, _), rate in each.items()), f"{entry.name} is within its contract"


def test_runs_become_rows() -> None:
    runs = [
        GOOD,
        replace(GOOD, victim=1.0, worst=0.9, limited=0.2),
        replace(GOOD, victim=1.4, limited=None),
        HONEST,
        replace(GOOD, switch="openvswitch"),
    ]
    rows = table.summarise(runs)
    assert [(r.entry, r.switch, r.n) for r in rows] == [
        ("one-port", "linuxbridge", 3),
        ("dns", "linuxbridge", 1),
        ("one-port", "openvswitch", 1),
    ]
    first = rows[0]
    assert first.victim == pytest.approx(1.2)
    assert (first.worst, first.unlimited) == (0.9, 1)
    assert first.half == pytest.approx(0.497, abs=0.001)
    assert first.limited == pytest.approx(0.14)
    assert first.latest == 0.2
    assert len(first.faults) == 1
    assert first.missed == 1
    assert math.isnan(rows[1].half)
    shown = "\n".join(table.text(rows))
    assert "NOT MET" in shown
    assert "1.20 ±0.50" in shown


def test_a_known_gap_is_named_and_fails_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = tmp_path / "runs.json"
    document.write_text(json.dumps({"trials": [replace(GOOD, worst=0.5).__dict__]}))
    assert command.main(["--runs", "0", "--add", str(document)]) == 1
    monkeypatch.setitem(CORPUS, "one-port", replace(CORPUS["one-port"], gaps={"linuxbridge": "because"}))
    assert command.main(["--runs", "0", "--add", str(document)]) == 0


def test_the_table_goes_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.MARKS[0]}\nold\n{table.MARKS[1]}\nafter\n")
    table.write(page, table.summarise([GOOD, replace(GOOD, limited=0.2), HONEST]))
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "| UDP to one port | 8.0 | 2 | 1.20 ± 0.00 | 1.00 | 140, at most 200 | 0.0% | met |" in written
    assert (
        "| a name server with 1 000 clients, five packets to a query | 1 | 1.20 | 1.00 | 0 of 1 |" in written
    )
    page.write_text("no marks")
    with pytest.raises(VigiaError, match="no place"):
        table.write(page, table.summarise([GOOD]))


def test_the_page_has_a_row_for_every_entry_on_every_switch() -> None:
    page = (ROOT / PAGE).read_text()
    for entry in CORPUS.values():
        rows = [line for line in page.splitlines() if line.startswith(f"| {entry.what} |")]
        assert len(rows) == len(OverlaySwitch), (
            f"{entry.name}: run make test-attacks ATTACKS='--write {PAGE}'"
        )


def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Before anything is run, which takes an hour."""
    empty, rubbish = tmp_path / "empty.md", tmp_path / "runs.json"
    empty.write_text("no marks")
    rubbish.write_text('{"trials": [{"victim": 1}]}')
    for arguments, said in (
        (["--write", str(tmp_path / "none.md")], "argument --write: read "),
        (["--write", str(empty)], "has no place for the table"),
        (["--add", str(tmp_path / "none.json")], "argument --add: "),
        (["--add", str(empty)], "is no document of make test-attacks"),
        (["--add", str(rubbish)], "is no document of make test-attacks"),
        (["--runs", "-1"], "out of range"),
        (["--runs", "0"], "out of range"),
        (["--switches", "hub"], '"hub" is no switch; write linuxbridge,openvswitch'),
        (["--only", "one-port,none"], '"none" is not in the corpus; write one of one-port'),
    ):
        with pytest.raises(SystemExit):
            command.main(arguments)
        assert said in capsys.readouterr().err
