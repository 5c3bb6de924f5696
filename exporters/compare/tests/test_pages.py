"""What the pages say of each state of things, what they refuse, and what they send with every answer."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from vigia_compare.evaluation import Evaluation, PathSummary
from vigia_compare.findings import EQUIVALENT, OPEN, Finding
from vigia_compare.looks import ALARMS_HOLD, HOLD
from vigia_compare.moments import moment
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.site import ALARMS, MOST, STATE
from vigia_compare.standings import standings
from vigia_compare.timeline import MOST_EVENTS, QUESTIONS
from vigia_compare.web import frame
from vigia_compare.web.comparison import Banner, Wanted, comparison
from vigia_prometheus import Sample, Series, Unavailable
from vigia_statistics import median_interval
from vigia_text import numbers

from .made import BASE, END
from .test_web import ADDRESSES, NOW, Site, _mesh, _Tags, evaluated

CELL = Cell("rtt", "remote", "", "stamp-64")
LOSS, P99 = "path:vigia_probe_loss:ratio_rate1m", "path:vigia_probe_rtt_seconds:p99_rate1m"
HIDDEN = '<span class="visually-hidden">'
PAGES = (*ADDRESSES, "/v1/comparisons", "/v1/comparisons.txt", "/v1/site", "/assets/live.js")


@pytest.fixture
def site() -> Site:
    return Site()


def section(text: str, name: str) -> str:
    """A part of a page, by its id."""
    begin = text.index(f'<section id="{name}"')
    return text[begin : text.index("</section>", begin)]


def row(text: str, header: str) -> str:
    """A line of a table, by its header."""
    return next(r for r in re.findall(r"<tr>.*?</tr>", text, re.S) if f'<th scope="row">{header}' in r)


# The answer


def pair(a: str, b: str, verdict: str, **more: Any) -> Finding:
    return Finding(CELL, a, b, Kind.CONTEST, verdict, **more)


def banner(*pairs: Finding) -> Banner:
    names = sorted({n for p in pairs for n in (p.a, p.b)})
    paths = [PathSummary(CELL, n, BASE.size, median_interval(BASE)) for n in names]
    found = Evaluation(at=END, findings=pairs, standings=standings(pairs), paths=paths)
    (shown,) = comparison(found, Wanted()).banners
    return shown


def test_who_wins_is_ahead_of_the_second_and_since_the_last_verdict() -> None:
    shown = banner(
        pair("a", "b", "a", since=END - 600.0, shift=(-30e-6, -20e-6, -10e-6)),
        pair("a", "c", "a", since=END - 60.0, shift=(-90e-6, -80e-6, -70e-6)),
        pair("b", "c", "b", since=END - 30.0),
    )
    assert (shown.state, shown.answer) == ("won", "a")
    assert shown.by == "by 20.0 [10.0, 30.0] µs over b", "of the second, not of the last"
    assert shown.since == END - 60.0, "since it is better than all, whatever the others do"


def test_a_winner_is_ahead_whichever_side_of_the_pair_it_is_on() -> None:
    shown = banner(pair("a", "b", "b", shift=(10e-6, 20e-6, 30e-6)))
    assert (shown.answer, shown.by) == ("b", "by 20.0 [10.0, 30.0] µs over a")
    assert banner(pair("a", "b", "b")).by == "over a", "how far is not known"


def test_equal_paths_are_one_answer() -> None:
    shown = banner(pair("a", "b", EQUIVALENT, since=END - 90.0))
    assert (shown.state, shown.answer, shown.since) == ("equal", "a and b are equivalent", END - 90.0)


def test_what_is_open_says_how_far_it_is() -> None:
    shown = banner(pair("a", "b", OPEN, e_value=math.sqrt(20.0), needed=20.0))
    assert (shown.state, shown.progress) == ("open", pytest.approx(0.5))
    assert shown.answer.startswith("not known yet: ")


def test_what_competes_is_shown_first() -> None:
    """A probe of more paths, none of which competes, answers nothing."""
    other = Cell("rtt", "remote", "", "stamp-128")
    pairs = [pair("gre", "vxlan", "gre")]
    names = [(CELL, n) for n in ("gre", "vxlan")] + [(other, n) for n in ("macvlan", "ipsec", "openflow")]
    paths = [PathSummary(cell, n, BASE.size, median_interval(BASE)) for cell, n in names]
    found = Evaluation(at=END, findings=pairs, standings=standings(pairs), paths=paths)
    shown = comparison(found, Wanted())
    assert (shown.wanted.probe, shown.probes) == ("stamp-64", ["stamp-128", "stamp-64"])
    assert [b.answer for b in shown.banners] == ["gre"]
    assert comparison(found, Wanted(probe="stamp-128")).wanted.probe == "stamp-128"


def test_a_path_alone_competes_with_nothing(site: Site) -> None:
    site.found = evaluated(rtt={"gre": BASE})
    (shown,) = comparison(site.found, Wanted()).banners
    assert (shown.state, shown.answer) == ("alone", "nothing competes")
    assert "Nothing competes: RTT (stamp-64)." in section(site.page("/"), "banners")


def test_the_page_of_equal_paths_marks_them_all(site: Site) -> None:
    found = evaluated(rtt={"gre": BASE, "vxlan": BASE})
    pairs = [replace(f, verdict=EQUIVALENT, since=END - 120.0) for f in found.findings]
    site.found = replace(found, findings=pairs, standings=standings(pairs))
    text = site.page("/")
    assert '<li class="equal">' in text and "gre and vxlan are equivalent" in section(text, "banners")
    assert section(text, "heat").count(f"{HIDDEN} equal</span>") == 2
    assert "Not known yet" not in text


def test_the_page_of_open_pairs_shows_the_share_of_the_evidence(site: Site) -> None:
    found = evaluated(rtt={"gre": BASE, "vxlan": BASE})
    pairs = [replace(f, verdict=OPEN, e_value=19.99, e_equivalent=0.0, needed=20.0) for f in found.findings]
    site.found = replace(found, findings=pairs, standings=standings(pairs))
    text = site.page("/")
    assert "Nothing is decided yet." in section(text, "banners")
    told = section(text, "open")
    assert 'aria-label="RTT, share of the evidence"></progress> 99 %' in told, "never rounded up to all"
    assert "not known yet: " not in told and "★<" not in text


# The table of paths and measures


def test_the_best_is_marked_and_the_underlay_is_apart(site: Site) -> None:
    site.found = evaluated(rtt={"gre": BASE, "vxlan": 3.0 * BASE, "direct": BASE / 2.0})
    told = section(site.page("/"), "heat")
    assert re.search(rf"★{HIDDEN} wins</span>", row(told, "gre")) and "★<" not in row(told, "vxlan")
    assert "×3" in row(told, "vxlan") and 'class="num h3"' in row(told, "vxlan")
    reference = told[told.index('<tbody class="reference">') :]
    assert "The underlay, for reference" in reference and "direct" in reference
    assert "×" not in row(reference, "direct") and 'class="num "' in row(reference, "direct")


def test_what_is_not_measured_is_a_dash_and_words(site: Site) -> None:
    site.found = evaluated(rtt={"gre": BASE, "vxlan": 3.0 * BASE}, jitter={"gre": BASE / 10.0})
    told = section(site.page("/"), "heat")
    assert f"{numbers.MISSING}</span>{HIDDEN}not measured</span>" in row(told, "vxlan")
    assert numbers.MISSING not in row(told, "gre")


def test_a_path_whose_loss_is_more_is_hotter_by_the_difference() -> None:
    base = {"gre": np.zeros(60), "vxlan": np.full(60, 0.03)}
    rows = {r.path: r.values[0] for r in comparison(evaluated(loss=base), Wanted()).rows["competing"]}
    assert (rows["gre"].heat, rows["vxlan"].heat) == ("h0", "h2")
    assert rows["vxlan"].times == "", "of nothing there is no multiple"


def test_nothing_measured_is_said(site: Site) -> None:
    site.found = Evaluation(at=END)
    text = site.page("/")
    assert "Nothing is measured" in text and "<table" not in text and "<svg" not in text


def test_evidence_that_was_lost_is_said() -> None:
    text = Site(lost="cannot read <state>").page("/")
    assert "Evidence of before this program was started is not there: cannot read &lt;state&gt;." in text


# Tenants


def bought(site: Site, tenant: str, sent: float, guarantee: float = 0.0) -> None:
    site.answer(STATE, "rate", sent, tenant=tenant, direction="from_tenant")
    site.answer(STATE, "rate", sent / 2.0, tenant=tenant, direction="to_tenant")
    if guarantee:
        site.answer(STATE, "bought", guarantee, tenant=tenant, direction="from_tenant")


def test_a_tenant_gets_what_it_bought(site: Site) -> None:
    bought(site, "blue", 1e6, 4e6)
    blue = row(site.page("/tenants"), "blue")
    for text in ("32.0 Mbit/s", "8.00 Mbit/s", "4.00 Mbit/s", "25.0 %", 'value="0.250"', ">well<"):
        assert text in blue
    assert 'aria-label="blue sends 25.0 % of what it bought"' in blue


def test_a_tenant_above_its_contract_fills_the_bar_and_no_more(site: Site) -> None:
    bought(site, "red", 8e6, 4e6)
    red = row(site.page("/tenants"), "red")
    assert 'value="1.000"' in red and "200 %" in red and 'class="tag warn">above guarantee<' in red


@pytest.mark.parametrize(("tenant", "operator"), [("green", False), ("_infra", True)])
def test_who_bought_nothing_has_no_bar(site: Site, tenant: str, operator: bool) -> None:
    bought(site, tenant, 1e6)
    told = row(site.page("/tenants"), tenant)
    assert "no contract" in told and "<meter" not in told and ">well<" in told
    assert ('<span class="soft">operator</span>' in told) is operator


def test_drops_and_losses_are_told_in_words(site: Site) -> None:
    bought(site, "blue", 1e6, 4e6)
    site.answer(STATE, "loss", 0.02, tenant="blue")
    site.answer(STATE, "drops", 12345.0, tenant="blue", reason="queue_full")
    site.answer(STATE, "drops", 2.0, tenant="blue", reason="policed")
    site.answer(ALARMS, "harms", 1.0, node="n1", tenant="blue", offender="red", verdict="likely")
    blue = row(site.page("/tenants"), "blue")
    assert '<span class="tag bad">hurt by red (likely), loses probes</span>' in blue
    assert '<td class="num alarm" data-label="Probes lost">2.00 %</td>' in blue
    assert "12 345 queue_full, 2 policed" in blue


def test_a_path_that_is_slow_is_named_with_its_usual(site: Site) -> None:
    labels = {"src": "n1", "dst": "n2", "path": "gre", "tenant": "blue", "probe": "stamp-64"}
    bought(site, "blue", 1e6)
    assert "No path loses probes" in site.page("/tenants")
    site.answer(STATE, "slow paths", 3.0, **labels)
    site.answer(STATE, "delays", 3e-3, **labels)
    site.monotonic = lambda: HOLD + 1.0
    told = section(site.page("/tenants"), "paths")
    assert ">slow<" in told and "3.00 ms" in told and "×3" in told


def test_tenants_are_bounded_and_the_rest_is_counted(site: Site) -> None:
    for i in range(MOST + 50):
        bought(site, f"t{i:04}", float(i + 1))
    text = site.page("/tenants")
    assert section(text, "tenants").count('<th scope="row">') == MOST
    assert "50 more tenants are left out" in text and len(text) < 300_000


# Incidents


def test_an_hour_of_trouble_is_listed_and_bounded(site: Site) -> None:
    newest = NOW // 15 * 15
    site.ranges[QUESTIONS["alert"]] = [
        Series({"alertname": f"A{i}", "severity": "warning"}, [(newest - 15.0 * (i % 200), 1.0)])
        for i in range(MOST_EVENTS + 100)
    ]
    text = site.page("/incidents")
    told = section(text, "hour")
    assert told.count("<tr>") == 61 and "240 more events are left out, older ones." in told
    assert told.count("<rect") <= MOST_EVENTS and len(text) < 200_000


def test_an_event_leads_to_its_moment(site: Site) -> None:
    begin = NOW // 15 * 15 - 600.0
    flood = Series({"node": "n1", "port": "p", "tenant": "red"}, [(begin, 80.0), (begin + 15.0, 90.0)])
    site.ranges[QUESTIONS["flood"]] = [flood]
    told = section(site.page("/incidents"), "hour")
    (address,) = re.findall(r'href="(/incidents\?at=\d+)"', told)
    assert address == f"/incidents?at={int(begin) + 60}"
    assert '<td data-label="Lasted">15 s</td>' in told
    assert site.page(address).count('data-every="0"') == 1


def test_harm_is_told_with_its_time_and_share(site: Site) -> None:
    labels = {"node": "n1", "tenant": "blue", "offender": "red"}
    site.answer(ALARMS, "harms", 1.0, verdict="attributed", **labels)
    for name, value in (("begin", NOW - 400.0), ("end", NOW - 300.0), ("share", 0.4)):
        site.answer(ALARMS, name, value, **labels)
    told = section(site.page("/incidents"), "lasts")
    assert "blue was hurt by red" in told and "40.0 % of the excess" in told
    assert told.count("<time ") == 3


def test_times_that_are_none_are_dashes(site: Site) -> None:
    labels = {"node": "n1", "tenant": "blue", "offender": "red"}
    site.answer(ALARMS, "harms", 1.0, verdict="attributed", **labels)
    for name in ("begin", "end"):
        site.answer(ALARMS, name, 1e30, **labels)
    assert f"{numbers.MISSING} to {numbers.MISSING}" in section(site.page("/incidents"), "lasts")


@pytest.mark.parametrize("address", ["/mesh", "/tenants", "/incidents", "/v1/site"])
@pytest.mark.parametrize(
    ("at", "fix"),
    [
        ("soon", "is not a moment; write for example 2026-01-31T12:00:00Z, 1800000000 or 2h"),
        ("2026-13-01", "is not a moment; write for example"),
        ("1e9", "is not a moment; write for example"),
        ("nan", "is not a moment; write for example"),
        ("٣h", "is not a moment; write for example"),
        ("2h;1h", "is not a moment; write for example"),
        ("2999-01-01", "is not in the past; write for example 2h, for two hours ago"),
        ("99999999999", "is not in the past; write for example 2h"),
        ("99999999d", "is before 1970; write for example 2h, for two hours ago"),
        ("1969-12-31T23:59:59Z", "is before 1970; write for example 2h"),
    ],
)
def test_a_moment_that_is_none_is_refused_with_the_fix(site: Site, address: str, at: str, fix: str) -> None:
    got = site.client.get(address, query_string={"at": at})
    assert got.status_code == 400 and got.text.startswith(f"at={at}: {fix}"), got.text
    assert site.opened == 0


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("0s", 0.0),
        ("90s", 90.0),
        ("-90s", 90.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        ("1800000000", 100.0),
        ("1800000000.5", 99.5),
        ("2027-01-15T08:00:00Z", 100.0),
        ("2027-01-15T08:00", 100.0),
        ("2027-01-15T09:00:00+01:00", 100.0),
    ],
)
def test_moments_are_written_in_many_ways(text: str, ago: float) -> None:
    assert moment(text, 1_800_000_100.0) == pytest.approx(1_800_000_100.0 - ago)


@pytest.mark.parametrize("at", ["2h", "400d"])
def test_the_past_without_data_has_nothing_in_it(site: Site, at: str) -> None:
    assert "No tenant has a port that is counted." in site.page(f"/tenants?at={at}")
    assert "No node probes another one." in site.page(f"/mesh?at={at}")
    text = site.page(f"/incidents?at={at}")
    assert "Nothing happened between" in text and "<svg" not in section(text, "hour")
    assert "At " in section(text, "lasts") and "Now, at " not in text


# The mesh


def test_a_mesh_of_one_path_asks_for_that_path(site: Site) -> None:
    pairs = _mesh(3, lambda a, b: 0.5 if (a, b) == (0, 1) else 0.0).pairs
    for record, i in ((LOSS, 0), (P99, 1)):
        site.answers[f'max by (src, dst) ({record}{{path="gre"}})'] = [
            Sample({"src": a, "dst": b}, NOW, v[i]) for (a, b), v in pairs.items()
        ]
    assert "No node probes another one." in site.page("/mesh")
    text = site.page("/mesh?path=gre&at=1h")
    assert "3 nodes, 6 pairs, 1 loses probes" in text and "50.0 % lost" in text
    assert '<input type="hidden" name="path" value="gre">' in text, "another moment, of the same path"
    assert 'href="/mesh?path=vxlan&amp;at=1h"' in text, "another path, of the same moment"
    assert "No node probes another one on this path." in site.page("/mesh?path=vxlan")


def test_nodes_beyond_the_most_are_counted(site: Site) -> None:
    for record, i in ((LOSS, 0), (P99, 1)):
        site.answers[f"max by (src, dst) ({record})"] = [
            Sample({"src": a, "dst": b}, NOW, v[i]) for (a, b), v in _mesh(103).pairs.items()
        ]
    text = site.page("/mesh")
    assert "100 nodes, 9 900 pairs" in text and "3 more nodes are left out" in text
    assert len(text) < 400_000 and section(text, "worst").count('<th scope="row">') == 20


# Prometheus is away


def test_what_was_seen_last_is_kept_for_a_while_and_then_it_is_not_known(site: Site) -> None:
    now = [0.0]
    site.monotonic = lambda: now[0]
    site.answer(ALARMS, "floods", 91.0, node="n1", port="p1", tenant="red")
    bought(site, "red", 1e6)
    assert "red floods" in site.page("/incidents") and ">floods<" in site.page("/tenants")
    site.failure = Unavailable("Prometheus is away")
    now[0] = ALARMS_HOLD - 1.0
    assert "red floods" in site.page("/incidents"), "the last answer"
    now[0] = HOLD + 1.0
    for address in ("/mesh", "/tenants", "/incidents"):
        text = site.page(address)
        assert "Not known: Prometheus is away" in text and "alerts are not known: Prometheus is away" in text
    assert 'class="answer">gre<' in site.page("/"), "the comparison is the service's own"
    site.failure = None
    now[0] += HOLD + 1.0
    assert "red floods" in site.page("/incidents")


# What goes with every answer


@pytest.mark.parametrize("address", PAGES)
def test_every_answer_is_locked_down(site: Site, address: str) -> None:
    headers = site.client.get(address).headers
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
    assert "Set-Cookie" not in headers


@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_are_read_only(site: Site, address: str, method: str) -> None:
    got = site.client.open(address, method=method)
    assert got.status_code == 405 and {"GET", "HEAD"} <= set(got.headers["Allow"].split(", "))
    assert got.headers["X-Content-Type-Options"] == "nosniff" and site.opened == 0


@pytest.mark.parametrize("address", PAGES)
def test_a_head_has_what_goes_with_a_page_and_no_page(site: Site, address: str) -> None:
    got, whole = site.client.head(address), site.client.get(address)
    assert (got.status_code, got.data) == (200, b"")
    assert got.headers["Content-Type"] == whole.headers["Content-Type"]


@pytest.mark.parametrize("address", ["/nowhere", "/mesh/", "/tenants/red", "/assets/", "/v1", "/<script>"])
def test_pages_that_are_none_are_not_found(site: Site, address: str) -> None:
    got = site.client.get(address, headers={"Accept": "text/html"})
    assert (got.status_code, got.text) == (404, "Not Found; see /\n")
    assert got.content_type == "text/plain; charset=utf-8"
    assert got.headers["Content-Security-Policy"] and got.headers["X-Content-Type-Options"] == "nosniff"


# How things are written


def test_a_time_has_its_date_unless_it_is_today() -> None:
    past = frame._clock(1_700_000_000.0)
    assert past == '<time datetime="2023-11-14T22:13:20Z">2023-11-14 22:13 UTC</time>'
    assert ">2023-11-14 22:13:20 UTC<" in frame._clock(1_700_000_000.0, True)
    now = datetime.now(UTC).replace(microsecond=0)
    told = frame._clock(now.timestamp(), True)
    day = "" if datetime.now(UTC).date() == now.date() else now.strftime("%Y-%m-%d ")
    assert f">{day}{now:%H:%M:%S} UTC<" in told


@pytest.mark.parametrize("at", [0.0, math.nan, math.inf, -math.inf, 1e30, -1e30, 1e15])
def test_a_time_that_is_none_is_a_dash(at: float) -> None:
    assert frame._clock(at) == numbers.MISSING


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1.0, "0 s"), (0.4, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (7199.0, "119 min"), (9000.0, "2.5 h")],
)
def test_how_long_it_lasted(seconds: float, text: str) -> None:
    assert frame._lasted(seconds) == text


def test_addresses_carry_what_is_chosen_and_nothing_else() -> None:
    assert frame._address("/", probe="", show=None) == "/"
    assert frame._address("/mesh", path="a b&c=/?#", at="2h") == "/mesh?path=a+b%26c%3D%2F%3F%23&at=2h"


def test_a_field_keeps_what_was_written_as_text(site: Site) -> None:
    text = site.page("/incidents?at=%202h%20")
    (field,) = (a for tag, a in _Tags(text).tags if tag == "input")
    assert field["value"].strip() == "2h" and field["maxlength"] == "40"
