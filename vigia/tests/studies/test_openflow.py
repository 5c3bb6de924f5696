"""E2: rule sets as they are written, how many rules a table holds, and what the report says of known data."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from vigia.campaign.model import Campaign, Factor, Settings
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import openflow
from vigia.lab.model import Lab
from vigia.report.data import Data
from vigia.report.document import Document, Table
from vigia.studies import catalogue
from vigia.studies.openflow import packets, report, rulesets
from vigia.studies.openflow.measurement import MEASUREMENT, fitting
from vigia.studies.openflow.rulesets import MATCHES, REWRITES, SwitchedFlow

# --- rules ---


@pytest.fixture
def flow(pairs: Lab) -> SwitchedFlow:
    client, server = pairs.endpoint("ovs1", "red", "ovs-vxlan"), pairs.endpoint("ovs2", "red", "ovs-vxlan")
    return SwitchedFlow(client, server, 5, 6, 20862, 862)


def there_and_back(match: str, rewrite: str, flow: SwitchedFlow) -> tuple[str, str]:
    made = rulesets.rules(match, rulesets.rewrite(rewrite, flow), flow)
    there, back = (r for r in made if r.startswith("priority=1000,"))
    return there, back


@pytest.mark.parametrize("match", [m for m in MATCHES if m != "normal"])
@pytest.mark.parametrize("rewrite", REWRITES)
def test_every_rule_set_leads_there_and_back(match: str, rewrite: str, flow: SwitchedFlow) -> None:
    there, back = there_and_back(match, rewrite, flow)
    assert there.endswith("output:6")
    assert back.endswith("output:5")
    arp = [r for r in rulesets.rules(match, rulesets.rewrite(rewrite, flow), flow) if ",arp," in r]
    assert [r.partition("actions=")[2] for r in arp] == ["output:6", "output:5"]


def test_normal_is_the_switchs_own_learning(flow: SwitchedFlow) -> None:
    assert rulesets.rules("normal", rulesets.rewrite("none", flow), flow) == ["priority=0,actions=NORMAL"]


def test_a_match_looks_at_what_it_is_called_after(flow: SwitchedFlow) -> None:
    a, b = flow.client, flow.server
    assert there_and_back("in_port", "none", flow)[0] == "priority=1000,in_port=5,actions=output:6"
    assert f"dl_src={a.mac},dl_dst={b.mac},actions" in there_and_back("mac", "none", flow)[0]
    assert (
        f"dl_type=0x0800,nw_src={b.address.ip},nw_dst={a.address.ip},actions"
        in there_and_back("ip", "none", flow)[1]
    )
    assert "tp_src=20862,tp_dst=862,actions" in there_and_back("udp_port", "none", flow)[0]
    exact = there_and_back("exact", "none", flow)[0]
    for field in (
        "in_port=5",
        "dl_src=",
        "dl_dst=",
        "dl_vlan=0xffff",
        "udp",
        "nw_src=",
        "nw_dst=",
        "tp_src=",
        "nw_tos=0",
    ):
        assert field in exact


def test_what_is_rewritten_is_matched_as_it_is_sent_and_put_back(flow: SwitchedFlow) -> None:
    alias = str(flow.server.address.network.broadcast_address - 1)
    assert flow.alias == alias
    assert ipaddress.ip_address(alias) in flow.server.address.network
    there, back = there_and_back("udp_port", "ip", flow)
    assert f"nw_dst={alias}," in there
    assert f"actions=mod_nw_dst:{flow.server.address.ip},output:6" in there
    assert f"actions=mod_nw_src:{alias},output:5" in back
    there, back = there_and_back("udp_port", "udp_port", flow)
    assert f"tp_dst={rulesets.ALIAS_PORT},actions=mod_tp_dst:862,output:6" in there
    assert f"tp_dst=20862,actions=mod_tp_src:{rulesets.ALIAS_PORT},output:5" in back
    assert f"dl_dst={rulesets.ALIAS_MAC}" in there_and_back("mac", "mac", flow)[0]


def test_rules_that_fill_a_table_are_each_of_their_own() -> None:
    made = list(rulesets.filler(200_000))
    assert len(set(made)) == 200_000
    for rule in (made[0], made[70_000], made[-1]):
        found = dict(part.split("=", 1) for part in rule.split(",") if "=" in part)
        assert ipaddress.ip_address(found["nw_src"]) in ipaddress.ip_network("172.16.0.0/12")
        assert found["actions"] == "drop"
        assert int(found["priority"]) < 1000, "the flow's own rules come first"
    assert list(rulesets.filler(0)) == []


def test_a_tag_is_put_back_where_it_was() -> None:
    """The kernel takes an 802.1Q tag out of the frame; tpacket_auxdata has it."""
    frame = bytes(range(12)) + b"\x08\x00payload"
    tagged = b"".join(
        (
            (1 << 4).to_bytes(4, "little"),
            bytes(12),
            (0xA005).to_bytes(2, "little"),
            (0x8100).to_bytes(2, "little"),
        )
    )
    # status, len, snaplen: 4 bytes each; mac, net: 2 each; then the tag and its protocol.
    data = packets._with_tag(frame, [(263, 8, tagged)])
    assert data == frame[:12] + bytes.fromhex("8100a005") + frame[12:]
    untagged = bytes(20)
    assert packets._with_tag(frame, [(263, 8, untagged)]) == frame
    assert packets._with_tag(frame, [(1, 2, tagged), (263, 8, b"short")]) == frame


# --- measuring ---

CELL: Mapping[str, Factor] = {
    "path": "direct",
    "match": "none",
    "size": 256,
    "rules": "none",
    "rewrite": "none",
}
SETTINGS = Settings.model_validate({"probes": 20, "interval": "5ms", "table": 50_000})


def test_without_a_switch_only_packets_are_timed(answering: Callable[..., Any]) -> None:
    here = answering()
    series = {s.metric: s.values for s in MEASUREMENT.measure(CELL, SETTINGS, here)}
    assert series == {"rtt": [0.001, 0.002], "rtt_application": [0.0011, 0.0021]}
    assert here.asked == [("direct", "cross-node", 2)]
    (probe,) = here.host.jobs
    assert (probe.kind, probe.count, probe.size, probe.interval) == ("probe", 20, 256, 0.005)
    assert (str(probe.source), probe.source_port, str(probe.address), probe.port) == (
        "10.0.0.1",
        20862,
        "10.0.1.1",
        862,
    )


def test_rules_are_for_switches_of_the_lab(answering: Callable[..., Any]) -> None:
    here = answering()
    with pytest.raises(VigiaError, match=r"rules are installed in the lab only; .* write match: none"):
        MEASUREMENT.measure({**CELL, "match": "exact", "rules": "one"}, SETTINGS, here)
    assert here.host.jobs == []


def test_a_full_table_takes_time_to_fill() -> None:
    one, full = (MEASUREMENT.estimate({**CELL, "rules": r}, SETTINGS) for r in ("one", "full"))
    assert one.bytes == full.bytes == 20 * 2 * (256 + 42)
    assert full.seconds > one.seconds + 5


def test_tables_of_a_size_take_their_time_and_no_more() -> None:
    thousand, many = (MEASUREMENT.estimate({**CELL, "rules": r}, SETTINGS) for r in (1000, "100000"))
    assert many.seconds - thousand.seconds == pytest.approx(99_000 * 1.5e-4)
    assert {"1000", "10000", "100000", "one", "full", "none"} == set(MEASUREMENT.factors["rules"] or ())


class BoundedTable:
    """A switch that refuses more than so many rules; a refused change leaves what was there."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.held = 0
        self.installed: list[int] = []

    def install(self, switch: object, rules: list[str]) -> None:
        self.installed.append(len(rules))
        if len(rules) > self.bound:
            raise commands.CommandError(["controller"], "exit status 1", "table is full")
        self.held = len(rules)

    def count(self, switch: object) -> int:
        return self.held


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], BoundedTable]:
    def make(bound: int) -> BoundedTable:
        table = BoundedTable(bound)
        monkeypatch.setattr(openflow, "install", table.install)
        monkeypatch.setattr(openflow, "count", table.count)
        return table

    return make


