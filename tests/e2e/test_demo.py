"""The whole demo, run as a person runs it, on a lab of its own beside any other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import grafanakit
import httpx
import numpy as np
import pytest
import rawkit
from demokit import LAB, Demo
from labkit import Machine, need_root, own_topology, run_vigia
from panelkit import panels_at, quiet

import vigia_catalog
from vigia.lab import ipsec, model, state, topology
from vigia.stack.places import Places, agent_address, stack_address
from vigia.stack.site import AGENT_PORTS as PORTS
from vigia_dashboards.pages import PAGES
from vigia_testing import eventually

pytestmark = pytest.mark.e2e

WINDOW, WINDOWS = 60.0, 30
"""Windows of the demo's comparison, in seconds, and how many of them."""
CERTAIN = 0.9
"""Confidence of an interval from which on it is one: the median of a few windows has less."""
LOST = 0.01
"""Share of its probes that a path may lose while nobody uses it: one of a hundred, for a machine that was away for
longer than a probe waits."""
LOST_BESIDE_TCP = 0.03
"""Share of its probes that the victim may lose: its own transfer fills its queue, and is told so by drops. In the queue
of a flood half of them are lost."""
NODES = ("node1", "node2")
OVERLAYS = ("linuxbridge-vxlan", "ovs-vxlan", "ovs-gre")
MATCHES = ("in-port", "mac", "ip", "udp-port", "exact")
REWRITES = ("set-mac", "set-ip", "set-priority", "set-tos", "set-udp-port")
OPENFLOW = tuple(f"ovs-openflow-{x}" for x in (*MATCHES, *REWRITES))
STATIONS = ("macvlan", "ipsec-macvlan", "ipsec-ovs-vxlan")
PATHS = {
    (path, *ends) for path in ("direct", *OVERLAYS, *OPENFLOW, *STATIONS) for ends in (NODES, NODES[::-1])
} | {(f"{path}-local", node, node) for path in ("direct", *OVERLAYS) for node in NODES}
"""Every technology between the same two nodes, and on each of them."""
EVENTS = [
    "flood_start",
    "kernel_detected",
    "alert_started",
    "webhook_received",
    "limit_verified",
    "victim_recovered",
    "flood_end",
    "released",
]


def comparisons(demo: Demo) -> Any:
    """What vigia-compare last said."""
    answer = httpx.get(f"http://{stack_address(demo.lab, 9875)}/v1/comparisons", trust_env=False, timeout=60)
    return answer.json() if answer.status_code == 200 else {"comparisons": [], "interference": []}


def key(labels: dict[str, str]) -> tuple[str, str, str]:
    return labels["path"], labels["src"], labels["dst"]


def test_every_path_is_measured_both_ways(demo: Demo) -> None:
    figures = {(f["path"], f["source"], f["destination"]): f for f in demo.report["paths"]}
    assert set(figures) == PATHS
    for figure in figures.values():
        assert 0 < figure["p50"] <= figure["p99"] < 1
        assert figure["jitter"] > 0
        assert figure["samples"] >= 100
        assert 0 <= figure["loss"] <= LOST, figure


def test_prometheus_has_every_path_both_ways(demo: Demo) -> None:
    for expression in (
        "histogram_quantile(0.5, rate(vigia_probe_rtt_seconds[1m]))",
        "vigia_probe_received_total",
        "histogram_quantile(0.5, rate(vigia_probe_delay_variation_seconds{direction='forward'}[1m]))",
    ):
        assert {key(r["metric"]) for r in demo.query(expression)} == PATHS, expression


def test_the_timeline_has_every_step_in_order(demo: Demo) -> None:
    timeline = demo.report["timeline"]
    assert [t["event"] for t in timeline] == EVENTS
    for entry in timeline:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["at"])
    seconds = {t["event"]: t["seconds_after_flood"] for t in timeline}
    assert seconds["kernel_detected"] >= 0
    # The kernel says when it last began to see a flood: where it paused for a window, that may be after the alert.
    assert seconds["limit_verified"] > max(seconds["webhook_received"], seconds["kernel_detected"])
    assert seconds["webhook_received"] > seconds["alert_started"] > 0
    assert seconds["released"] > seconds["flood_end"] > seconds["victim_recovered"]


