"""Reports: the published examples made anew from their data, what they say, how numbers are written."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labkit import ROOT

from vigia.campaign import folder
from vigia.errors import VigiaError
from vigia.report import compare, page, pairing
from vigia.report.data import jitter, load, missing
from vigia.studies import running
from vigia.studies.openflow import verdict

EXAMPLES = ROOT / "docs" / "examples"
NAMES = ("e1", "e2", "e3", "e4", "e5-a", "e5-b")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_what_its_data_say(name: str) -> None:
    f = folder.open_folder(EXAMPLES / name)
    document = running.document(f)
    rows = (EXAMPLES / "README.md").read_text()
    s = document.summary
    assert f"| {document.question} | {s.paper} | {document.answer} | {s.agreement} | {s.confidence} |" in rows
    assert all("|" not in text for text in (document.answer, s.paper, s.agreement, s.confidence))
    pdf = (EXAMPLES / name / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) < 1_000_000
    text = page.html(document)
    assert len(text) < 600_000
    published = (EXAMPLES / name / "report.html").read_text()
    assert html.escape(document.answer, quote=False).replace("'", "&#39;") in published
    assert not re.search(r'(src|href)="(?!samples|manifest|runs|#)', text), "nothing to load"
    assert "<script" not in text
    assert len(f.records) == len(f.plan.cells()) * f.plan.stop.repetitions
    made = load(f)
    assert sum(v.size for r in made.repetitions for v in r.samples.values()) == f.samples().num_rows


@pytest.mark.parametrize("name", NAMES)
def test_the_first_page_of_an_example(name: str) -> None:
    """It says what was found, how sure that is and what it does not say, and nothing of what was not measured."""
    f = folder.open_folder(EXAMPLES / name)
    s = running.document(f).summary
    assert s.found and s.sure and s.silent and s.paper and s.agreement and s.confidence
    assert any("were written after this was measured" in line for line in s.sure)
    assert running.document(f).answer[0].isupper()


def test_conditions_stand_in_the_headlines() -> None:
    for name, condition in (
        ("e1", "Open vSwitch with its userspace datapath"),
        ("e2", "Open vSwitch with its userspace datapath"),
        ("e3", "ESP in user space (libipsec)"),
        ("e4", "Senders, switches and receivers sharing 2 processors"),
        ("e5-a", "Senders, switches and receivers sharing 2 processors"),
        ("e5-b", "Senders, switches and receivers sharing 2 processors"),
    ):
        assert condition in running.document(folder.open_folder(EXAMPLES / name)).answer, name


def part_of(name: str, into: Path, keep: Callable[[str], bool], **more: Any) -> folder.Folder:
    """Return an example as if only some of its paths had been measured."""
    shutil.copytree(EXAMPLES / name, into)
    f = folder.open_folder(into)
    plan = f.manifest["campaign"]["standard"]
    for design in plan["designs"]:
        design["factors"]["path"] = [p for p in design["factors"]["path"] if keep(p)]
    records = json.loads((into / "runs.json").read_text())
    (into / "runs.json").write_text(json.dumps([r for r in records if keep(r["factors"]["path"])]))
    f.update(campaign={**f.manifest["campaign"], "standard": plan}, **more)
    return folder.open_folder(into)


def sections(f: folder.Folder, *beside: folder.Folder) -> dict[str, Any]:
    return {s.title: s for s in running.document(f, beside).sections}


def test_runs_of_other_paths_stand_beside_in_one_report(tmp_path: Path) -> None:
    """As one run would say it, but that nothing was randomised between them."""
    whole = folder.open_folder(EXAMPLES / "e1")
    switches = part_of("e1", tmp_path / "e1-ovs", lambda p: p.startswith("ovs"))
    bridges = part_of("e1", tmp_path / "e1-lb", lambda p: not p.startswith("ovs"))
    made, one = running.document(switches, [bridges]), running.document(whole)
    assert made.answer == one.answer and made.summary.found == one.summary.found
    assert [s for s in made.summary.sure if s not in one.summary.sure] == [
        "It is of 2 runs, "
        f"e1-ovs (ovs-vxlan, ovs-gre; began {whole.manifest['began']}) and "
        f"e1-lb (linuxbridge-vxlan; began {whole.manifest['began']}): what differs between paths of one run was "
        "randomised in time, what differs between runs was not, and a block pairs their repetitions by number alone."
    ]

    def rows(name: str, **parts: dict[str, Any]) -> list[list[list[str]]]:
        return [sorted(map(list, t.rows)) for t in parts["of"][name].tables]

    for title in ("Winners and losers", "Tests", "Design"):
        assert rows(title, of=sections(switches, bridges)) == rows(title, of=sections(whole)), title
    methods = [s.title for s in made.sections if s.title.startswith("Method")]
    assert [m.partition(" (")[0] for m in methods] == ["Method of e1-ovs", "Method of e1-lb"]
    assert ("beside it", f"e1-lb (linuxbridge-vxlan; began {whole.manifest['began']})") in made.facts
    alone = sections(switches)
    assert "Method" in alone and "Method of e1-ovs" not in alone
    assert len(rows("Tests", of=alone)[0]) < len(rows("Tests", of=sections(whole))[0])


def test_conditions_of_runs_beside_stand_once_each(tmp_path: Path) -> None:
    bed = folder.open_folder(EXAMPLES / "e1").manifest["bed"]
    switches = part_of(
        "e1", tmp_path / "a", lambda p: p.startswith("ovs"), bed={**bed, "cloud": "neutron-ovs"}
    )
    bridges = part_of(
        "e1", tmp_path / "b", lambda p: not p.startswith("ovs"), bed={**bed, "cloud": "neutron-linuxbridge"}
    )
    answer = running.document(switches, [bridges]).answer
    for said in ("agents for Open vSwitch, with", "agents for Linux bridges, with", "sharing 2 processors"):
        assert answer.count(said) == 1, said


def test_runs_that_are_not_of_one_campaign_are_not_put_beside(tmp_path: Path) -> None:
    whole, other = (folder.open_folder(EXAMPLES / name) for name in ("e1", "e3"))
    with pytest.raises(
        VigiaError, match=r"e1 and e1 both measured .*; report each alone, or use: vigia campaign compare"
    ):
        running.document(whole, [whole])
    with pytest.raises(VigiaError, match="e3 and e1 did not measure the same in the same way"):
        running.document(whole, [other])
    sites = folder.open_folder(EXAMPLES / "e4")
    with pytest.raises(VigiaError, match="e4 has no paths by which runs could be told apart"):
        running.document(sites, [sites])
    none = part_of("e1", tmp_path / "none", lambda p: p.startswith("ovs"))
    (none.path / "runs.json").write_text("[]")
    none = folder.open_folder(none.path)
    with pytest.raises(VigiaError, match="none has no repetition that succeeded"):
        running.document(whole, [none])


def test_the_method_tells_what_was_run() -> None:
    """Of the settings those that the study uses: e2 has no duration, and its report names none."""
    (method,) = [
        s for s in running.document(folder.open_folder(EXAMPLES / "e2")).sections if s.title == "Method"
    ]
    assert "1000 timed UDP packets go there and back, one every 1 ms" in method.paragraphs[1]
    assert "30 s" not in " ".join(method.paragraphs)
    (method,) = [
        s for s in running.document(folder.open_folder(EXAMPLES / "e1")).sections if s.title == "Method"
    ]
    assert "1 s of iperf3 between all pairs at once" in method.paragraphs[1]


def test_a_smoke_run_answers_nothing(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e3", tmp_path / "e3")
    f = folder.open_folder(tmp_path / "e3")
    plan = f.manifest["campaign"]["standard"]
    f.update(campaign={**f.manifest["campaign"], "smoke": plan}, size="smoke")
    sure = running.document(folder.open_folder(f.path)).summary.sure
    assert "This was a smoke run: it shows that the campaign runs, and answers nothing." in sure


def test_the_pages_are_written_beside_the_data(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e3", tmp_path / "e3")
    for name in ("report.html", "report.pdf"):
        (tmp_path / "e3" / name).unlink()
    _, files = running.write_report(folder.open_folder(tmp_path / "e3"), pdf=True)
    assert [f.name for f in files] == ["report.html", "report.pdf"]
    assert files[1].read_bytes().startswith(b"%PDF-")
    assert "Median round trip (interquartile range)" in files[0].read_text()


def test_a_campaign_compared_with_itself_differs_in_nothing() -> None:
    e3 = folder.open_folder(EXAMPLES / "e3")
    pairs = pairing.pairs(e3, e3, "bandwidth")
    assert len(pairs) == 5
    assert not any(p.significant for p in pairs)
    assert all(p.comparison.shift == 0 for p in pairs)
    assert pairs[0].as_json()["metric"] == "bandwidth"
    with pytest.raises(VigiaError, match="have no combination of nothing that both measured"):
        pairing.pairs(e3, e3, "nothing")


def test_the_command_line(vigia: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e4", tmp_path / "e4")
    done = vigia("campaign", "report", str(tmp_path / "e4"), "--no-pdf", "--json")
    assert done.status == 0, done.stderr
    assert done.json["answer"].endswith(
        "of 10 measures of direct and linuxbridge-vxlan, 1 differs beyond the margin: network (+3.6%); 0 are "
        "equivalent, 9 are open."
    )
    shown = vigia("campaign", "run", "e1", "--dry-run")
    assert "runs, order randomised, about" in shown.stdout
    assert vigia("campaign", "report", "e1", "--directory", str(tmp_path)).status == 1


def test_what_a_repetition_becomes() -> None:
    values = np.array([1.0, 3.0, math.nan, 2.0])
    assert jitter(values) == 1.5
    assert missing(values) == 0.25


def test_means_stay_within_the_possible_range() -> None:
    wide = np.array([1e6, 1e7, 1e9])
    rate = compare.within_range(wide, "bit/s", 0.95)
    assert 0 < rate.lower < rate.estimate < rate.upper
    loss = compare.within_range(np.array([0.0, 0.0, 0.0, 0.9]), "ratio", 0.95)
    assert 0 <= loss.lower <= loss.estimate <= loss.upper <= 1
    assert compare.mean_text(np.zeros(3), "bit/s", 0.95) == "0 bit/s in all"
    assert compare.mean_text(np.zeros(3), "ratio", 0.95) == "0 % in all"
    assert compare.mean_text(np.array([]), "s", 0.95) == "–"
    assert compare.bar(np.array([5.0]), "s", 0.95) == (5.0, 5.0, 5.0)
    assert compare.bar(np.array([]), "s", 0.95) is None


def judged(shift: float, spread: float, noise: float = 1e-6) -> str:
    rng = np.random.default_rng(5)

    def around(middle: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        return middle + rng.uniform(-noise, noise, 12)

    return verdict.forwarding(
        around(100e-6 + 2 * shift), around(20e-6 + spread), around(100e-6), around(20e-6), 0.99
    ).verdict


def test_hardware_or_software() -> None:
    assert judged(shift=3e-6, spread=0.5e-6) == "hardware"
    assert judged(shift=200e-6, spread=300e-6) == "software"
    assert judged(shift=200e-6, spread=0.5e-6) == "undecided", "long, but as constant as a pipeline"
    assert judged(shift=10e-6, spread=5e-6, noise=20e-6) == "undecided", "the intervals are too wide"
    none = np.array([])
    assert verdict.forwarding(none, none, none, none, 0.99).verdict == "undecided"


def test_what_happened_meanwhile_is_marked_on_a_timeline(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e3", tmp_path / "e3")
    runs = json.loads((tmp_path / "e3" / "runs.json").read_text())
    for number, run in ((3, runs[3]), (7, runs[7])):
        at = run["began"] + 0.5 * run["seconds"]
        run["events"] = [{"at": at, "what": f"IPsec of path {number} was rekeyed"}]
    (tmp_path / "e3" / "runs.json").write_text(json.dumps(runs))
    text = page.html(running.document(folder.open_folder(tmp_path / "e3")))
    for number, path in ((1, 3), (2, 7)):
        assert f"IPsec of path {path} was rekeyed" in text
        assert f"mark {number}: IPsec of path {path} was rekeyed" in text, "the line is in the figure, too"
    assert "What happened meanwhile" in text and "When what was measured" in text
    unmarked = page.html(running.document(folder.open_folder(EXAMPLES / "e3")))
    assert "When what was measured" not in unmarked
