"""What the published reports state in their tables, computed a second time from their raw data, by other means."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from recountkit import CLOUD, EXAMPLES, NAMES, headline, raw, recomputed, signed_ranks, stated


def number(shown: str) -> float:
    """The estimate that a page shows: × 1.26 [1.20, 1.32], 95.6 [95.6, 95.8] %, about × 0.109."""
    found = re.search(r"-?\d[\d ]*\.?\d*", shown.replace("–", ""))
    if found is None:
        return math.nan
    value = float(found[0].replace(" ", ""))
    return value / 100 if shown.endswith("%") else value


@pytest.mark.parametrize("name", [*NAMES, CLOUD])
def test_every_comparison_is_what_the_raw_data_say(name: str) -> None:
    rows, ours = stated(name)["Every comparison"], recomputed(name)
    assert len(rows) == len(ours) > 0
    for row, c in zip(rows, ours, strict=True):
        assert row[0] == c.hypothesis
        if c.first:
            assert row[1].endswith(f"{c.first} beside {c.second}")
        assert int(row[2]) == c.blocks, row
        assert row[5].startswith(c.verdict), row
        if c.verdict != "measurement failed" and c.blocks > 1:
            assert number(row[3]) == pytest.approx(c.effect, rel=0.006, abs=1e-5), row


@pytest.mark.parametrize("name", [*NAMES, CLOUD])
def test_what_is_counted_on_the_first_page_is_what_was_computed(name: str) -> None:
    text = (EXAMPLES / name / "report.html").read_text()
    found = re.search(
        r"(\d+) comparisons were stated as hypotheses: (\d+) are decided, (\d+) are equivalent within the margin, "
        r"(\d+) are undecided, (\d+) have too few repetitions, (\d+) rest on a measurement that failed",
        text,
    )
    assert found is not None
    words = Counter(
        c.verdict.split(" wins")[0] if " wins" in c.verdict else c.verdict for c in recomputed(name)
    )
    total = sum(words.values())
    rest = [words[w] for w in ("equivalent", "undecided", "too few repetitions", "measurement failed")]
    assert [int(n) for n in found.groups()] == [total, total - sum(rest), *rest]


def test_e1_says_of_whom_nothing_arrived() -> None:
    """Cells in which the receiver got nothing in most repetitions, counted from the samples themselves."""
    data = raw("e1")
    silent = {
        (dict(cell)["path"], dict(cell)["machines"])
        for cell in data.cells
        if sum(all(v == 0 for v in s) for s in data.values.get((cell, "throughput"), {}).values()) > 1
    }
    assert silent == {(p, m) for p in ("ovs-vxlan", "ovs-gre") for m in ("2", "4", "8")}
    rows = [
        r for r in stated("e1")["Who wins and who loses"] if "in fragments" in r[2] and r[1] == "same node"
    ]
    assert len(rows) == 2 * 3, "loss and throughput, three numbers of machines"
    assert all(r[3].startswith("not ranked: ovs-vxlan: ") for r in rows)
    assert "6 are not ranked in full because a measurement failed" in headline("e1")
    assert headline("e1").startswith("Open vSwitch with its userspace datapath, ")


def test_e2_names_no_winner_with_six_repetitions() -> None:
    assert all(c.verdict == "too few repetitions" for c in recomputed("e2"))
    assert "too few repetitions: 6, and 12 are needed" in headline("e2")
    assert headline("e2").endswith("the switch forwards in software.")


def test_e3s_medians_and_its_conclusion() -> None:
    data = raw("e3")
    for cell in data.cells:
        pooled = [v for s in data.values[cell, "rtt_small"].values() for v in s if not math.isnan(v)]
        middle = statistics.median(pooled)
        shown = re.search(rf"{dict(cell)['path']} ([\d.]+) (µs|ms)", headline("e3"))
        assert shown is not None
        assert float(shown[1]) * {"µs": 1e-6, "ms": 1e-3}[shown[2]] == pytest.approx(middle, rel=0.006)
    by_name = {c.hypothesis: c for c in recomputed("e3") if not c.first}
    assert by_name["masked_small"].verdict == by_name["masked_saturated"].verdict == "grows"
    assert headline("e3").count("does not mask IPsec's cost") == 2


def test_e4s_only_difference_is_the_network() -> None:
    decided = [c for c in recomputed("e4") if "wins" in c.verdict]
    assert [(c.hypothesis, c.verdict) for c in decided] == [
        ("network", "direct wins, linuxbridge-vxlan loses")
    ]
    assert f"network ({decided[0].effect - 1:+.1%})" in headline("e4")


def test_e5as_headline_is_of_what_tenant_a_got() -> None:
    """Kept: the smallest of five repetitions reaches 95 % of the payload, in both cells; lost: the largest does not."""
    data = raw("e5-a")
    words = {}
    for control in ("none", "rigid", "borrowing", "paper", "vigia"):
        cells = [c for c in data.cells if dict(c)["control"] == control and dict(c)["b"] != "none"]
        shares = [[s[0] for s in data.values[c, "share_a"].values()] for c in cells]
        kept = all(min(s) >= 0.9086 for s in shares)
        lost = any(max(s) < 0.9086 for s in shares)
        words[control] = "kept" if kept else "lost" if lost else "open"
    assert words == {"none": "lost", "rigid": "kept", "borrowing": "lost", "paper": "kept", "vigia": "open"}
    assert (
        "tenant A keeps its guarantee in every cell with rigid, paper; it does not with none ("
        in headline("e5-a")
    )
    assert headline("e5-a").endswith("it is open with vigia.")
    assert "host 1 only receives" in headline("e5-a")


def test_e5bs_jobs_that_were_given_up() -> None:
    data = raw("e5-b")
    for against, what in (("tcp-10", "10 TCP flows"), ("udp-1", "one UDP flood")):
        (cell,) = [
            c for c in data.cells if dict(c) == {"control": "none", "guarantee": "50", "against": against}
        ]
        late = sum(math.isnan(s[0]) for s in data.values[cell, "job"].values())
        said = f"against pairs of {what} without control {late} of 3 jobs were given up, so its time is not known"
        assert late > 0
        assert said in headline("e5-b")


def test_the_small_null_distribution_is_right() -> None:
    """It is the yardstick: for three ranks each of 0, 1, 2, 4, 5, 6 has one way of eight, and 3 has two."""
    assert signed_ranks(3) == [1 / 8, 1 / 8, 1 / 8, 2 / 8, 1 / 8, 1 / 8, 1 / 8]


def test_every_folder_has_what_it_was_made_from() -> None:
    for name in NAMES:
        assert {"manifest.json", "runs.json", "samples.parquet", "report.html", "report.pdf"} <= {
            p.name for p in Path(EXAMPLES / name).iterdir()
        }