def test_the_victim_keeps_its_guarantee(demo: Demo) -> None:
    phases = {p["phase"]: p for p in demo.report["victim"]}
    assert list(phases) == ["before", "flood, no limit", "flood, limited", "after"]
    guarantee = next(t.guarantee for t in demo.lab.tenants() if t.name == "blue") * 8
    assert demo.report["guarantee"]["bits_per_second"] == guarantee
    for name in ("before", "after"):
        assert phases[name]["bits_per_second"] > guarantee, "it borrows what nobody else uses"
    assert phases["flood, limited"]["bits_per_second"] >= 0.95 * guarantee
    kept = demo.report["guarantee"]["kept"]
    assert set(kept) == {"first second of the flood", "flood, limited"}
    assert kept["flood, limited"] >= 0.95
    assert kept["first second of the flood"] >= 0.9, "it begins without a limit"


def test_the_victim_loses_probes_to_its_own_transfer_at_most(demo: Demo) -> None:
    """A probe waits in the victim's own class behind its own transfer, and the flood is not in that class."""
    phases = {p["phase"]: p for p in demo.report["victim"]}
    for name, phase in phases.items():
        # The flood may be limited between two probes, or nearly so.
        if name != "flood, no limit":
            assert phase["probes"] >= 10 * phase["seconds"] > 0, (
                "20 a second, but for what is not settled yet"
            )
        assert phase["probes_lost"] <= max(1, LOST_BESIDE_TCP * phase["probes"]), name


def test_the_flood_was_limited_at_its_port_alone_and_to_what_its_tenant_bought(demo: Demo) -> None:
    red = next(t.guarantee for t in demo.lab.tenants() if t.name == "red")
    limits = demo.query("max_over_time(vigia_isolation_limit_bytes_per_second[10m])")
    assert {r["metric"]["port"] for r in limits} == {"node1-red-110"}
    assert {r["metric"]["protocol"] for r in limits} == {"udp"}
    assert all(float(r["value"][1]) >= red for r in limits), "relaxed before it was lifted, and never below"
    # What is counted for the first time is shown as zero in two scrapes first.
    counted = eventually(
        lambda: demo.query("vigia_isolation_policed_packets_total > 0"), "policed packets to be scraped"
    )
    policed = {r["metric"]["port"]: float(r["value"][1]) for r in counted}
    # The fast loop takes from the victim, too, what it borrowed, until its transfer has slowed down.
    assert set(policed) <= {"node1-red-110", "node1-blue-120"}
    assert max(policed, key=policed.__getitem__) == "node1-red-110"
    refused = demo.query("vigia_isolation_refused_packets_total > 0")
    assert refused == [], "nobody sent beyond the contract of a receiver"
    guarantees = demo.query(
        "vigia_isolation_guarantee_bytes_per_second{tenant='red',direction='from_tenant'}"
    )
    assert len(guarantees) == 6 and {float(r["value"][1]) for r in guarantees} == {red}


def test_afterwards_everything_is_healthy_and_nobody_is_limited(demo: Demo) -> None:
    found = run_vigia("status", "--lab", LAB, "--json")
    assert (found.status, found.json["ok"], found.json["problems"]) == (0, True, [])
    assert len(found.json["services"]) == 3 * len(demo.lab.nodes) + 5
    assert {s["restarts"] for s in found.json["services"]} == {0}, "nothing ended meanwhile"
    eventually(lambda: not demo.query("vigia_isolation_limit_bytes_per_second"), "no limit to be in force")
    eventually(lambda: not demo.query("vigia_isolation_actions > 0"), "no action to be open")

    def firing() -> set[str]:
        """Alerts, but those of objectives, which look back over minutes in which there was a flood.

        That the host is busy is so where other work shares the processors.
        """
        alerts = demo.query('ALERTS{alertstate="firing",alertname!~".*BudgetBurn|VigiaHostBusy"}')
        return {f"{r['metric']['alertname']} of {r['metric'].get('port')}" for r in alerts}

    eventually(lambda: not firing(), lambda: f"no alert to fire; {firing()} do")


def test_steps_go_to_stderr_with_their_times(demo: Demo) -> None:
    lines = demo.run.stderr.splitlines()
    assert len(lines) >= 10
    assert all(re.match(r" *\d+\.\d\d s  \S", line) for line in lines), demo.run.stderr
    assert "\x1b" not in demo.run.stderr


