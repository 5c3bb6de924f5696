"""The page of promises says what the tests do, and the means of the tests tell right from wrong."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from faults import invariants
from faults.catalogue import BEGIN, END, PAGE, all_faults, page_with, table
from faults.load import Alert, Load
from faults.registry import Expected
from faults.site import parsed


def test_the_page_has_the_promises_of_the_tests() -> None:
    page = PAGE.read_text()
    assert BEGIN in page and END in page
    assert page == page_with(page), "run: PYTHONPATH=tests .venv/bin/python -m faults"


def test_every_fault_says_what_holds() -> None:
    faults = all_faults()
    assert len(faults) > 45
    for fault in faults:
        assert fault.what and fault.promise.endswith("."), fault.name
        assert "|" not in fault.what + fault.promise, "it is a cell of a table"
    assert 4 <= sum(f.short for f in faults) <= 8
    assert table().count("\n") == len(faults) + 2


def test_a_page_of_metrics_is_read() -> None:
    page = parsed('# HELP a b\na{x="1",y="a b"} 2\nb 3e2\nnot a line\n')
    assert page == {("a", frozenset({("x", "1"), ("y", "a b")})): 2.0, ("b", frozenset()): 300.0}


def test_counters_of_a_program_that_was_started_again_are_counted_from_nothing() -> None:
    def lost(value: float, cause: str) -> invariants.Page:
        return {("lost", frozenset({("cause", cause)})): value}

    assert invariants.grown(lost(7, "forward"), lost(3, "forward"), "lost", {"forward"}) == 4
    assert invariants.grown(lost(2, "forward"), lost(3, "forward"), "lost", {"forward"}) == 2
    assert invariants.grown(lost(9, "send_error"), {}, "lost", {"forward"}) == 0


@pytest.mark.parametrize(
    ("alert", "accuses"),
    [
        ("VigiaPathLoss", True),
        ("VigiaUdpFlood", True),
        ("VigiaLossBudgetBurn", True),
        ("VigiaProbeDown", False),
        ("VigiaConfigRejected", False),
    ],
)
def test_which_alerts_accuse(alert: str, accuses: bool) -> None:
    assert bool(invariants.ACCUSES.fullmatch(alert)) is accuses


def test_nothing_is_expected_unless_it_is_said() -> None:
    assert not Expected().may_restart("vigia-probe@node1") and not Expected().may_tell("VigiaPathLoss")
    assert Expected(restarts="vigia-probe@node1").may_restart("vigia-probe@node1")
    assert not Expected(restarts="vigia-probe").may_restart("vigia-probe@node1")


def test_what_was_told_before_is_no_news() -> None:
    load = Load()
    old, new, over = (Alert(name, frozenset()) for name in ("Old", "New", "Over"))
    load.told = {old: 1.0, new: 5.0}
    load.ended = [(over, 6.0, 7.0), (over, 1.0, 2.0)]
    assert load.told_since(4.0) == {new, over}


def test_a_database_that_is_restored_is_an_old_copy(tmp_path: Path) -> None:
    """What the fault does is what a backup does: a whole database, of then."""
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("CREATE TABLE t (x)")
    with sqlite3.connect(tmp_path / "b.db") as copy:
        db.backup(copy)
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()
    assert copy.execute("SELECT count(*) FROM t").fetchone() == (0,)
    db.close()
    copy.close()


def test_a_budget_that_a_fault_has_spent_may_be_told_later_and_nothing_else() -> None:
    load, quiet = Load(), Expected()
    for name in ("VigiaLossBudgetBurn", "VigiaPathLoss", "VigiaHostBusy"):
        load.told[Alert(name, frozenset())] = 5.0
    assert invariants.wrongly_told(load, 4.0, quiet) == ["VigiaLossBudgetBurn()", "VigiaPathLoss()"]
    assert invariants.wrongly_told(load, 6.0, quiet) == []
    assert invariants.wrongly_told(load, 4.0, Expected(loses=True)) == ["VigiaPathLoss()"]
    assert invariants.wrongly_told(load, 4.0, quiet) == ["VigiaPathLoss()"], "the budget stays spent"
    assert invariants.wrongly_told(load, 4.0, Expected(tells="VigiaPathLoss")) == []


def test_a_loss_of_an_earlier_fault_may_be_told_later_and_none_of_this_one() -> None:
    path = frozenset({("src", "node1"), ("dst", "node2"), ("path", "direct"), ("probe", "stamp-64")})
    alert, quiet = Alert("VigiaPathLoss", path | {("severity", "warning")}), Expected()

    def page(lost: float, other: float) -> invariants.Page:
        elsewhere = path - {("dst", "node2")} | {("dst", "node3")}
        return {
            ("vigia_probe_lost_total", path | {("cause", "forward")}): lost,
            ("vigia_probe_lost_total", path | {("cause", "send_error")}): 99.0,
            ("vigia_probe_lost_total", elsewhere | {("cause", "forward")}): other,
        }

    assert invariants.lost_on(alert, page(60.0, 7.0), page(57.0, 0.0)) == 3.0
    unknown = Alert("VigiaPathLoss", path - {("path", "direct")} | {("path", "elsewhere")})
    assert invariants.lost_on(unknown, page(60.0, 7.0), page(57.0, 0.0)) == math.inf
    for lost, earlier, right in ((0.0, True, True), (3.0, True, False), (0.0, False, False)):
        load = Load(told={alert: 5.0}, lost=earlier)
        assert (invariants.wrongly_told(load, 4.0, quiet, lambda _, n=lost: n) == []) is right


def test_only_a_flood_that_was_is_a_reason_to_blame_somebody() -> None:
    def said(
        offender: str | None, known: dict[str, float] | None, verdict: str = "attributed"
    ) -> dict[str, object]:
        return {"verdict": verdict, "offender": offender, "known": known}

    during, later = {"begin": 110.0, "end": 115.0}, {"begin": 200.0, "end": 205.0}
    floods = [(100.0, 120.0)]
    for right in (said("red", during), said("red", None), said(None, None, "insufficient evidence")):
        assert invariants.wrongly_blamed([right], floods) == []
    for wrong in (said("red", later), said("green", during), said("green", None)):
        assert invariants.wrongly_blamed([wrong], floods) == [wrong]
    assert len(invariants.wrongly_blamed([said("red", during), said("red", None)], [])) == 2
