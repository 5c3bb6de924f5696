"""The page of a soak: as it was agreed on, with pictures that stand alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vigia.soak import report
from vigia.soak.judgement import judge
from vigia.soak.record import ChurnEvent, SoakRecord

Write = Callable[..., SoakRecord]
GOLDEN = Path(__file__).parent.parent / "testdata/golden/soak.md"
ROOT = Path(__file__).resolve().parents[3]
LEAK = {"vigia-enforcer@lb1": {"bpf_maps": lambda h: 20.0 + 6 * h, "descriptors": lambda h: 50.0 + 6 * h}}
FAILED = ChurnEvent(1_700_003_600.0, "port", False, "the exporter of lb1 does not show churn-3", 60.0)


def page(kept: SoakRecord, shown: list[tuple[str, str]] | None = None) -> str:
    return report.as_page(kept, judge(kept), shown or [])


def test_golden(soaked: Write) -> None:
    """After a change that is meant: write what the assertion shows as the new file."""
    kept = soaked(1.0, LEAK, events=(FAILED,), restarts=1, problems=("prometheus: no answer",))
    assert page(kept, [("soak/memory.svg", "Memory")]) == GOLDEN.read_text()


def test_a_healthy_long_run_has_no_caution(soaked: Write) -> None:
    text = page(soaked(3.0))
    assert "**Passed: nothing that was judged grows" in text
    assert "2 slopes need a longer run" in text
    assert "short run" not in text
    assert "## Pictures" not in text


def test_a_short_run_says_so(soaked: Write) -> None:
    text = page(soaked(0.25))
    assert "**A short run (15 minutes)" in text
    assert "takes 3 hours or more" in text


def test_a_run_without_samples_has_a_page(soaked: Write) -> None:
    kept = soaked(0.25)
    empty = SoakRecord(kept.folder, kept.plan)
    assert "Failed: the run is too short to judge anything" in page(empty)
    assert report.pictures(empty) == []


def test_files_of_a_report(soaked: Write, tmp_path: Path) -> None:
    kept = soaked(1.0)
    file = report.write(kept, judge(kept), tmp_path / "docs-soak.md")
    links = re.findall(r"!\[.*\]\((.*)\)", file.read_text())
    assert links == [f"docs-soak/{name}.svg" for name in ("memory", "descriptors", "store", "rules")]
    for link in links:
        assert ElementTree.parse(tmp_path / link).getroot().tag.endswith("svg")  # noqa: S314 - our own
    before = {link: (tmp_path / link).read_bytes() for link in links}
    report.write(kept, judge(kept), tmp_path / "docs-soak.md")
    assert before == {link: (tmp_path / link).read_bytes() for link in links}, (
        "the same samples, the same bytes"
    )


def test_pictures_have_the_agents_of_one_node(soaked: Write) -> None:
    everywhere = {f"vigia-probe@{n}": {"descriptors": lambda h: 1.0} for n in ("lb1", "lb2", "ovs1", "ovs2")}
    everywhere["ovs-vswitchd@ovs1"] = {"descriptors": lambda h: 50.0}
    drawn = dict(report.pictures(soaked(0.25, everywhere)))["descriptors"].svg
    assert "vigia-probe@lb1" in drawn
    assert "ovs-vswitchd@ovs1" in drawn
    for other in ("lb2", "vigia-probe@ovs1", "ovs2"):
        assert other not in drawn


def test_on_a_terminal(soaked: Write) -> None:
    kept = soaked(3.0, LEAK, events=(FAILED,))
    lines = report.as_text(judge(kept)).splitlines()
    assert lines[0] == "Failed: 2 slopes above their limits, 1 pieces of churn failed."
    assert lines[1] == "grows: bpf_maps of vigia-enforcer@lb1: 6.00 [6.00, 6.00] maps"
    assert "cannot do: port: the exporter of lb1 does not show churn-3" in lines


@pytest.mark.parametrize("hours", [1.36])
def test_the_page_in_the_documentation_is_made_by_this_program(soaked: Write, hours: float) -> None:
    """Its figures are of one run; what it says of the method is what the program says today."""
    text = (ROOT / "docs/concepts/soak.md").read_text()
    method = "## How it is done"
    assert text.count(method) == 1
    assert text.partition(method)[2] == page(soaked(hours)).partition(method)[2]
    for link in re.findall(r"!\[.*\]\((.*)\)", text):
        assert (ROOT / "docs/concepts" / link).is_file()