def test_all_targets_are_up_and_nothing_is_unaccounted_for(demo: Demo) -> None:
    pages = 2 * 3 * len(demo.lab.nodes) + 6
    eventually(lambda: len(demo.query("up")) == pages, "two pages of every agent, and of the comparison")
    eventually(
        lambda: len(demo.query("up == 1")) == pages, lambda: f"all to be scraped; not {demo.query('up == 0')}"
    )
    mismatch = demo.query("vigia_probe_accounting_mismatch")
    assert len(mismatch) >= 20
    assert all(float(r["value"][1]) == 0 for r in mismatch)
    assert all(r["value"][1] == "1" for r in demo.query("vigia_exporter_collector_success"))


def test_agents_export_what_the_catalogue_declares(demo: Demo) -> None:
    parts = {"vigia-probe": "probe", "vigia-exporter": "exporter", "vigia-enforcer": "enforcer"}
    addresses = {agent_address(demo.lab, n.name, p): parts[p] for n in demo.lab.nodes for p in PORTS}
    addresses[stack_address(demo.lab, 9874)] = "agent"
    addresses[stack_address(demo.lab, 9875)] = "compare"
    for address, part in addresses.items():
        declared = {m.name: m for m in vigia_catalog.part_metrics(part)}
        exposition = httpx.get(f"http://{address}/metrics", trust_env=False, timeout=60).text
        for line in exposition.splitlines():
            match = re.match(r"(vigia_[a-z0-9_]+)(?:\{(.*)\})? ", line)
            if not match:
                continue
            metric = declared.get(match[1]) or declared.get(
                re.sub(r"_(bucket|sum|count|created)$", "", match[1])
            )
            assert metric is not None, f"{match[1]} of {address} is not in the catalogue"
            labels = set(re.findall(r'([a-z_]+)="', match[2] or "")) - {"le"}
            assert labels == set(metric.labels), line


def test_promtool_finds_nothing_in_the_metrics(demo: Demo) -> None:
    for part in PORTS:
        exposition = httpx.get(
            f"http://{agent_address(demo.lab, 'node1', part)}/metrics", trust_env=False, timeout=60
        ).text
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), part


def test_every_panel_has_data(demo: Demo) -> None:
    with panels_at(f"http://{stack_address(demo.lab, 9090)}") as panels:

        def missing() -> set[tuple[str, str]]:
            return {(uid, t) for uid, titles in panels.empty().items() for t in titles} - quiet()

        # Windows are recorded once a minute, and longer ones are made of those.
        eventually(
            lambda: not missing(),
            lambda: f"every panel that is not quiet while all is well to have data; {missing()} have none",
            240,
        )
        assert panels.variables_without_values() == []
        # Two queries of a table may see two scrapes.
        eventually(lambda: not panels.holes(), lambda: f"no cell to be empty; {panels.holes()[:5]} are", 60)
        empty = panels.empty()
        loud = {
            "Limits",
            "Lost where, and why",
            "Drops by reason",
            "Who hurts whom",
            "Policed by limits",
            "Actions by state",
            "Alerts received",
        }
        assert not loud & {t for titles in empty.values() for t in titles}, "the flood makes these loud"


def test_every_dashboard_is_rendered_by_grafana(demo: Demo, tmp_path: Path) -> None:
    """Screenshots go where VIGIA_SCREENSHOTS says, for the docs."""
    why = grafanakit.missing()
    if why:
        pytest.skip(why)
    pictures = Path(os.environ.get("VIGIA_SCREENSHOTS") or tmp_path)
    pictures.mkdir(parents=True, exist_ok=True)
    folder = tmp_path / "grafana"
    folder.mkdir()
    with grafanakit.grafana(folder, f"http://{stack_address(demo.lab, 9090)}") as server:
        seen = grafanakit.look(server, list(PAGES), pictures)
        assert not server.errors()
    assert not {uid: s.problems for uid, s in seen.items() if s.problems}
    assert all(s.queries and s.picture.stat().st_size for s in seen.values())


