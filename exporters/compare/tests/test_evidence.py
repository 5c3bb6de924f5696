"""Evidence that grows: what begins it anew, what outlives the program, windows of seconds in the first minutes."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vigia_compare import evidence
from vigia_compare.evaluation import Ledger
from vigia_compare.evidence import Book, Terms
from vigia_compare.findings import COSTS, EQUIVALENT, OPEN, SAVES
from vigia_compare.levels import Levels
from vigia_compare.readings import Readings
from vigia_compare.state import Saver, StateFile
from vigia_statistics.sequential import Scale

from .made import END, HOSTS, KNOWN, TERMS, found_in, known, readings

RNG = np.random.default_rng(61)
HOUR = {"gre": 20e-6 * RNG.lognormal(0.0, 0.05, 60), "vxlan": 30e-6 * RNG.lognormal(0.0, 0.05, 60)}


def part(first: int, last: int, paths: dict[str, np.ndarray] | None = None) -> Readings:
    """Windows of the hour, by number."""
    shown = {p: v[first:last] for p, v in (paths or HOUR).items()}
    return readings("rtt", shown, end=END - 60.0 * (60 - last))


def test_windows_count_once_however_often_they_are_read() -> None:
    book = Book(TERMS)
    (whole,) = found_in(part(0, 60), book=Book(TERMS))
    for last in (20, 21, 22, 40, 60):
        found_in(part(max(0, last - 30), last), book=book)
    (grown,) = found_in(part(0, 60), book=book)
    assert grown == whole and whole.windows == 60 and whole.verdict == "gre"
    assert whole.began == END - 3600.0 and whole.began < whole.since < END


def test_a_verdict_latches_with_the_time_since_which_it_holds() -> None:
    book = Book(TERMS)
    (first,) = found_in(part(0, 40), book=book)
    (later,) = found_in(part(10, 60), book=book)
    assert first.verdict == later.verdict == "gre" and first.since == later.since
    assert later.e_value > first.e_value >= first.needed


def test_a_configuration_change_begins_anew() -> None:
    """At the moment of the change: windows before it are of another path."""
    book = Book(TERMS)
    (before,) = found_in(part(0, 50), book=book)
    change = END - 60.0 * 8
    changed = known({"gre": replace(KNOWN["gre"], dataplane="ovs-dpdk")}, {("n1", "gre"): change})
    (after,) = found_in(part(0, 60), book=book, of=changed)
    assert before.verdict == "gre" and after.began == change and after.windows == 8
    assert after.since == 0.0 or after.since > change
    # One that has not kept anything says the same: it reads no further back than the change.
    (without,) = found_in(part(0, 60), of=changed)
    assert without == after


def test_a_reset_begins_anew_with_one_path_or_with_all() -> None:
    hour = {**HOUR, "bridge": HOUR["gre"] * 1.3}
    book = Book(TERMS)
    assert len(found_in(part(0, 60, hour), book=book)) == 3
    assert book.reset("nobody") == 0
    assert book.reset("bridge") == 2
    assert {(f.a, f.b) for f in book.findings(END, {}, 0.0)} == {("gre", "vxlan")}
    assert book.reset() == 1 and book.findings(END, {}, 0.0) == []
    (gre,) = [f for f in found_in(part(0, 60, hour), book=book) if (f.a, f.b) == ("gre", "vxlan")]
    assert gre.verdict == "gre", "what is recorded is read again, as at a start"


def test_what_is_not_measured_any_more_is_shown_no_more_and_then_forgotten() -> None:
    book = Book(TERMS)
    found_in(part(0, 60), book=book)
    assert len(book.findings(END + 60.0, {}, END - 60.0)) == 1
    assert book.findings(END + 7200.0, {}, END + 60.0) == []
    assert json.loads(json.dumps(book.as_data()))["watched"], "it may come back"
    book.findings(END + 8 * 86400.0, {}, END)
    assert not book.as_data()["watched"]


# The first minutes


def fine(count: int, end: float = END, factor: float = 10.0) -> Readings:
    base = 20e-6 * RNG.lognormal(0.0, 0.1, count)
    return readings("rtt", {"gre": base, "vxlan": factor * base}, end=end, window=15.0)


def test_a_factor_of_ten_is_said_within_a_minute_from_windows_of_seconds() -> None:
    book = Book(TERMS)
    (found,) = found_in(fine(4), book=book, fine=True)
    assert found.verdict == "gre" and found.since - found.began <= 60.0


@pytest.mark.parametrize("underlay", [1.2e-6, 44e-6])
def test_an_obvious_cost_is_said_within_a_minute_too(underlay: float) -> None:
    """Its interval takes longer: how far differences of seconds stray is not known yet."""
    book = Book(TERMS)
    direct = underlay * RNG.lognormal(0.0, 0.1, 4)
    made = readings("rtt", {"direct": direct, "gre": direct + 420e-6}, end=END, window=15.0)
    (found,) = found_in(made, book=book, fine=True)
    assert (found.a, found.b, found.verdict, found.scale) == ("gre", "direct", COSTS, Scale.DIFFERENCE)
    assert found.since - found.began <= 60.0 and found.e_value >= found.needed
    assert found.shift[1] == pytest.approx(420e-6, rel=0.1) and found.ratio is None
    assert found.shift[0] >= 0.0, "costs, and an interval from less than nothing, is no answer"
    assert book.reset() == 1, "its two halves are one pair"


def test_what_saves_by_the_ratio_has_no_interval_above_nothing() -> None:
    base = 40e-6 * RNG.lognormal(0.0, 0.1, 4)
    made = readings("rtt", {"direct": base, "gre": base / 20.0}, end=END, window=15.0)
    (found,) = found_in(made, book=Book(TERMS), fine=True)
    assert found.verdict == SAVES and found.shift[0] < found.shift[1] < 0.0 >= found.shift[2]


def test_a_cost_of_nothing_is_none_by_either() -> None:
    base = 44e-6 * RNG.lognormal(0.0, 0.02, 60)
    alike = {p: base * RNG.lognormal(0.0, 0.002, 60) for p in ("direct", "gre")}
    (found,) = found_in(readings("rtt", alike))
    assert found.verdict in (OPEN, EQUIVALENT) and found.scale is Scale.DIFFERENCE


def test_identical_costs_are_rarely_told_apart() -> None:
    """400 of them, watched for two hours; the ratio and the difference share what is allowed: 5 %."""
    rng = np.random.default_rng(67)
    wrong = 0
    for _ in range(400):
        base = 44e-6 * rng.lognormal(0.0, 0.3, 120)
        alike = {p: base * rng.lognormal(0.0, 0.1, 120) for p in ("direct", "gre")}
        (found,) = found_in(readings("rtt", alike))
        wrong += found.better != ""
    assert wrong <= 20


def test_the_difference_has_the_last_word_on_a_cost() -> None:
    book = Book(TERMS)
    minutes = {"direct": 44e-6 * RNG.lognormal(0.0, 0.05, 60)}
    minutes["gre"] = minutes["direct"] + 20e-6
    (found,) = found_in(readings("rtt", minutes), book=book)
    assert found.verdict == COSTS and 15e-6 < found.shift[0] < 20e-6 < found.shift[2] < 25e-6
    back = Book.from_data(json.loads(json.dumps(book.as_data())), TERMS)
    assert back.findings(END, {}, 0.0) == book.findings(END, {}, 0.0), "hidden halves are kept as well"


def test_new_paths_wait_for_windows_of_seconds_and_go_on_with_minutes() -> None:
    book = Book(TERMS)
    assert found_in(part(0, 2), book=book) == [], "two windows are recorded: they are new"
    (young,) = found_in(fine(4, factor=1.5), book=book, fine=True)
    assert young.began == END - 60.0
    minutes = readings("rtt", {p: v[:10] for p, v in HOUR.items()}, end=END + 60.0 * 4)
    (still,) = found_in(minutes, book=book)
    assert still.windows == young.windows, "minutes wait until the fine ones end"
    (more,) = found_in(fine(236, end=END + evidence.FINE - 60.0, factor=1.5), book=book, fine=True)
    later = readings("rtt", HOUR, end=END + 60.0 * 70)
    (on,) = found_in(later, book=book)
    assert on.windows > more.windows and on.began == young.began


def test_old_paths_take_no_windows_of_seconds() -> None:
    book = Book(TERMS)
    (before,) = found_in(part(0, 60), book=book)
    (after,) = found_in(fine(8, end=END + 120.0), book=book, fine=True)
    assert after.windows == before.windows and after.e_value == before.e_value


def test_a_path_is_news_for_some_minutes() -> None:
    book, there = Book(TERMS), replace(known(), by_node={("n1", "gre"): KNOWN["gre"]})
    assert book.news(there, 1000.0) and book.news(there, 1000.0 + evidence.NEWS - 1.0)
    assert not book.news(there, 1000.0 + evidence.NEWS)
    changed = replace(there, by_node={("n1", "gre"): KNOWN["netdev"]})
    assert book.news(changed, 1000.0 + evidence.NEWS), "configured anew it is new"
    assert not book.news(known(), 2000.0), "nothing is there"


def test_windows_of_seconds_are_read_while_a_pair_takes_them_and_no_longer() -> None:
    book, there = Book(TERMS), replace(known(), by_node={("n1", "gre"): KNOWN["gre"]})
    assert book.finest(END) == 0.0
    assert book.news(there, END - 60.0) and book.finest(END) == evidence.NEWS
    found_in(fine(4), book=book, fine=True)
    book.fine_seen = END
    assert not book.news(there, END + 600.0) and book.finest(END + 600.0) == 600.0, (
        "the pair is an hour young"
    )
    book.fine_seen = END + evidence.FINE
    assert book.finest(END + evidence.FINE + 60.0) == 0.0


def test_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(evidence, "MAX_SIDES", 3)
    hour = {f"path-{i}": HOUR["gre"] * (1.0 + i / 10) for i in range(5)}
    more = {p: KNOWN["gre"] for p in hour}
    book = Book(TERMS)
    for _ in range(2):
        assert len(found_in(part(0, 60, hour), book=book, of=known(more))) == 3
    assert caplog.text.count("cannot judge every pair of paths") == 1


# What is kept


def ledger() -> Ledger:
    made = Ledger(TERMS)
    losses = readings("loss", {"gre": np.zeros(60), "vxlan": np.full(60, 0.02)})
    runs = readings("tcp_throughput", {"gre": np.arange(60.0) + 1e8, "vxlan": np.arange(60.0) + 2e8})
    given = [part(0, 60, {**HOUR, "direct": HOUR["gre"] / 2}), losses, runs]
    made.book.take(given, known(), fine=False)
    made.book.news(replace(known(), by_node={("n1", "gre"): KNOWN["gre"]}), END)
    made.levels.take(given, known())
    return made


def test_what_was_kept_goes_on_where_it_stopped() -> None:
    made = ledger()
    kept = json.loads(json.dumps(made.as_data(), allow_nan=False))
    back = Ledger.from_data(kept, TERMS)
    assert back.as_data() == made.as_data()
    assert repr(back.book.findings(END, {}, 0.0)) == repr(made.book.findings(END, {}, 0.0)) != "[]"
    more = readings("rtt", {p: v[:5] for p, v in HOUR.items()}, end=END + 300.0)
    for one in (made, back):
        one.book.take([more], known(), fine=False)
    assert back.as_data() == made.as_data()


def damaged(change: Callable[[Any], object]) -> Any:
    data = copy.deepcopy(ledger().as_data())
    change(data)
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"evidence": {}},
        {"evidence": {}, "levels": {}},
        damaged(lambda d: d["evidence"].update(version=99)),
        damaged(lambda d: d["evidence"].pop("families")),
        damaged(lambda d: d["evidence"]["families"].pop("cost")),
        damaged(lambda d: d["evidence"]["watched"].popitem()),
        damaged(lambda d: d["evidence"]["watched"].update({"[]": {}})),
        damaged(lambda d: next(iter(d["evidence"]["watched"].values())).update(seen="soon")),
        damaged(lambda d: next(iter(d["evidence"]["watched"].values())).update(more=1)),
        damaged(lambda d: d["evidence"].update(paths=[1])),
        damaged(lambda d: d["evidence"].update(fine_seen=None)),
        damaged(lambda d: d.update(levels=[])),
        damaged(lambda d: d["levels"].update({"[]": {}})),
        damaged(lambda d: next(iter(d["levels"].values())).pop("detector")),
    ],
)
def test_what_is_damaged_is_refused_as_a_whole(data: Any) -> None:
    with pytest.raises(ValueError):
        Ledger.from_data(data, TERMS)


@pytest.mark.parametrize(
    "other",
    [
        replace(TERMS, alpha=0.01),
        replace(TERMS, tenant="red"),
        replace(TERMS, margins=TERMS.margins | {"rtt": 0.5}),
    ],
)
def test_other_terms_begin_anew(other: Terms) -> None:
    with pytest.raises(ValueError, match="another tenant, window, confidence or margin"):
        Ledger.from_data(ledger().as_data(), other)


# The file


def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    file = StateFile(path)
    assert file.load() is None and file.problem == "", "the first start loses nothing"
    file.save(b'{"a":1}')
    file.save(b'{"a":2}')
    again = StateFile(path)
    assert (again.load(), again.problem) == ({"a": 2}, "")
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": NaN}', b"\xff", b'{"a": 1, "a": 2}'])
def test_a_file_that_is_none_is_said_and_ends_nothing(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    file = StateFile(path)
    assert file.load() is None and "of no use" in file.problem
    assert "cannot use the state file: evidence begins anew" in caplog.text
    file.save(b"[]")
    assert path.read_text() == "[]", "it is written anew"


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = StateFile(tmp_path / "absent/state.json")
    for _ in range(3):
        file.save(b"[]")
    assert caplog.text.count("cannot write the state file") == 1
    (tmp_path / "absent").mkdir()
    file.save(b"[]")
    assert (tmp_path / "absent/state.json").read_text() == "[]"
    assert StateFile(None).load() is None


class Stalling(StateFile):
    """A file on a disk that answers when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.goes_on = threading.Semaphore(0), threading.Event()

    def save(self, content: bytes) -> bool:
        self.begun.release()
        self.goes_on.wait(60.0)
        return super().save(content)


