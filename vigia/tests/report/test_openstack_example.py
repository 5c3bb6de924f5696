"""docs/examples/openstack: e1 on Neutron's networks, beside the published study and beside the lab's own."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict

from recountkit import BESIDE, CLOUD, EXAMPLES, Comparison, first_page, recomputed, stated

from vigia.campaign import folder
from vigia.studies import running

README = (EXAMPLES / "openstack/README.md").read_text()
HEAD = ["metric", "placement", "traffic", "published", "the lab's own (e1)", "on Neutron"]
WINNERS = "Who wins and who loses"
NONE = "–"


def table() -> list[list[str]]:
    """The rankings of both reports beside the published winners, by metric, placement and traffic."""
    ours = {tuple(r[:3]): (r[3], r[4]) for r in stated(CLOUD)[WINNERS]}
    lab = {tuple(r[:3]): (r[3], r[4]) for r in stated("e1")[WINNERS]}
    return [
        [*key, (ours.get(key) or lab[key])[1], lab.get(key, (NONE,))[0], ours.get(key, (NONE,))[0]]
        for key in dict.fromkeys((*ours, *lab))
    ]


def markdown() -> str:
    """The table as the page has it."""
    rows = [HEAD, ["---"] * len(HEAD), *table()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def runs() -> list[folder.Folder]:
    return [folder.open_folder(EXAMPLES / name) for name in (CLOUD, *BESIDE[CLOUD])]


def test_the_report_is_what_the_data_of_both_clouds_say() -> None:
    one, *beside = runs()
    document = running.document(one, beside)
    page = first_page(CLOUD)
    assert (page.answer, page.agreement) == (document.answer, document.summary.agreement)
    assert list(page.sure) == list(document.summary.sure)
    assert any(line.startswith("It is of 2 runs, ") for line in page.sure)
    for said in (
        "agents for Open vSwitch, with security groups",
        "agents for Linux bridges, with security groups",
    ):
        assert said in document.answer


RANKED = ("latency", "jitter", "udp_loss", "tcp_throughput", "udp_throughput", "tcp_both_ways")


def test_winners_and_losers_are_those_of_the_raw_data() -> None:
    """Counted from comparisons that are computed a second time: who beats all others, and who is beaten and beats nobody."""
    rankings: dict[tuple[object, ...], list[Comparison]] = defaultdict(list)
    for c in recomputed(CLOUD):
        if c.hypothesis in RANKED:
            rankings[c.hypothesis, *c.stratum.items()].append(c)
    wins, loses = Counter[str](), Counter[str]()
    for compared in rankings.values():
        beats = {
            tuple(c.verdict.replace(" loses", "").split(" wins, "))
            for c in compared
            if " wins, " in c.verdict
        }
        levels = {level for c in compared for level in (c.first, c.second)}
        for level in levels:
            wins[level] += {(level, other) for other in levels - {level}} <= beats
            beaten = any(loser == level for _, loser in beats)
            loses[level] += beaten and not any(winner == level for winner, _ in beats)
    answer = first_page(CLOUD).answer
    assert f"of {len(rankings)} rankings, " in answer
    for path in ("ovs-vxlan", "ovs-gre", "linuxbridge-vxlan"):
        assert f"{path} wins {wins[path]} and loses {loses[path]};" in answer


def test_they_are_whole_runs_of_neutrons_clouds() -> None:
    clouds = {}
    for run in runs():
        assert (run.size, run.manifest["state"]) == ("standard", "done")
        assert len(run.records) == len(run.plan.cells()) * run.plan.stop.repetitions
        clouds[run.manifest["bed"]["cloud"]] = {str(c["path"]) for c in run.plan.cells()}
        assert {str(c["placement"]) for c in run.plan.cells()} == {"same-node", "cross-node"}
        assert {int(c["machines"]) for c in run.plan.cells()} == {2, 4, 8}
    assert clouds == {"neutron-ovs": {"ovs-vxlan", "ovs-gre"}, "neutron-linuxbridge": {"linuxbridge-vxlan"}}


def test_the_page_says_what_the_report_does() -> None:
    page, text = first_page(CLOUD), " ".join(README.split())
    for said in (page.answer, page.agreement, page.confidence):
        assert said in text
    assert markdown() in README
    assert len(table()) > 30


def test_the_page_tells_of_the_load() -> None:
    """Of both runs: lowest and highest load average of a minute."""
    loads = [x for run in runs() for r in run.records for x in r.load]
    found = re.search(r"load average of ([\d.]+) to ([\d.]+)", README)
    assert found is not None
    assert [float(x) for x in found.groups()] == [round(min(loads), 2), round(max(loads), 2)]


def test_the_data_are_beside_the_report() -> None:
    for name in (CLOUD, *BESIDE[CLOUD]):
        there = {p.name for p in (EXAMPLES / name).iterdir()}
        assert {"manifest.json", "runs.json", "samples.parquet"} <= there
        assert json.loads((EXAMPLES / name / "manifest.json").read_text())["campaign"]["name"] == "e1"
    assert (EXAMPLES / CLOUD / "report.pdf").stat().st_size < 1_000_000