def test_red_is_named_as_who_hurt_blue(demo: Demo) -> None:
    """By what is known of the flood, with its time; and blue is never named as who hurt red, nor is anybody else."""
    (begin,) = (i["at"] for i in demo.report["timeline"] if i["event"] == "flood_start")
    began = datetime.fromisoformat(begin).timestamp()

    def named() -> dict[tuple[str, str], dict[str, Any]]:
        verdicts = {(i["tenant"], i["offender"]): i for i in comparisons(demo)["interference"]}
        assert {offender for _, offender in verdicts} <= {"red", None}, verdicts
        assert {victim for victim, offender in verdicts if offender} <= {"blue"}, verdicts
        return verdicts

    eventually(lambda: ("blue", "red") in named(), lambda: f"red to be named; {named()} are")
    found = named()[("blue", "red")]
    assert found["verdict"] == "attributed"
    limits = demo.query("max_over_time(vigia_isolation_limit_bytes_per_second[10m])")
    assert set(found["known"]["ports"]) == {r["metric"]["port"] for r in limits}
    assert {"flood", "contract"} <= {e["kind"] for e in found["known"]["evidence"]}
    assert began - 10 <= found["known"]["begin"] <= found["known"]["end"] <= began + 60
    taken = 'vigia_isolation_taken_bytes_total{tenant="blue",taker="red",direction="from_tenant",node="node1"} > 0'
    # The link is full for a moment only where the fast loop is quick: it asks the source's node to hold red.
    held = 'vigia_enforcer_notices_total{node="node1",kind="ack",outcome="sent"} > 0'
    eventually(
        lambda: demo.query(f"{taken} or {held}"),
        "the enforcer to have counted what red took from blue, or to have held red before",
    )
    shown = demo.query('vigia_compare_interference_verdict{tenant="blue",verdict="attributed"}')
    assert {r["metric"]["offender"] for r in shown} == {"red"}


def test_the_comparison_covers_every_path(demo: Demo) -> None:
    def rtt() -> set[str]:
        return {
            p["path"] for g in comparisons(demo)["comparisons"] if g["metric"] == "rtt" for p in g["paths"]
        }

    eventually(lambda: rtt() == {key[0] for key in PATHS}, "every path to be compared", 120)


def test_bulk_tests_of_every_path_take_turns(demo: Demo) -> None:
    """Every path has a test at every rate, by 2, 4 and 8 machines; a part of the rotation of 15 minutes is waited
    for, in which every test that had its turn has measured something."""
    names = ("path", "src", "rate", "machines")

    def of(expression: str) -> set[tuple[str, ...]]:
        return {tuple(r["metric"][n] for n in names) for r in demo.query(expression)}

    plain, rates = ("direct", *OVERLAYS), ("100Mbit", "150Mbit", "200Mbit")
    across = {(p, n, m) for p in plain for n in NODES for m in ("2", "4", "8")}
    within = {(f"{p}-local", n, m) for p in plain for n in NODES for m in ("2", "4")}
    tests = {(p, n, r, m) for p, n, m in across | within for r in ("unlimited", *rates)}
    tests |= {(p, n, "unlimited", "2") for p in STATIONS for n in NODES}
    assert of('vigia_bulk_runs_total{result="completed"}') == tests

    def measured() -> set[tuple[str, ...]]:
        return of("vigia_bulk_goodput_bytes_per_second > 0")

    def enough() -> bool:
        found = measured()
        groups = {(path, src, rate == "unlimited", machines) for path, src, rate, machines in found}
        return all(len([g for g in groups if g[1] == n]) >= 8 for n in NODES)

    eventually(enough, lambda: f"8 of a node's 43 bulk tests; {sorted(measured())} have been run", 600)
    assert measured() <= tests
    # A turn measures all three rates, but for those that a tenant's burning objective or the link's other end kept
    # from running, which is counted.
    udp = {(path, src, machines) for path, src, rate, machines in measured() if rate == rates[0]}

    def lacking() -> set[tuple[str, ...]]:
        refused = of('vigia_bulk_runs_total{protocol="udp", result!="completed"} > 0')
        cut = {(path, src, machines) for path, src, _, machines in refused}
        return {(p, n, r, m) for p, n, m in udp - cut for r in rates} - measured()

    eventually(lambda: not lacking(), lambda: f"results of {sorted(lacking())}", 60)
    assert all(float(r["value"][1]) >= 0 for r in demo.query("vigia_bulk_budget_remaining_bytes"))


def test_openflow_rules_do_what_the_names_of_their_paths_say(demo: Demo) -> None:
    """Every rule for probes has forwarded some, on both nodes: none went another way."""
    for node in NODES:
        directory = demo.lab.layout.ovs(node)
        done = subprocess.run(
            ["ovs-ofctl", "--protocols=OpenFlow14", "dump-flows", "br-of"],
            env={**os.environ, "OVS_RUNDIR": str(directory)},
            capture_output=True,
            text=True,
            check=True,
        )
        rules = [line for line in done.stdout.splitlines() if "priority=1000" in line]
        assert len(rules) == 3 * 2 + 7 * 4, "probes and answers look alike without UDP ports"
        assert not [line for line in rules if " n_packets=0," in line]
    tos = demo.query('vigia_probe_dscp_rewritten_total{direction="forward"} > 0')
    assert {r["metric"]["path"] for r in tos} == {"ovs-openflow-set-tos"}