def test_a_disk_that_stalls_holds_up_nobody_and_gets_the_newest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.json"
    file = Stalling(path)
    saver = Saver(file)
    assert saver.settled(0.0) and saver.behind() == 0.0, "there is nothing to be written"
    data = [0]
    for i in range(4):
        data[0] = i  # what it becomes later is not what was saved
        saver.save(data)
        if i == 0:
            assert file.begun.acquire(timeout=60.0)
    data[0] = 9
    assert caplog.text.count("the state file is out of date") == 1
    assert not saver.settled(0.05) and not path.exists()
    assert saver.behind() >= 0.05
    file.goes_on.set()
    assert saver.settled(60.0) and path.read_text() == "[3]"
    assert saver.behind() == 0.0
    assert file.begun.acquire(timeout=60.0)
    assert not file.begun.acquire(blocking=False), "what is out of date was not written"


def test_a_write_that_fails_does_not_end_the_saving(tmp_path: Path) -> None:
    saver = Saver(StateFile(tmp_path / "absent/state.json"))
    saver.save([])
    assert not saver.settled(60.0), "the file does not hold it"
    first = saver.behind()
    assert first > 0.0
    saver.save([0])
    assert not saver.settled(60.0)
    assert saver.behind() > first, "it is behind since the first that was not written"
    (tmp_path / "absent").mkdir()
    saver.save([1])
    assert saver.settled(60.0) and (tmp_path / "absent/state.json").read_text() == "[1]"
    assert saver.behind() == 0.0


