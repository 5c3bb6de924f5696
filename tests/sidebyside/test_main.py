"""make bench in its short form: states and shapes of what it finds, never how fast anything is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sidebyside import __main__ as main
from sidebyside import page
from sidebyside.figures import Figure, Growth
from sidebyside.part import ROOT, Bench, Part, PartError, go_metrics
from vigia_testing import eventually

FIGURE = Figure("probes", "price | of a probe", "µs", [1.0, 2.0, 3.0], "fping", [2.0, 4.0, 6.0])
GROWN = Growth("growth", "scrape", "ms", "ports", {10: [1.0], 100: [5.0], 1000: [20.0]})
MISSING = Figure("probes", "price", "µs", [1.0], "fping", [], note="missing: apt-get install fping")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Parts that are over at once, and how often each was measured."""
    counts = {"good": 0, "bad": 0, "grown": 0}

    def body(name: str, *results: Figure | Growth) -> Part:
        def measure(bench: Bench) -> Iterator[Figure | Growth]:
            counts[name] += 1
            if not results:
                raise PartError("the bed fell over")
            yield from results

        return Part(name, "for tests", 1.0, measure)

    monkeypatch.setattr(
        main,
        "PARTS",
        {"bad": body("bad"), "good": body("good", FIGURE, MISSING), "grown": body("grown", GROWN)},
    )
    return counts


def test_a_part_that_fails_ends_with_1_and_the_others_are_measured(
    parts: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench.json"
    assert main.main([f"--json={out}"]) == 1
    assert parts == {"good": 1, "bad": 1, "grown": 1}
    document = json.loads(out.read_text())
    assert document["failed"] == {"bad": "PartError: the bed fell over"}
    assert [f["peer"] for f in document["figures"]] == ["fping", "fping"] and len(document["growth"]) == 1
    said = capsys.readouterr()
    assert "cannot measure bad: PartError: the bed fell over" in said.out
    assert "missing: apt-get install fping" in said.out and "min left" in said.err


def test_what_is_kept_is_not_measured_again(parts: dict[str, int], tmp_path: Path) -> None:
    words = ["--only=good,grown", f"--keep={tmp_path}", f"--markdown={tmp_path / 'a.md'}"]
    assert main.main(words) == 0
    first = (tmp_path / "a.md").read_text()
    assert main.main(words) == 0
    assert parts == {"good": 1, "bad": 0, "grown": 1}
    assert [line for line in first.splitlines() if "|" in line] == [
        line for line in (tmp_path / "a.md").read_text().splitlines() if "|" in line
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only=probe"], '"probe" is no part; write one of probes, exporter'),
        (["--repetitions=0"], "0 is out of range; write 1 to 100"),
    ],
)
def test_wrong_options_are_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        main.main(words)
    assert e.value.code == 2 and said in capsys.readouterr().err


def test_tables_are_whole() -> None:
    where = page.environment([1.0, 2.5])
    text = page.markdown([FIGURE, MISSING, GROWN], where, {"isolation": "no bed"})
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 2 + 2 + 1
    assert [r.count("|") for r in rows] == [len(page.HEAD) + 1] * 4 + [len(page.GROWTH_HEAD) + 1] * 3
    assert "2 (1 to 3)" in rows[2] and "0.50" in rows[2] and "missing: apt-get install fping" in rows[3]
    busy = replace(where, loads=[1.0, where.processors + 0.5])
    assert "a quiet run is outstanding" in page.markdown([FIGURE], busy, {})
    assert "outstanding" not in page.markdown([FIGURE], replace(where, loads=[0.5]), {})
    assert "load 1.0 to 2.5" in text and where.kernel in text
    assert "Isolation could not be measured: no bed" in text
    shown = page.terminal([FIGURE, MISSING, GROWN], where)
    assert "fping" in shown and "scrape, ms" in shown


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{page.MARKS[0]}\nold\n{page.MARKS[1]}\nafter\n")
    page.write(file, {"Probes": "new"})
    assert file.read_text() == (
        f"before\n{page.MARKS[0]}\n\n{page.RATIOS}\n\n### Probes\n\nnew\n\n{page.MARKS[1]}\nafter\n"
    )
    file.write_text("nothing")
    with pytest.raises(ValueError, match="no place for the tables"):
        page.write(file, {"Probes": "new"})
    assert all(mark in page.PAGE.read_text() for mark in page.MARKS)


def test_parts_that_were_not_measured_stay_on_the_page(tmp_path: Path) -> None:
    """Each part says where it was measured, in the order of the parts; written twice nothing changes."""
    file = tmp_path / "page.md"
    file.write_text(f"{page.MARKS[0]}\n{page.MARKS[1]}\n")
    where = page.environment([1.0])
    page.write(file, page.sections([GROWN, FIGURE], replace(where, revision="first"), {}))
    first = file.read_text()
    assert re.findall(r"^### (.*)$", first, re.MULTILINE) == ["Probes", "Growth"]
    later = page.sections([replace(FIGURE, part="detection")], replace(where, revision="second"), {})
    page.write(file, later)
    text = file.read_text()
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["Probes", "Detection of floods", "Growth"]
    assert re.findall(r"revision (\w+)", text) == ["first", "second", "first"]
    assert text.count(page.RATIOS) == 1
    page.write(file, later)
    assert file.read_text() == text
    page.write(file, page.sections([], where, {"growth": "no bed"}))
    assert "Growth could not be measured: no bed" in file.read_text().partition("### Growth")[2]