@pytest.mark.parametrize("bound", [1200, 2048, 3999, 40_000, 65_536])
def test_the_search_ends_close_below_what_is_refused(
    bounded: Callable[[int], BoundedTable], bound: int
) -> None:
    table = bounded(bound)
    found = fitting(None, ["a", "b"], 1_000_000)  # type: ignore[arg-type]
    assert bound * 0.98 - 1 <= found <= bound
    assert table.held == found, "so many are there when packets are timed"
    assert len(table.installed) < 30


@pytest.mark.parametrize("most", [1000, 50_000, 60_000])
def test_a_table_without_a_bound_ends_at_what_is_asked(
    bounded: Callable[[int], BoundedTable], most: int
) -> None:
    table = bounded(10**9)
    assert fitting(None, ["a"], most) == table.held == most  # type: ignore[arg-type]


def test_a_table_that_does_not_take_the_flow_itself(bounded: Callable[[int], BoundedTable]) -> None:
    bounded(1)
    with pytest.raises(commands.CommandError, match="table is full"):
        fitting(None, ["a", "b"], 5000)  # type: ignore[arg-type]


# --- reporting ---


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e2"]
    return found


TIMES = 14


def delays(
    match: str,
    median: float,
    spread: float,
    *,
    rules: str | int = "one",
    size: int = 64,
    rewrite: str = "none",
    more: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    rng = np.random.default_rng(len(match) + size + len(str(rules)))
    path = "direct" if match == "none" else "ovs-openflow"
    held = "none" if match == "none" else rules
    cell = {"path": path, "match": match, "size": size, "rules": held, "rewrite": rewrite}
    for _ in range(TIMES):
        middle = median * (1 + rng.uniform(-0.005, 0.005))
        rtt = middle + np.linspace(-spread, spread, 41)
        yield cell, {"rtt": rtt, "rtt_application": rtt, **(more or {})}


UNITS = {"rtt": "s", "rtt_application": "s", "rules": "rules"}


def table(document: Document, caption: str) -> Table:
    (found,) = [t for s in document.sections for t in s.tables if t.caption.startswith(caption)]
    return found


def test_a_switch_in_software_that_is_slower_under_rules(data: Callable[..., Data]) -> None:
    rows = [
        *delays("none", 30e-6, 2e-6),
        *delays("normal", 500e-6, 60e-6),
        *delays("exact", 1000e-6, 60e-6),
        *delays("exact", 1100e-6, 60e-6, rules="full", more={"rules": [4000.0]}),
    ]
    document = report.build(campaign(), data(UNITS, *rows))
    assert document.answer.startswith(
        "With 64-byte packets OpenFlow (exact match) is slower than normal mode, delay × 2.0"
    )
    assert document.answer.endswith("; the switch forwards in software.")
    where = {r[0]: r[1] for r in table(document, "Where the switch forwards").rows}
    assert where == {"exact": "software", "normal": "software"}
    of_size = {r[0]: r for r in table(document, "Round trip by the number of rules").rows}
    means = {name: float(row[2].split()[0]) for name, row in of_size.items()}
    assert means == {"one": pytest.approx(1.0, rel=0.01), "full": pytest.approx(1.1, rel=0.01)}
    assert (
        "4000 rules were held in a full table; more were refused."
        in table(document, "Round trip by the").note
    )
    (speed,) = table(document, "Speed-up").rows
    assert float(speed[1].split()[0]) == pytest.approx(0.5, rel=0.02)
    assert speed[1].endswith("(slower than)")


def test_a_pipeline_that_rules_do_not_slow_down(data: Callable[..., Data]) -> None:
    rows = [*delays("none", 30e-6, 1e-6), *delays("normal", 36e-6, 1e-6), *delays("exact", 36e-6, 1e-6)]
    document = report.build(campaign(), data(UNITS, *rows))
    assert "OpenFlow (exact match) is equivalent to normal mode, delay × 1.00" in document.answer
    assert document.answer.endswith("the switch forwards in hardware.")
    assert document.summary.agreement.startswith("agrees: all 1 decided comparisons are equivalent")


@pytest.mark.parametrize(
    ("growth", "said"),
    [
        (1.1, "Delay grows with the table, × 1.10 ["),
        (1.0, "Delay does not depend on the number of rules, × 1.00 ["),
    ],
)
def test_a_trend_over_sizes_of_the_table(data: Callable[..., Data], growth: float, said: str) -> None:
    """Ten percent for each decade, or none."""
    sizes = (("one", 0), (1000, 3), (10_000, 4), (100_000, 5))
    rows = [
        row for rules, decade in sizes for row in delays("exact", 500e-6 * growth**decade, 9e-6, rules=rules)
    ]
    document = report.build(campaign(), data(UNITS, *rows))
    assert document.answer.startswith(said)
    assert said in document.sections[2].paragraphs[0]
    shown = [r[0] for r in table(document, "Round trip by the number of rules").rows]
    assert shown == ["one", "1000", "10000", "100000"]


def test_distributions_are_drawn_for_every_size(data: Callable[..., Data]) -> None:
    rows = [
        row
        for size in (64, 128, 256)
        for m in ("normal", "exact")
        for row in delays(m, 5e-4, 1e-5, size=size)
    ]
    document = report.build(campaign(), data(UNITS, *rows))
    captions = [f.caption for s in document.sections for f in s.figures]
    for size in (64, 128, 256):
        assert f"Round trips of {size}-byte packets" in captions
        assert f"Differences of neighbouring round trips, {size} bytes" in captions
    assert "published values beside them" in captions[0]
    assert {r[1] for r in table(document, "Round trip per kind of match").rows} == {"64", "128", "256"}


def test_rewriting_is_compared_with_none(data: Callable[..., Data]) -> None:
    rows = [*delays("udp_port", 5e-4, 1e-5), *delays("udp_port", 8e-4, 1e-5, rewrite="ip")]
    document = report.build(campaign(), data(UNITS, *rows))
    (said,) = [line for line in document.summary.found if line.startswith("Rewriting ")]
    assert said.startswith("Rewriting ip: delay × 1.6")
    assert "none wins, ip loses" in said


def test_without_the_path_beside_the_switch_nothing_is_said_of_where(data: Callable[..., Data]) -> None:
    rows = [*delays("normal", 500e-6, 60e-6), *delays("exact", 1000e-6, 60e-6)]
    document = report.build(campaign(), data(UNITS, *rows))
    assert document.answer.endswith("where it forwards is undecided.")
    reasons = {r[-1] for r in table(document, "Where the switch forwards").rows}
    assert reasons == {"the path without the switch was not measured often enough"}


def test_what_the_switch_refuses_is_called_so(data: Callable[..., Data]) -> None:
    good = {"path": "ovs-openflow", "match": "udp_port", "size": 64, "rules": "one", "rewrite": "none"}
    rows = [
        *delays("exact", 500e-6, 10e-6),
        *((good, {"rtt": [5e-4], "supported": [1.0]}) for _ in range(3)),
        *(({**good, "rewrite": "ip_tos"}, {"supported": [0.0]}) for _ in range(3)),
    ]
    document = report.build(campaign(), data(UNITS, *rows))
    shown = {r[0]: (r[1], r[2]) for r in table(document, "Mean round trip while a header field").rows}
    assert shown["ip_tos"] == ("0", "unsupported")
    assert shown["none"][1].startswith("500")


def test_too_few_repetitions_decide_nothing(data: Callable[..., Data]) -> None:
    rows = [row for m in ("normal", "exact") for row in list(delays(m, 5e-4, 1e-5))[:2]]
    document = report.build(campaign(), data(UNITS, *rows))
    assert "beside normal mode: too few repetitions: 2, and 8 are needed" in document.answer
    assert document.summary.confidence == "none: nothing is decided; low on where it forwards"
    (cell, samples), *_ = delays("none", 5e-4, 1e-5)
    document = report.build(campaign(), data(UNITS, (cell, samples)))
    assert document.answer == "There is too little data for an answer."