def test_nothing_is_written_where_nothing_is_kept() -> None:
    saver = Saver(StateFile(None))
    saver.save({"a": float("nan")})
    assert saver.settled(0.0) and saver.behind() == 0.0


# Levels


def test_a_level_that_changed_is_found_and_a_reconfigured_path_learns_anew() -> None:
    rng = np.random.default_rng(62)
    levels = Levels(TERMS.margins)
    days = {"gre": 20e-6 * rng.lognormal(0.0, 0.1, 3 * 1440)}
    days["gre"][2 * 1440 :] *= 1.5
    levels.take([readings("rtt", days)], known())
    (change,) = levels.changed(END)
    assert (change.path, change.hosts, change.change.worse) == ("gre", HOSTS, True)
    assert change.change.estimate == pytest.approx(1.5, rel=0.15)
    assert END - 1440 * 60.0 - 3600.0 < change.change.since < END - 1440 * 60.0 + 7200.0
    kept = Levels.from_data(json.loads(json.dumps(levels.as_data())), TERMS.margins)
    assert kept.changed(END) == [change]
    levels.take([readings("rtt", {"gre": days["gre"][-2:]}, end=END + 60.0)], known({"gre": KNOWN["netdev"]}))
    assert levels.changed(END) == []
    kept.reset("vxlan")
    assert kept.changed(END) == [change]
    kept.reset("gre")
    assert kept.changed(END) == []
    assert levels.changed(END + 3 * 86400.0) == [] and levels.as_data() == {}, "nobody measures it any more"


def test_an_open_pair_says_how_far_it_is() -> None:
    same = {"gre": HOUR["gre"][:6], "vxlan": 1.1 * HOUR["gre"][:6] * RNG.lognormal(0.0, 0.1, 6)}
    (found,) = found_in(readings("rtt", same))
    assert found.verdict == OPEN and " of 20 needed" in found.said and 0.0 <= found.progress < 1.0


def test_notes_of_a_pair_are_kept_and_checked() -> None:
    made = Ledger(TERMS)
    paths = {"netdev": 20e-6 * np.ones(5), "bridge": 10e-6 * np.ones(5)}
    made.book.take([readings("rtt", paths)], known(), fine=False)
    kept = json.loads(json.dumps(made.as_data()))
    (watched,) = kept["evidence"]["watched"].values()
    assert watched.pop("notes") == ["kernel against user space"]
    assert Ledger.from_data(kept, TERMS).book.as_data()["watched"], "a file of before notes were kept goes on"
    for wrong in ("kernel against user space", ["<b>"], [1], None):
        watched["notes"] = wrong
        with pytest.raises(ValueError, match="it is damaged"):
            Ledger.from_data(kept, TERMS)
