"""docs/examples/README.md: its table is that of the reports beside it, and its text true of their data."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from recountkit import EXAMPLES, NAMES, first_page, raw, recomputed

from vigia.campaign.model import SIZES
from vigia.studies import catalogue

TEXT = (EXAMPLES / "README.md").read_text()
HEAD = ["campaign", "question", "published answer", "ours", "agreement", "confidence"]


def rows(text: str) -> list[list[str]]:
    """The cells of every line of a page's only table, its head first and without the rule below."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert re.fullmatch(r"(\|-+)+\|", lines[1])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def question(name: str) -> str:
    found = re.search(r'<p class="question">(.*?)</p>', (EXAMPLES / name / "report.html").read_text())
    assert found is not None
    return unescape(found[1])


def manifest(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((EXAMPLES / name / "manifest.json").read_text())
    return found


def test_the_table_has_every_report_once_in_order_and_in_its_own_words() -> None:
    head, *body = rows(TEXT)
    assert head == HEAD
    expected = []
    for name in NAMES:
        page = first_page(name)
        link = f"[{name}]({name}/report.html)"
        expected.append([link, question(name), page.published, page.answer, page.agreement, page.confidence])
    assert body == expected
    assert all(cell for row in body for cell in row), "nothing is left open"


def test_every_folder_with_a_report_is_in_the_table() -> None:
    folders = {p.parent.name for p in EXAMPLES.glob("*/report.html")}
    assert folders == set(NAMES) == {p.name for p in EXAMPLES.iterdir() if p.is_dir()} - {"openstack"}
    shipped = {c.name for c in catalogue.shipped()}
    assert folders == shipped, "every campaign that comes with the program has a report"
    assert {manifest(n)["campaign"]["name"] for n in NAMES} == shipped


def test_agreement_and_confidence_begin_with_a_word_that_can_be_sorted_by() -> None:
    for _, _, _, _, agreement, confidence in rows(TEXT)[1:]:
        assert re.match(r"(agrees|partly agrees|disagrees|open): \S", agreement), agreement
        assert re.match(r"(high|moderate|low|none)( on the controls)?: \S", confidence), confidence


@pytest.mark.parametrize("column", [1, 2, 3, 4, 5])
def test_a_cell_that_is_changed_is_found(column: int) -> None:
    """The table is compared by cells: one word less in any of them is another table."""
    line = next(line for line in TEXT.splitlines() if line.startswith("| [e3]"))
    cells = line.split("|")
    cells[column + 1] = cells[column + 1].rsplit(" ", 2)[0] + " "
    changed = rows(TEXT.replace(line, "|".join(cells)))
    assert [a != b for a, b in zip(changed, rows(TEXT), strict=True)].count(True) == 1


# --- what is said above the table ---


def test_they_are_re_analyses_with_too_few_repetitions() -> None:
    assert "had no hypotheses before they ran" in TEXT
    assert not any("hypotheses" in manifest(n)["campaign"] for n in NAMES)
    verdicts = Counter(c.verdict for n in NAMES for c in recomputed(n))
    assert 'so most answers are "too few repetitions"' in " ".join(TEXT.split())
    assert verdicts["too few repetitions"] > verdicts.total() / 2
    assert "of minutes each" in TEXT
    for name in NAMES:
        runs = json.loads((EXAMPLES / name / "runs.json").read_text())
        assert sum(r["seconds"] for r in runs) < 2 * 3600, name


def test_how_long_the_standard_size_takes() -> None:
    minutes = []
    for campaign in catalogue.shipped():
        assert "standard" in SIZES
        cost = catalogue.cost(campaign.plan("standard"), catalogue.study(campaign.study).measurement)
        minutes.append(cost.seconds / 60)
    said = re.search(r"`vigia\s+campaign show e1`; (\d+) to (\d+) minutes each", TEXT)
    assert said is not None
    assert [int(n) for n in said.groups()] == [round(min(minutes)), round(max(minutes))]


def test_the_machine_is_the_one_that_the_manifests_tell_of() -> None:
    assert (
        "a virtual machine with two processors" in TEXT and "with Open vSwitch's userspace datapath" in TEXT
    )
    for name in NAMES:
        bed, environment = manifest(name)["bed"], manifest(name)["environment"]
        assert (bed["kind"], bed["ovs_datapath"], environment["processors"]) == ("lab", "userspace", 2), name


def test_e1s_messages_were_39_fragments_and_its_failed_cells_are_told() -> None:
    message = manifest("e1")["campaign"]["small"]["settings"]["message"]
    assert message == 56 * 1024
    assert math.ceil((message + 8) / 1480) == 39
    assert "in messages of 56 KB, which go in 39 fragments each" in " ".join(TEXT.split())
    failed = [c for c in recomputed("e1") if c.verdict == "measurement failed"]
    assert {c.stratum["placement"] for c in failed} == {"same-node"}
    assert {c.failing for c in failed} == {"ovs-vxlan", "ovs-gre"}
    assert "these cells of Open vSwitch on one node are marked as failed and not ranked" in " ".join(
        TEXT.split()
    )


def digits(value: float) -> int:
    """Significant decimal digits of the shortest text of a number."""
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


@pytest.mark.parametrize(
    ("name", "metric", "most"), [("e1", "rtt", 3), ("e2", "rtt", 3), ("e2", "rtt_application", 2)]
)
def test_times_are_rounded_as_it_says(name: str, metric: str, most: int) -> None:
    assert (
        "Times in the samples of e1 and e2 are rounded to three digits, those of user space in e2 to two"
        in " ".join(TEXT.split())
    )
    data = raw(name)
    values = [v for (_, m), blocks in data.values.items() if m == metric for s in blocks.values() for v in s]
    found = Counter(digits(float(f"{v:.12g}")) for v in values if not math.isnan(v))
    assert values and max(found) == most, found
