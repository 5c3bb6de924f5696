"""The pages for people: what they answer, that they are bounded, and that nothing on them is obeyed."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from flask.testing import FlaskClient
from prometheus_client import CollectorRegistry

from vigia_compare.evaluation import Evaluation, _series
from vigia_compare.looks import Looks
from vigia_compare.pages import Shown, create_app
from vigia_compare.readings import Cell
from vigia_compare.site import ALARMS, STATE, Mesh
from vigia_compare.timeline import QUESTIONS
from vigia_compare.web import charts
from vigia_compare.web.comparison import MOST_COLUMNS, Column, Wanted, comparison
from vigia_compare.web.matrix import Field, matrix
from vigia_prometheus import Sample, Series, Unavailable
from vigia_service import look
from vigia_service.ops import Ops

from .made import BASE, END, KNOWN, evaluation_of, known, readings

EVIL = "<img src=x onerror=alert(1)>\"'\u202e\x1b[2J&amp;"
NOW = END + 20.0
FIRST_WINDOW = 10 * 1460
"""Bytes that a server sends before a browser has to say that it has them (RFC 6928)."""


def evaluated(**metrics: Mapping[str, Any]) -> Evaluation:
    """An evaluation of readings, with what charts are drawn of."""
    given = [readings(metric, paths) for metric, paths in metrics.items()]
    of = known(
        {p: KNOWN["gre"] for r in given for paths in r.cells.values() for p in paths if p not in KNOWN}
    )
    return replace(evaluation_of(*given, of=of), series=_series(given))


USUAL = evaluated(
    rtt={"gre": BASE, "vxlan": 3.0 * BASE, "direct": BASE / 2.0, "openflow": 2.0 * BASE},
    loss={"gre": np.zeros(60), "vxlan": np.zeros(60), "direct": np.zeros(60)},
)


class Site:
    """Pages over answers of a test's choice."""

    def __init__(self, found: Evaluation | None = USUAL, lost: str = "") -> None:
        self.found, self.lost = found, lost
        self.answers: dict[str, list[Sample]] = {}
        self.ranges: dict[str, list[Series]] = {}
        self.failure: Exception | None = None
        self.console = ""
        self.opened = 0
        self.before: Callable[[], object] = lambda: None
        """What Prometheus does before it answers."""
        ops = Ops(CollectorRegistry(), lambda: "", lambda: "")
        self.monotonic: Callable[[], float] = lambda: 0.0
        looks = Looks(lambda: self, lambda: NOW, lambda: self.monotonic())  # type: ignore[arg-type, return-value]
        shown = Shown(
            lambda: (self.found, "" if self.found else "no evaluation so far"),
            lambda _: 0,
            lambda: self.lost,
            looks,
            lambda: self.console,
            lambda: NOW,
        )
        self.client: FlaskClient = create_app(ops, shown).test_client()

    url = "http://p"

    def __enter__(self) -> Site:
        self.opened += 1
        self.before()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def instant(self, expression: str, _: float | None = None) -> list[Sample]:
        if self.failure:
            raise self.failure
        return self.answers.get(expression, [])

    def range(self, expression: str, *_: float) -> list[Series]:
        if self.failure:
            raise self.failure
        return self.ranges.get(expression, [])

    def answer(self, questions: Mapping[str, str], name: str, value: float, **labels: str) -> None:
        self.answers.setdefault(questions[name], []).append(Sample(labels, NOW, value))

    def page(self, address: str, status: int = 200) -> str:
        got = self.client.get(address, headers={"Accept": "text/html"})
        assert got.status_code == status, got.text
        if status == 200:
            assert got.content_type == "text/html; charset=utf-8"
            strict(got.headers["Content-Security-Policy"], got.text)
        return got.text


