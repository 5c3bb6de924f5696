"""The site's benchmark in its short form: what is there is counted, nothing is timed."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sitecost import __main__ as main
from sitecost import report
from sitecost.measure import Cell, Group, PanelTime
from sitecost.node import Price

ROOT = Path(__file__).resolve().parents[2]
NODES, PORTS, PATHS = 4, 6, 8


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What four small nodes with an hour of data gave; budgets may be missed, the measurement not."""
    folder = tmp_path_factory.mktemp("site")
    out = folder / "site.json"
    words = [
        f"--plan={NODES}:1h",
        f"--ports={PORTS}",
        f"--paths={PATHS}",
        "--capture=5",
        "--agents=5",
        "--learn=70",
        "--settle=10",
    ]
    words += ["--shown", "--seconds=65", "--compare=0", f"--json={out}", f"--keep={folder / 'kept'}"]
    done = subprocess.run(
        [sys.executable, "-m", "sitecost", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert out.exists(), done.stderr[-3000:]
    (cell,) = json.loads(out.read_text())
    assert isinstance(cell, dict)
    return cell


@pytest.mark.long
@pytest.mark.netns
def test_every_page_of_every_node_is_scraped(short: dict[str, object]) -> None:
    jobs = short["jobs"]
    assert isinstance(jobs, dict)
    assert short["reached"] == 1.0
    up = short["up"]
    assert isinstance(up, float) and 0.5 < up <= 1.0
    shipped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    agents = [job for job in shipped if re.match("vigia-(probe|exporter|enforcer)", job["job_name"])]
    assert len(agents) >= 3
    for job in agents:
        if job.get("metrics_path") == "/metrics/fast":
            assert jobs[job["job_name"]] <= 3 * PORTS + 10, jobs
        else:
            assert jobs[job["job_name"]] > 20, jobs
    families = short["families"]
    assert isinstance(families, dict)
    assert families["vigia_port_bytes_total"] >= NODES * PORTS * 2
    assert families["vigia_probe_rtt_seconds"] == NODES * PATHS
    assert families["vigia_probe_sent_total"] == NODES * PATHS


@pytest.mark.long
@pytest.mark.netns
def test_every_group_is_evaluated_and_every_panel_answered(short: dict[str, object]) -> None:
    groups, panels = short["groups"], short["panels"]
    assert isinstance(groups, dict)
    assert isinstance(panels, list)
    shipped = {
        line.split(": ")[1]
        for file in (ROOT / "alert-rules").glob("*.rules.yml")
        for line in file.read_text().splitlines()
        if line.startswith("  - name: ")
    }
    assert set(groups) == shipped
    assert [name for name, g in groups.items() if g["interval"] <= 60 and g["evaluations"] < 1] == []
    assert len(panels) > 50
    assert [p for p in panels if p["failed"]] == []


@pytest.mark.long
@pytest.mark.netns
def test_the_rules_of_an_hour_have_records(short: dict[str, object]) -> None:
    families = short["families"]
    assert isinstance(families, dict)
    rules = [
        rule
        for file in (ROOT / "alert-rules").glob("*.rules.yml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]
    sent = {r["record"] for r in rules if r.get("record", "").startswith("path:vigia_probe_sent:rate")}
    assert sent
    assert {name: families.get(name) for name in sent} == dict.fromkeys(sent, NODES * PATHS)


@pytest.mark.long
@pytest.mark.netns
def test_pairs_of_a_mesh_have_no_series_of_their_own(tmp_path: Path) -> None:
    """As on a large site, which is what is measured by default; no folder is kept, and none is left."""
    out = tmp_path / "site.json"
    words = [
        "--plan=2:live",
        "--ports=4",
        f"--paths={PATHS}",
        "--capture=3",
        "--agents=3",
        "--settle=1",
        "--seconds=20",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sitecost", *words, "--no-panels", "--compare=0", f"--json={out}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert done.returncode in (0, 1) and out.exists(), done.stderr[-3000:]
    for agent in ("probe", "exporter", "enforcer"):
        assert re.search(rf"^  {agent} +[0-9.]+% of a core +[1-9][0-9.]* MiB$", done.stdout, re.MULTILINE), (
            done.stdout
        )
    assert "memory of a node's agents" in done.stdout
    families = json.loads(out.read_text())[0]["families"]
    kinds = 4
    assert families["vigia_probe_mesh_sent_total"] == families["vigia_probe_mesh_rtt_seconds"] == 2 * kinds
    assert {"vigia_probe_sent_total", "vigia_probe_rtt_seconds"}.isdisjoint(families)
    assert [p.name for p in tmp_path.iterdir()] == ["site.json"]


@pytest.mark.long
def test_the_go_programs() -> None:
    for words in (["vet"], ["test", "-count=1"]):
        done = subprocess.run(
            ["go", *words, "./..."], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _cell(nodes: int, age: str = "1h", **values: object) -> Cell:
    cell = Cell(
        nodes,
        age,
        60.0,
        0.1 + 0.001 * nodes,
        0.0,
        1.0,
        3.2 * nodes,
        3.2 * nodes,
        1.0,
        100.0 + 50 * nodes,
        nodes << 20,
        0,
        0,
    )
    cell.groups = {"g": Group(15.0, 0.15, 0.3, 4, 0, {"r": 0.1})}
    cell.panels = [PanelTime("d", "p", 0.2, 3.0)]
    for name, value in values.items():
        setattr(cell, name, value)
    return cell


def test_the_other_prometheus_is_the_one_of_compose_and_chart() -> None:
    """The module v0.305.0 is release 3.5.0."""
    pinned = re.search(
        r"^require github\.com/prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)$",
        (ROOT / "tools/prometheus.mod").read_text(),
        re.MULTILINE,
    )
    assert pinned is not None
    release = ".".join(str(int(n)) for n in pinned.groups())
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    chart = yaml.safe_load((ROOT / "deploy/helm/vigia/values.yaml").read_text())
    for image in (compose["services"]["prometheus"]["image"], chart["prometheus"]["image"]):
        assert image.split("@")[0] == f"prom/prometheus:v{release}"
    said = subprocess.run(
        ["make", "--dry-run", "prometheus"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert f"version.Version={release}'" in said


def test_a_program_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main._options(["--prometheus", "/nowhere/prometheus"])
    assert refused.value.code == 2
    assert "/nowhere/prometheus is no program; run make prometheus" in capsys.readouterr().err


def test_a_line_is_found_again() -> None:
    line = report.fit([(n, 3.0 + 0.5 * n) for n in (4, 40, 400)])
    assert math.isclose(line.intercept, 3.0)
    assert math.isclose(line.slope, 0.5)
    assert all(abs(r) < 1e-6 for _, r in line.residuals)
    assert math.isclose(line.at(1000), 503.0)


def test_one_size_gives_a_line_through_nothing() -> None:
    line = report.fit([(4, 8.0)])
    assert (line.intercept, line.slope) == (0.0, 2.0)


def test_budgets_are_met_or_missed() -> None:
    cells = [_cell(4), _cell(40), _cell(4, "30d")]
    assert [b.what for b in report.budgets(cells) if not b.met] == []
    worse = {
        "Prometheus per node": [_cell(4), _cell(40, cores=0.5)],
        "memory per node": [_cell(4), _cell(40, anonymous=200 << 20)],
        "1 000 nodes": [_cell(4), _cell(40, cores=0.5)],
        "scrapes that are made": [_cell(4), _cell(40, scrapes=100.0)],
        "slowest group": [_cell(4, groups={"g": Group(1.0, 0.2, 0.3, 4, 0, {})})],
        "missed evaluations": [_cell(4, groups={"g": Group(1.0, 0.01, 0.3, 4, 1, {})})],
        "slowest panel": [_cell(4, panels=[PanelTime("d", "p", 1.5, 3.0)])],
        "cores, 30d against 1h, 4 nodes": [_cell(4), _cell(4, "30d", cores=0.2)],
        "panels, 30d against 1h, 4 nodes": [
            _cell(4),
            _cell(4, "30d", panels=[PanelTime("d", "p", 0.4, 3.0)]),
        ],
    }
    for what, cells in worse.items():
        assert what in [b.what for b in report.budgets(cells) if not b.met], what


def test_a_node_s_agents_have_budgets_of_their_own() -> None:
    small = {a: Price(0.004, 20 << 20) for a in ("probe", "exporter", "enforcer")}
    others = {**small, "node": Price(1.0, 1 << 30)}
    assert [b.met for b in report.of_agents(others)] == [True, True], "node_exporter is nobody's of ours"
    assert [b.met for b in report.of_agents({**small, "probe": Price(0.008, 20 << 20)})] == [False, True]
    assert [b.met for b in report.of_agents({**small, "probe": Price(0.004, 51 << 20)})] == [True, False]
    assert "probe        0.40% of a core   20.0 MiB" in report.agents(small)


def test_a_site_that_the_machine_cannot_carry_is_no_point_of_the_line() -> None:
    cells = [_cell(4), _cell(40), _cell(400, cores=0.2, scrapes=600.0)]
    cores, memory, _ = report.lines(cells)
    assert math.isclose(cores.slope, 0.001)
    assert [n for n, _ in memory.residuals] == [4, 40]
    assert report.lines(cells[2:])[0].slope == 0.2 / 400, "better than nothing"


def test_the_default_plan_has_three_sizes_of_one_age_and_all_ages_of_one_size() -> None:
    plan = main._plan(main.PLAN)
    assert len({nodes for nodes, age in plan if age == "1h"}) == 3
    assert {age for nodes, age in plan if nodes == 4} == {"1h", "24h", "30d"}


def test_the_report_names_what_costs_most() -> None:
    cell = _cell(4, families={"vigia_x": 40}, comparison={"query_seconds": 0.1})
    text = report.cell(cell)
    assert "vigia_x 10.0" in text
    assert "g r 0.67%" in text
    assert "panel d: p: 0.200 s, at All 3.000 s" in text