def test_the_speed_up_of_openflow_and_the_cost_of_elements_have_values(demo: Demo) -> None:
    def speedups() -> set[str]:
        return {r["metric"]["path"] for r in demo.query("vigia_compare_speedup_ratio")}

    def elements() -> set[tuple[str, str]]:
        found = demo.query('vigia_compare_element_cost_seconds{probe="stamp-128"}')
        return {(r["metric"]["element"], r["metric"]["path"]) for r in found}

    esp = "kernel" if ipsec.in_kernel() else "userspace"
    wanted = {(f"security ipsec-{esp}", f"ipsec-{p}") for p in ("macvlan", "ovs-vxlan")}
    wanted |= {("dataplane macvlan", "macvlan"), ("overlay ovs-vxlan", "ovs-vxlan")}
    eventually(lambda: speedups() == set(OPENFLOW), lambda: f"speed-ups, of {speedups()}", 240)
    eventually(lambda: wanted <= elements(), lambda: f"costs, of {wanted - elements()}", 240)


def test_the_comparison_says_what_the_raw_data_of_the_period_say(demo: Demo) -> None:
    """Verdicts point where the bucket counts of the same windows do; every cell is decided, or says how far it is."""
    url = f"http://{stack_address(demo.lab, 9090)}"

    def seen() -> tuple[dict[str, Any], list[dict[str, Any]], dict[rawkit.Key, rawkit.Floats]]:
        found = comparisons(demo)
        cells = [c for c in found["comparisons"] if c["metric"] == "rtt"]
        return found, cells, rawkit.medians(url, "vigia_probe_rtt_seconds", found["end"], WINDOW, WINDOWS)

    lacking: set[rawkit.Key] = set()

    def whole() -> Any:
        _, cells, raw = now = seen()
        compared = {(cell["probe"], p["path"]) for cell in cells for p in cell["paths"]}
        lacking.clear()
        lacking.update(key for key in compared if key not in raw or np.isnan(raw[key]).all())
        return None if lacking else now

    # The comparison counts a path from its first window on, of which raw data may have the end alone.
    found, cells, raw = eventually(whole, lambda: f"a whole window of {lacking}", 180)
    judged = 0
    for cell in cells:
        usual = {p["path"]: float(np.nanmedian(raw[(cell["probe"], p["path"])])) for p in cell["paths"]}
        for path in cell["paths"]:
            # Buckets of all pairs of nodes together here, the mean of the pairs' medians there: of a window or a
            # few, whose interval says that it misses as often as not, these are twice as far apart, where one
            # direction is slower.
            wide = (0.67, 1.5) if path["confidence"] >= CERTAIN else (0.5, 2.0)
            low, high = (f * limit for f, limit in zip(wide, path["interval"], strict=True))
            assert low <= usual[path["path"]] <= high, (cell["probe"], path)
        assert "direct" not in {r["path"] for r in cell["ranking"]}, "the underlay is no contestant"
        assert cell["decided"] or cell["said"].startswith(("not known", "nothing competes")), cell["said"]
        for pair in cell["pairs"]:
            assert (pair["hosts"] > 0 and pair["windows"] > 0) or pair["verdict"] == "no common hosts", pair
            better = {"costs": pair["b"], "saves": pair["a"]}.get(pair["verdict"], pair["verdict"])
            if better in usual:
                other = pair["b"] if better == pair["a"] else pair["a"]
                assert usual[better] < 1.1 * usual[other], (cell["probe"], pair)
                assert pair["evidence_since"] < pair["since"] <= found["at"]
                judged += 1
    assert judged, "an overlay costs more than the underlay, which takes minutes to see"