class _Tags(HTMLParser):
    """The elements of a page, as a browser would read them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))


def strict(policy: str, text: str) -> None:
    """Nothing inline but styles of a hash, nothing from elsewhere; headings, captions and names for who cannot see it."""
    assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    tags = _Tags(text).tags
    names = [tag for tag, _ in tags]
    assert not {"img", "iframe", "object", "base"} & set(names)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(styles) == names.count("style") == 1
    hashed = b64encode(sha256(styles[0].encode()).digest()).decode()
    assert f"; style-src 'sha256-{hashed}';" in policy, "these styles, and no others"
    assert [a for tag, a in tags if tag == "script"] == [{"type": "module", "src": "/assets/live.js"}]
    for tag, attributes in tags:
        assert not any(k == "style" or k.startswith("on") for k in attributes), (tag, attributes)
        for address in (attributes.get(k, "/") for k in ("href", "src", "action")):
            assert re.match(r"/|#|http://localhost:9874/$|https://console\.test/$", address), address
        if tag == "th":
            assert attributes.get("scope") in ("col", "row", "rowgroup"), "every header says what it heads"
    assert names.count("h1") == 1 and ("html", {"lang": "en"}) in tags
    assert names.count("table") == names.count("caption"), "every table says what it is"
    ids = [a["id"] for _, a in tags if "id" in a]
    assert len(ids) == len(set(ids)), "labels refer to one thing"
    for _, attributes in tags:
        for wanted in (attributes.get(k) for k in ("aria-labelledby", "aria-describedby", "for")):
            assert wanted is None or wanted in ids, wanted


@pytest.fixture
def site() -> Site:
    return Site()


ADDRESSES = ("/", "/mesh", "/tenants", "/incidents")


@pytest.mark.parametrize("address", ADDRESSES)
def test_all_pages_have_one_bar(site: Site, address: str) -> None:
    """That of the console as well: the same names in the same order, with a mark at where one is."""
    key = address.strip("/") or "comparison"
    assert look.bar(key, look.Service.PAGES, "http://localhost:9874/") in site.page(address)
    site.console = "https://console.test/"
    assert look.bar(key, look.Service.PAGES, "https://console.test/") in site.page(address)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_leads_to_every_other_and_to_the_console(site: Site, address: str) -> None:
    text = site.page(address)
    for other in ADDRESSES:
        assert f'href="{other}"' in text
    assert f'href="{address}" aria-current="page"' in text
    assert 'href="http://localhost:9874/"' in text
    site.console = "https://console.test/"
    assert 'href="https://console.test/"' in site.page(address)


@pytest.mark.parametrize("host", ["evil.test/><script>", "a b", "x" * 300, "[::1"])
def test_a_host_that_is_none_is_not_linked_to(site: Site, host: str) -> None:
    got = site.client.get("/", headers={"Host": host, "Accept": "text/html"})
    assert got.status_code == 400 or "9874" not in got.text


# The comparison


def test_the_answer_comes_first(site: Site) -> None:
    text = site.page("/")
    banner = text[
        text.index('<ul class="banners">') : text.index("</ul>", text.index('<ul class="banners">'))
    ]
    assert re.search(
        r'<li class="won">\s*<h3>RTT .*?<p class="answer">gre</p>\s*<p>by 3\d\.\d \[', banner, re.S
    )
    assert "over vxlan" in banner and "holds since" in banner
    assert "Loss" not in banner and "Loss" in text[text.index('id="open"') :], (
        "what is not known is told apart"
    )


def test_the_reference_is_apart_and_what_wins_is_marked() -> None:
    page = comparison(USUAL, Wanted())
    assert {g: [r.path for r in rows] for g, rows in page.rows.items()} == {
        "competing": ["gre", "vxlan"],
        "others": ["openflow"],
        "reference": ["direct"],
    }
    (gre, vxlan), (direct,) = page.rows["competing"], page.rows["reference"]
    assert [(v.heat, v.mark, v.times) for v in gre.values] == [("h0", "wins", "×1"), ("h0", "", "")]
    assert [(v.heat, v.times) for v in vxlan.values] == [("h3", "×3"), ("h0", "")]
    assert direct.values[0].mark == "" and direct.values[0].text.endswith("µs")


@pytest.mark.parametrize(
    ("value", "heat"), [(1.0, "h0"), (1.05, "h0"), (1.06, "h1"), (1.5, "h2"), (3.0, "h3"), (6.0, "h4")]
)
def test_heat_is_how_many_times_the_best(value: float, heat: str) -> None:
    found = evaluated(rtt={"gre": np.full(60, 1e-4), "vxlan": np.full(60, value * 1e-4)})
    assert comparison(found, Wanted()).rows["competing"][-1].values[0].heat == heat or value == 1.0


def test_more_is_better_of_throughput() -> None:
    found = evaluated(tcp_throughput={"gre": np.full(60, 1e8), "vxlan": np.full(60, 2e8)})
    values = {r.path: r.values[0] for r in comparison(found, Wanted()).rows["competing"]}
    assert (values["vxlan"].heat, values["gre"].heat, values["gre"].times) == ("h0", "h2", "×2")


def test_it_is_chosen_what_is_shown() -> None:
    bulk = [
        readings("udp_throughput", {"gre": np.full(60, 1e7), "vxlan": np.full(60, 2e7)}) for _ in range(3)
    ]
    cells = [
        Cell("udp_throughput", "remote", m, f"bulk-udp {r}")
        for m, r in (("2", "1Gbit"), ("2", "200Mbit"), ("16", "200Mbit"))
    ]
    given = [
        replace(r, cells={cell: next(iter(r.cells.values()))}) for r, cell in zip(bulk, cells, strict=True)
    ]
    found = replace(evaluation_of(*given), series=_series(given))
    page = comparison(found, Wanted())
    assert (page.machines, page.wanted.machines) == (["2", "16"], "2")
    assert [c.name for c in page.columns] == ["UDP 200Mbit", "UDP 1Gbit"], "in the order of rates"
    page = comparison(found, Wanted(machines="16", show="udp_throughput/16/bulk-udp 200Mbit"))
    assert [c.more for c in page.columns] == ["16 machines"] and page.asked_in_vain == ""
    page = comparison(found, Wanted(placement="moon", probe="none", show="x", machines="3"))
    assert page.asked_in_vain == "placement moon, probe none, number of machines 3, measure x"
    assert page.times is not None, "what is measured is shown all the same"


def test_columns_are_bounded_and_the_rest_is_counted() -> None:
    given = [
        replace(r, cells={Cell("udp_throughput", "remote", "2", f"bulk-udp {i}Mbit"): paths})
        for i in range(1, MOST_COLUMNS + 4)
        for r in [readings("udp_throughput", {"gre": np.full(60, 1e7)})]
        for paths in r.cells.values()
    ]
    page = comparison(replace(evaluation_of(*given), series=_series(given)), Wanted())
    assert (len(page.columns), page.more_columns) == (MOST_COLUMNS, 3)


def test_charts_have_every_line_with_its_name() -> None:
    page = comparison(USUAL, Wanted())
    for chart in (page.times, page.shares):
        root = ElementTree.fromstring(str(chart))  # noqa: S314 - our own
        names = {e.text for e in root.iter("text") if "name" in e.attrib["class"]}
        assert names == {"gre", "vxlan", "openflow", "direct"}
        assert root.attrib["role"] == "img" and root.find("title") is not None
        assert "gre: median" in (root.findtext("desc") or ""), "the same in words"
        for line in (*root.iter("polyline"), *root.iter("path")):
            numbers = [
                float(n) for n in re.findall(r"-?\d+\.?\d*", line.get("points") or line.get("d") or "")
            ]
            assert numbers and all(-1.0 <= n <= charts.WIDTH for n in numbers)


def _points(chart: object) -> list[list[str]]:
    root = ElementTree.fromstring(str(chart))  # noqa: S314 - our own
    return [line.attrib["points"].split() for line in root.iter("polyline")]


def test_a_gap_is_a_gap_and_one_window_is_a_dot() -> None:
    values = np.array([1.0, 2.0, math.nan, 3.0, math.nan, 4.0, 5.0])
    chart = charts.over_time([charts.Line("a", values)], 0.0, 360.0, "seconds", "t", "d")
    assert [len(p) for p in _points(chart)] == [2, 2]
    assert str(chart).count("<circle") == 1


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(5),
        np.full(5, 1e-9),
        np.full(5, 3.0),
        np.array([1e-9, 1e9]),
        np.array([0.0, 1.0]),
        np.array([-1.0, 1.0]),
        np.array([math.nan, 1.0]),
        np.array([1e-300, 1e-299]),
        np.array([1e300, 1e305]),
    ],
)
@pytest.mark.parametrize("unit", ["seconds", "ratio", "bytes_per_second"])
def test_charts_of_any_values(values: Any, unit: str) -> None:
    for chart in (
        charts.over_time([charts.Line("a", values)], 0.0, 60.0, unit, "t", "d"),
        charts.distribution([charts.Line("a", values)], unit, "t", "d"),
    ):
        text = str(ElementTree.tostring(ElementTree.fromstring(str(chart))))  # noqa: S314 - our own
        assert "nan" not in text and "inf" not in text
        assert text.count('class="tick') < 25


def test_many_paths_are_bounded() -> None:
    paths = {f"p{i:02}": BASE * (1.0 + i / 10.0) for i in range(32)}
    page = comparison(evaluated(rtt=paths), Wanted())
    assert len(page.rows["competing"]) == 32
    assert len(_points(page.times)) == charts.MOST_LINES and page.more_lines == 32 - charts.MOST_LINES


def test_the_text_stays_for_programs(site: Site) -> None:
    text = site.client.get("/v1/comparisons.txt")
    assert text.content_type == "text/plain; charset=utf-8" and text.text.startswith("winners\n")
    assert site.client.get("/", headers={"Accept": "text/plain"}).text == text.text
    page = site.client.get("/").text
    assert "winners\n" in page, "in the page as well, for who reads it with curl"
    site.found = None
    assert site.client.get("/v1/comparisons.txt").status_code == 503
    assert "not yet: no evaluation so far" in site.page("/")


def test_a_long_text_is_at_its_own_address() -> None:
    many = Site(replace(USUAL, findings=list(USUAL.findings) * 500))
    page = many.page("/")
    assert "<pre>" not in page and 'href="/v1/comparisons.txt">Everything as text' in page


def test_what_was_made_of_an_evaluation_is_made_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Wanted] = []

    def counted(found: Evaluation, wanted: Wanted) -> Any:
        made.append(wanted)
        return comparison(found, wanted)

    monkeypatch.setattr("vigia_compare.pages.comparison", counted)
    for _ in range(5):
        site.page("/")
        site.page("/?probe=stamp-64")
    assert len(made) == 2
    site.found = replace(USUAL, at=USUAL.at + 1.0)
    site.page("/")
    assert len(made) == 3
    for i in range(100):
        site.page(f"/?probe=p{i}")
    assert len(made) == 103 and site.opened == 1


# What Prometheus says


def _hostile(site: Site) -> None:
    labels = {"node": EVIL, "port": EVIL, "tenant": EVIL}
    site.answer(ALARMS, "floods", 91.0, **labels)
    site.answer(ALARMS, "limits", 5e6, protocol=EVIL, direction=EVIL, **labels)
    site.answer(ALARMS, "harms", 1.0, offender=EVIL, verdict=EVIL, node=EVIL, tenant=EVIL)
    site.answer(ALARMS, "alerts", 1.0, alertname=EVIL, severity=EVIL, tenant=EVIL, node=EVIL, path=EVIL)
    site.answer(STATE, "rate", 1e6, tenant=EVIL, direction="from_tenant")
    site.answer(STATE, "drops", 3.0, tenant=EVIL, reason=EVIL)
    site.answer(STATE, "lossy paths", 0.5, src=EVIL, dst=EVIL, path=EVIL, tenant=EVIL, probe=EVIL)
    for record in ("vigia_probe_loss:ratio_rate1m", "vigia_probe_rtt_seconds:p99_rate1m"):
        site.answers[f"max by (src, dst) (path:{record})"] = [Sample({"src": EVIL, "dst": "b"}, NOW, 0.5)]
    for kind in ("flood", "limit", "alert"):
        site.ranges[QUESTIONS[kind]] = [Series({**labels, "alertname": EVIL}, [(NOW - 60.0, 80.0)])]


@pytest.mark.parametrize("address", ADDRESSES)
def test_names_are_shown_and_never_obeyed(address: str) -> None:
    site = Site(evaluated(rtt={EVIL: BASE, "gre": 3.0 * BASE}))
    _hostile(site)
    text = site.page(address)
    assert "<img" not in text and "&lt;img src=x onerror" in text
    assert "\u202e" not in text and "\x1b" not in text


def test_drops_are_not_denied_before_they_are_counted(site: Site) -> None:
    for tenant in ("blue", "red"):
        site.answer(STATE, "rate", 1e6, tenant=tenant, direction="from_tenant")
    site.answer(STATE, "drops", 0.0, tenant="red", reason="rate_limit")
    text = site.page("/tenants")
    assert ">first rate_limit</td>" in text and text.count(">nothing</td>") == 1


def test_a_flood_is_on_every_page_and_its_tenant_is_first(site: Site) -> None:
    site.answer(ALARMS, "floods", 91.0, node="n1", port="p1", tenant="red")
    site.answer(ALARMS, "limits", 5e6, node="n1", port="p1", tenant="red", direction="x", protocol="udp")
    site.answer(ALARMS, "waiting", 2.0)
    site.answer(ALARMS, "kill_switch", 1.0)
    for tenant in ("blue", "red"):
        site.answer(STATE, "rate", 1e6, tenant=tenant, direction="from_tenant")
    site.ranges[QUESTIONS["flood"]] = [
        Series({"node": "n1", "port": "p1", "tenant": "red"}, [(NOW // 15 * 15, 91.0)])
    ]
    for address in ADDRESSES:
        text = site.page(address)
        assert "1 flood<" in text and "1 limit in force<" in text and "no alerts<" in text
        assert "2 wait for approval" in text and "the kill switch is on" in text
    tenants = site.page("/tenants")
    assert tenants.index(">red<") < tenants.index(">blue<") and "floods, limited" in tenants
    incidents = site.page("/incidents")
    assert "red floods from port p1 on n1, score 91 of 100" in incidents and "<rect" in incidents


def test_what_is_not_known_is_said_and_the_comparison_stays(site: Site) -> None:
    site.failure = Unavailable("Prometheus at http://p does not answer")
    for address in ADDRESSES:
        text = site.page(address)
        assert "Floods, limits and alerts are not known: Prometheus at http://p does not answer" in text
        assert "no floods" not in text and "No flood" not in text
    assert '<p class="answer">gre</p>' in site.page("/")
    got = site.client.get("/v1/site")
    assert (got.status_code, got.text) == (503, "Prometheus at http://p does not answer\n")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/incidents?at=yesterday", "at=yesterday: is not a moment; write for example 2026-01-31T12:00:00Z"),
        ("/incidents?at=2999-01-01T00:00:00Z", "is not in the past"),
        ("/tenants?when=1h", "when is not a parameter of this page; it takes at"),
        ("/mesh?path=nowhere%1b", "path=nowhere\\x1b is not measured; write one of direct, gre"),
        (f"/?probe={'x' * 201}", "probe is longer than 200 characters"),
        ("/v1/site?at=%3Cb%3E", "at=<b>: is not a moment"),
    ],
)
def test_bad_questions_are_refused(site: Site, address: str, said: str) -> None:
    got = site.client.get(address, headers={"Accept": "text/html"})
    assert got.status_code == 400 and got.content_type == "text/plain; charset=utf-8"
    assert said in got.text and site.opened == 0, "and nothing is asked for them"


def test_no_path_is_refused_before_paths_are_known(site: Site) -> None:
    """Neither at the start or on a replica that stands by, nor of the past, when others may have been measured."""
    assert site.client.get("/mesh?path=gone").status_code == 400
    assert site.client.get("/mesh?path=gone&at=2026-01-31T12:00:00Z").status_code == 200
    site.found = None
    assert site.client.get("/mesh?path=gone").status_code == 200


def test_what_a_limit_stops_is_beside_what_passes(site: Site) -> None:
    site.answer(STATE, "rate", 4e6, tenant="red", direction="from_tenant")
    site.answer(STATE, "policed", 4e7, tenant="red")
    assert "32.0 Mbit/s<small" in site.page("/tenants")
    assert "320 Mbit/s more stopped</small>" in site.page("/tenants")


def test_a_moment_of_the_past_stays_as_it_is(site: Site) -> None:
    text = site.page("/incidents?at=2h")
    assert 'data-every="0"' in text and 'value="2h"' in text and '<a href="/incidents">now</a>' in text
    assert 'data-every="5"' in site.page("/incidents?at=")
    for i in range(30):
        got = site.client.get(f"/incidents?at={int(NOW) - 1000 - 60 * i}")
    assert (got.status_code, got.headers["Retry-After"]) == (429, "60")
    assert site.client.get("/incidents").status_code == 200, "the present is always there"


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_top_of_a_page_does_not_wait_for_prometheus(site: Site, address: str) -> None:
    """A browser has something to paint while it is asked."""
    got = site.client.get(address, headers={"Accept": "text/html"})
    assert got.status_code == 200 and site.opened == 0, "nothing is asked before the answer has begun"
    parts = got.iter_encoded()
    top = next(parts).decode()
    assert "<header>" in top and "</header>" in top and "<style>:root {" in top and "<main" not in top
    assert "stylesheet" not in top, "nothing else is waited for"
    assert len(top.encode()) < FIRST_WINDOW
    assert f'<a href="{address}" aria-current="page">' in top and "<title></title>" not in top
    assert next(parts) == b"", "which sends the top"
    assert site.opened == 0
    rest = b"".join(parts).decode()
    assert rest.count("<main") == 1 and rest.rstrip().endswith("</html>") and site.opened > 0


@pytest.mark.parametrize("address", ADDRESSES[1:])
def test_the_past_is_known_before_the_answer_begins(site: Site, address: str) -> None:
    got = site.client.get(f"{address}?at=1h", headers={"Accept": "text/html"})
    assert site.opened > 0, "it may have been too much to ask"
    assert 'data-every="0"' in got.text


def test_the_cells_of_a_mesh_are_escaped_and_shared() -> None:
    assert Field("h1", EVIL).cell.count("<") == 2, "those of the cell itself"
    assert Field("", "").cell == "<td></td>"
    rows = [fields for _, fields in matrix(_mesh(100)).rows]
    assert len({id(f) for fields in rows for f in fields}) == 2, "what looks alike is one"


def test_the_site_as_json(site: Site) -> None:
    site.answer(ALARMS, "floods", 91.0, node="n1", port="p1", tenant="red")
    site.answer(STATE, "rate", 1e6, tenant="red", direction="from_tenant")
    got = site.client.get("/v1/site")
    data = json.loads(got.text)
    assert got.content_type == "application/json"
    assert data["floods"] == [{"node": "n1", "port": "p1", "tenant": "red", "score": 91.0}]
    (red,) = data["tenants"]
    assert (red["sent"], red["bought"], red["state"]) == (1e6, None, ["floods"]), "null is not known"


# The mesh


def _mesh(count: int, loss: Callable[[int, int], float] = lambda a, b: 0.0) -> Mesh:
    names = [f"n{i:03}" for i in range(count)]
    pairs = {(a, b): (loss(i, j), 1e-4) for i, a in enumerate(names) for j, b in enumerate(names) if i != j}
    return Mesh(NOW, names, pairs)


def test_a_small_mesh_has_numbers_a_large_one_signs() -> None:
    small = matrix(_mesh(3, lambda a, b: 0.02 if (a, b) == (0, 1) else 0.0))
    assert small.written and small.lossy == 1
    assert [(f.heat, f.text) for f in small.rows[0][1]] == [("", ""), ("h4", "2.00 % lost"), ("h0", "100 µs")]
    large = matrix(_mesh(100, lambda a, b: 0.002 if a == 7 else 0.0))
    assert not large.written and (large.pairs, large.lossy) == (9900, 99)
    assert [f.text for f in large.rows[7][1]][:3] == ["-", "-", "-"]
    assert large.rows[0][1][1].text == "·" and large.worst[0].src == "n007"


def test_a_mesh_of_100_nodes_is_a_page_of_bounded_size(site: Site) -> None:
    mesh = _mesh(100)
    for record, i in (("vigia_probe_loss:ratio_rate1m", 0), ("vigia_probe_rtt_seconds:p99_rate1m", 1)):
        site.answers[f"max by (src, dst) (path:{record})"] = [
            Sample({"src": a, "dst": b}, NOW, v[i]) for (a, b), v in mesh.pairs.items()
        ]
    text = site.page("/mesh")
    assert "100 nodes, 9 900 pairs, none loses probes" in text
    assert text.count("<td") >= 10_000 and len(text) < 400_000


# Files


def test_files_of_the_pages(site: Site) -> None:
    for name, kind in (
        ("live.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ):
        got = site.client.get(f"/assets/{name}")
        assert got.status_code == 200 and got.content_type.startswith(kind)
        text = got.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://|//[a-z]+\.|innerHTML|outerHTML\s*=[^=]|insertAdjacent|document\.write|eval\(|url\(",
            text,
        )
    for name in ("../pages.py", "frame.html", "%2e%2e/frame.html", "vigia.css", "x"):
        assert site.client.get(f"/assets/{name}").status_code == 404


def test_columns_are_named_in_words() -> None:
    for cell, name, more in (
        (Cell("rtt", "remote", "", "stamp-64"), "RTT", "stamp-64"),
        (Cell("udp_throughput", "remote", "8", "bulk-udp 100Mbit"), "UDP 100Mbit", "8 machines"),
        (Cell("tcp_throughput", "remote", "2", "bulk-tcp"), "TCP", "2 machines"),
    ):
        assert (Column(cell).name, Column(cell).more) == (name, more)