def test_the_page_as_it_is_has_every_part_with_its_machine() -> None:
    middle = page.PAGE.read_text().partition(page.MARKS[0])[2].partition(page.MARKS[1])[0]
    parts = re.split(r"^### (.+)$", middle, flags=re.MULTILINE)
    assert parts[1::2] == list(page.TITLES.values())
    assert all(re.search(r"^20\d\d-\d\d-\d\d, revision \w+", text.strip()) for text in parts[2::2])


def test_the_whole_corpus_is_asked_for_and_kept_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bool] = []

    def body(bench: Bench) -> Iterator[Figure | Growth]:
        asked.append(bench.whole)
        yield FIGURE

    parts = {
        "detection": Part("detection", "a corpus", 60.0, body, 6000.0),
        "other": Part("other", "-", 60.0, body),
    }
    monkeypatch.setattr(main, "PARTS", parts)
    keep = f"--keep={tmp_path}"
    assert (
        main.main([keep]) == main.main([keep, "--corpus=whole"]) == main.main([keep, "--corpus=whole"]) == 0
    )
    assert asked == [False, False, True], "the other part has no corpus: it is kept"
    begun = [line for line in capsys.readouterr().err.splitlines() if "a corpus; about" in line]
    assert [line.split("about ")[1] for line in begun] == ["2 min left", "101 min left", "101 min left"]
    with pytest.raises(SystemExit):
        main.main(["--corpus=half"])
    assert "invalid choice: 'half' (choose from" in capsys.readouterr().err


def test_what_go_reports_is_read() -> None:
    out = "BenchmarkFloor/100-2 \t 5\t 0 ns/op\t 12.5 ours-us\t 3.0 bare-us\nBenchmarkFloor/100-2 5 0 ns/op 13 ours-us\nPASS\n"
    found = go_metrics(out)
    assert list(found) == ["BenchmarkFloor/100"]
    assert [m["ours-us"] for m in found["BenchmarkFloor/100"]] == [12.5, 13.0]


def test_documents_and_figures_are_the_same() -> None:
    read = main._read(json.loads(json.dumps([asdict(FIGURE), asdict(GROWN)])))
    assert read == [FIGURE, GROWN]


def test_a_run_that_is_cut_lets_its_children_clean_up(tmp_path: Path) -> None:
    begun, cleaned = tmp_path / "begun", tmp_path / "cleaned"
    # It has begun once somebody reads what it says, which is more than a pipe holds: from then on a run that is cut ends it.
    says = "head -c 1000000 /dev/zero"
    child = f"trap 'touch {cleaned}; exit 0' TERM INT; {says}; touch {begun}; while :; do sleep 0.1; done"
    code = (
        "import signal, sys; from pathlib import Path; from sidebyside.part import Bench\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "Bench(Path(sys.argv[1]), True, 1, print).run('sh', '-c', sys.argv[2])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), child], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        eventually(begun.exists, "it has begun")
        running.send_signal(signal.SIGINT)
        assert running.wait(180) != 0
    finally:
        running.kill()
    assert cleaned.exists()


def short(tmp_path: Path, *parts: str) -> dict[str, Any]:
    """Run parts in their short form."""
    out = tmp_path / "bench.json"
    done = subprocess.run(
        [sys.executable, "-m", "sidebyside", "--short", f"--only={','.join(parts)}", f"--json={out}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        timeout=5400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert found["failed"] == {} and len(found["environment"]["loads"]) == 2 * len(parts)
    assert isinstance(found, dict)
    return found


def absent(note: str) -> bool:
    """Return whether a peer has no values since its package is not installed, which is true."""
    package = note.removeprefix("missing: apt-get install ")
    return package != note and shutil.which(package) is None


def whole(figures: list[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    """Return a part's figures: each has ours, or a peer's; a peer without values has a reason."""
    mine = [f for f in figures if f["part"] == part]
    assert mine, part
    for f in mine:
        assert f["ours"] or f["theirs"] or absent(f["note"]), f
        assert f["theirs"] or f["note"] or "named" in f["what"], f
    return mine


@pytest.mark.netns
def test_probes_are_measured_beside_every_peer(tmp_path: Path) -> None:
    figures = whole(short(tmp_path, "probes")["figures"], "probes")
    assert {f["peer"] for f in figures} == {"fping", "SmokePing's method", "blackbox_exporter"}
    fping = {f["what"]: f for f in figures if f["peer"] == "fping"}
    assert len(fping) == 10 and all(len(f["ours"]) == len(f["theirs"]) == 1 for f in fping.values())
    prices = [f for f in fping.values() if "processor time" in f["what"]]
    assert all(f["ours"][0] > 0 and f["theirs"][0] > 0 for f in prices)


@pytest.mark.long
@pytest.mark.netns
def test_every_part_is_measured(tmp_path: Path) -> None:
    parts = ("exporter", "detection", "isolation", "growth", "floors")
    found = short(tmp_path, *parts)
    for part in ("exporter", "detection", "isolation", "floors"):
        whole(found["figures"], part)
    units = {g["of"] for g in found["growth"]}
    assert units == {"targets", "ports", "tenants of a link", "alerts", "nodes"}
    assert all(all(v for v in g["points"].values()) for g in found["growth"])
    floors = {f["peer"] for f in found["figures"] if f["part"] == "floors"}
    assert floors == {
        "sendmmsg, recvmmsg, stamps",
        "an empty program",
        "the same bytes from memory",
        "its system calls",
    }
    modes = {f["peer"] for f in found["figures"] if f["part"] == "isolation"}
    assert len(modes) == 3