def test_histograms_say_what_the_packets_say(demo: Demo) -> None:
    """The records of the last minute, packet by packet, beside the counts that the comparison reads."""
    url = f"http://{stack_address(demo.lab, 9090)}"
    for node in demo.lab.nodes:
        address = agent_address(demo.lab, node.name, "vigia-probe")
        records = rawkit.packets(address, tenant="_infra", probe="stamp-64")
        assert records, node.name
        for path, rows in records.items():
            end = rows[-1, 0] - 5.0
            selector = f'{{tenant="_infra",probe="stamp-64",path="{path}",src="{node.name}"}}[40s]'
            query = f"histogram_quantile(0.5, increase(vigia_probe_rtt_seconds{selector}))"
            (answer,) = httpx.get(
                f"{url}/api/v1/query",
                params={"query": query, "time": f"{end:.3f}"},
                trust_env=False,
                timeout=60,
            ).json()["data"]["result"]
            within = rows[(rows[:, 0] > end - 40.0) & (rows[:, 0] <= end), 1]
            assert within.size > 300, (node.name, path)
            low, high = np.quantile(within, [0.2, 0.8])  # the edges of the period differ by a scrape
            assert low / rawkit.BUCKET <= float(answer["value"][1]) <= high * rawkit.BUCKET, (node.name, path)


def test_the_audit_log_is_whole(demo: Demo) -> None:
    agent = Path(run_vigia.__globals__["VIGIA"]).with_name("isolation-agent")
    config = demo.where.directory / "isolation-agent.yaml"
    done = subprocess.run(
        [agent, "--config", config, "audit", "verify"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_secret_is_in_a_log_or_readable_by_others(demo: Demo) -> None:
    tokens = [demo.where.webhook_token, demo.where.api_token, demo.lab.layout.token_file]
    for token in tokens:
        assert token.stat().st_mode & 0o077 == 0
    for log in demo.where.logs.iterdir():
        text = log.read_text(errors="replace")
        assert not any(t.read_text().strip() in text for t in tokens), log


def test_the_stack_is_supervised(demo: Demo) -> None:
    def pid() -> int | None:
        services = json.loads(demo.where.status.read_text())["services"]
        found: int | None = services["vigia-probe@node1"]["pid"]
        return found

    first = pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: pid() not in (None, first), "the probe to be started again")
    eventually(lambda: run_vigia("stack", "status", "--lab", LAB).status == 0, "the stack to work")


def test_again_on_another_path_and_already_up(demo: Demo) -> None:
    again = run_vigia("demo", "--topology", str(demo.file), "--path", "ovs-vxlan", timeout=1500)
    assert again.status == 0, again.stderr
    assert "already up" in again.stdout
    for text in (
        "What the paths give",
        "What happened",
        "What blue got",
        "node1-red-210",
        "released on evidence",
    ):
        assert text in again.stdout
    phases = re.findall(r"^  (before|flood.*?|after)  .* (\S+) %$", again.stdout, re.MULTILINE)
    lost = {name: float(percent) / 100 for name, percent in phases}
    quiet_lost = max(lost["before"], lost["after"])  # in user space a transfer costs its tenant more
    assert lost["flood, limited"] <= quiet_lost + LOST_BESIDE_TCP, again.stdout
    kept = re.search(r"it had (\d+)% \(first second of the flood\), (\d+)% \(flood, limited\)", again.stdout)
    assert kept, again.stdout
    in_user_space = state.running(LAB).datapath == "userspace"
    assert in_user_space or int(kept[1]) >= 90, (
        "in user space the switch itself is short of a core until the limit"
    )
    assert int(kept[2]) >= 95
    assert run_vigia("lab", "status", "--lab", LAB).status == 0


def test_a_lab_below_a_running_stack_is_not_pulled_away(demo: Demo) -> None:
    refused = run_vigia("lab", "down", "--lab", LAB)
    assert refused.status == 1
    assert "vigia down --lab e2e" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_path_without_the_offender_is_refused_before_anything_is_made() -> None:
    before = Machine.now("demo")
    refused = run_vigia("demo", "--path", "direct")
    assert (refused.status, refused.stdout) == (2, "")
    assert "has no endpoint of tenant red; it has them on" in refused.stderr
    assert Machine.now("demo") == before


def test_a_busy_port_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    need_root()
    file = own_topology(tmp_path, "e2b", "127.80.0.0/24")
    file.write_text(file.read_text().replace("stack_address: 127.0.0.1", "stack_address: 127.80.0.250"))
    before = Machine.now("e2b")
    try:
        with socket.socket() as holder:
            holder.bind(("127.80.0.250", 9090))
            holder.listen()
            refused = run_vigia("demo", "--topology", str(file))
        assert refused.status == 1
        assert "127.80.0.250:9090 is in use, and prometheus needs it" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert not Places(model.resolve(topology.load(file)).layout).directory.exists()
    finally:
        assert run_vigia("down", "--lab", "e2b").status == 0
    assert Machine.now("e2b") == before
