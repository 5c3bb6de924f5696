"""Incidents: what caused them, what shows it, what was done, and whom it hurt; and how far back is looked."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html import unescape

import pytest

from vigia_compare.incidents import GAP, MOST_INCIDENTS, Incident, incidents
from vigia_compare.site import ALARMS, Harm
from vigia_compare.timeline import MOST_STEPS, PERIODS, QUESTIONS, STEP, Event, questions, timeline
from vigia_prometheus import Series

from .test_pages import section
from .test_web import ADDRESSES, EVIL, NOW, Site

T = NOW // STEP * STEP
RED = {"node": "n1", "port": "n1-red-110", "tenant": "red"}
HARM = {"node": "n1", "tenant": "blue", "offender": "red"}


def event(kind: str, begin: float, lasted: float = 60.0, tenant: str = "red", **more: object) -> Event:
    """An event that began so many seconds after T - 3600."""
    made = Event(
        kind, T - 3600.0 + begin, T - 3600.0 + begin + lasted, False, f"{tenant} {kind}", tenant, "n1"
    )
    return replace(made, **more)  # type: ignore[arg-type]


def harm(begin: float, by: str = "red", tenant: str = "blue") -> Event:
    return event("harm", begin, tenant=tenant, by=by)


def alert(begin: float, tenant: str, name: str = "VigiaUdpFlood") -> Event:
    return event("alert", begin, tenant=tenant, alert=name, what=f"{name}: tenant {tenant}")


def kinds(incident: Incident) -> list[list[str]]:
    return [[e.kind for e in part] for _, part, _ in incident.parts]


# Which events are one incident


def test_cause_evidence_action_and_effect_of_one_flood() -> None:
    given = [
        harm(10.0),
        event("limit", 5.0, 90.0),
        alert(2.0, "red"),
        event("flood", 0.0),
        alert(20.0, "blue", "VigiaLoss"),
    ]
    ((found,), rest) = incidents(given)
    assert [name for name, _, _ in found.parts] == ["Cause", "Evidence", "Action", "Effect"]
    assert kinds(found) == [["flood"], ["alert"], ["limit"], ["harm", "alert"]]
    assert (found.tenant, found.begin, found.end) == ("red", T - 3600.0, T - 3600.0 + 95.0)
    assert (found.victims, found.lasts, rest) == ({"blue"}, False, [])


def test_one_that_has_not_ended_lasts() -> None:
    ((found,), _) = incidents([event("flood", 0.0), event("limit", 5.0, lasts=True)])
    assert found.lasts


@pytest.mark.parametrize(("apart", "count"), [(GAP, 1), (GAP + 1.0, 2)])
def test_floods_that_are_apart_are_two_incidents_the_newest_first(apart: float, count: int) -> None:
    found, _ = incidents([event("flood", 0.0), event("flood", 60.0 + apart)])
    assert len(found) == count
    assert [i.begin for i in found] == sorted((i.begin for i in found), reverse=True)


def test_looks_that_are_far_apart_do_not_take_one_incident_for_two() -> None:
    given = [event("flood", 0.0, 0.0), event("limit", 360.0, 0.0)]
    assert len(incidents(given)[0]) == 2
    assert len(incidents(given, 360.0)[0]) == 1


def test_a_long_event_holds_short_ones_together() -> None:
    ((found,), _) = incidents(
        [event("limit", 0.0, 1000.0), event("flood", 10.0, 20.0), event("flood", 900.0, 20.0)]
    )
    assert kinds(found) == [["flood", "flood"], [], ["limit"], []]


def test_tenants_are_not_mixed() -> None:
    found, rest = incidents(
        [event("flood", 0.0), event("flood", 0.0, tenant="mauve"), harm(5.0, by="mauve"), alert(3.0, "red")]
    )
    assert {i.tenant: kinds(i) for i in found} == {
        "red": [["flood"], ["alert"], [], []],
        "mauve": [["flood"], [], [], ["harm"]],
    }
    assert rest == []


def test_who_is_hurt_by_two_is_an_effect_of_both() -> None:
    found, rest = incidents([harm(0.0, by="red"), harm(0.0, by="mauve"), alert(10.0, "blue", "VigiaLoss")])
    assert [kinds(i)[3] for i in found] == [["harm", "alert"], ["harm", "alert"]] and rest == []


@pytest.mark.parametrize(
    "lonely",
    [
        alert(3000.0, "red"),  # long after
        alert(3.0, "green"),  # of somebody who is in none
        alert(3.0, ""),  # of the site
    ],
)
def test_alerts_that_belong_to_none_are_left(lonely: Event) -> None:
    ((found,), rest) = incidents([event("flood", 0.0), lonely])
    assert rest == [lonely] and found.evidence == []


def test_alerts_alone_are_no_incident() -> None:
    one = alert(0.0, "red")
    assert incidents([one]) == ([], [one])
    assert incidents([]) == ([], [])


def test_what_is_not_there_is_said_with_the_name() -> None:
    ((found,), _) = incidents([harm(0.0)])
    none = {name: said for name, part, said in found.parts if not part}
    assert none == {
        "Cause": "not known: no flood by red was seen",
        "Evidence": "no alert about red",
        "Action": "none: red was not limited",
    }
    ((found,), _) = incidents([event("flood", 0.0)])
    assert found.parts[3][2] == "none: nobody is known to have been hurt"


def test_who_is_likely_hurt_is_told_of_the_newest_incident_alone() -> None:
    """Statistics alone know no time; harm that has one is an event."""
    given = [event("flood", 0.0), event("flood", 1000.0), event("flood", 2000.0, tenant="mauve")]
    likely = [Harm(t, "n1", "red", "likely", 0.0, 0.0, math.nan) for t in ("green", "blue", "blue")]
    known = Harm("teal", "n1", "red", "attributed", T - 100.0, T, 0.5)
    found, _ = incidents(given, harms=[*likely, known, replace(known, offender="nobody here")])
    told = [(i.tenant, i.parts[3][2]) for i in found]
    nobody = "none: nobody is known to have been hurt"
    assert told == [("mauve", nobody), ("red", "blue, green, likely; when is not known"), ("red", nobody)]


# How far back is looked


@pytest.mark.parametrize(("since", "step"), [("15m", 15.0), ("1h", 15.0), ("6h", 90.0), ("24h", 360.0)])
def test_a_longer_period_is_looked_at_less_often(since: str, step: float) -> None:
    asked: list[tuple[str, float, float, float]] = []

    def ask(expression: str, start: float, end: float, every: float) -> list[Series]:
        asked.append((expression, start, end, every))
        return []

    found = timeline(ask, NOW, PERIODS[since])
    assert PERIODS[since].step == found.step == step
    assert {a[1:] for a in asked} == {(found.start, found.at, step)}
    assert found.at - found.start == PERIODS[since].length <= 86_400.0
    assert PERIODS[since].length / step <= MOST_STEPS, "a bound on what is asked"
    assert [a[0] for a in asked] == list(questions(step).values())


def test_what_is_shorter_than_a_step_is_seen_all_the_same() -> None:
    """Every question that is of a moment looks at the whole of a long step."""
    long = questions(360.0)
    assert all("[360s]" in long[kind] for kind in ("alert", "flood", "limit"))
    assert questions(STEP) == QUESTIONS and "max_over_time(ALERTS" not in QUESTIONS["alert"]


@pytest.mark.parametrize(("apart", "count"), [(180.0, 2), (90.0, 1)])
def test_events_of_a_long_period_end_where_looks_are_missing(apart: float, count: int) -> None:
    step = PERIODS["6h"].step
    end = NOW // step * step
    series = Series(RED, [(end - 900.0, 80.0), (end - 900.0 + apart, 90.0)])
    asked = questions(step)["flood"]
    found = timeline(lambda e, *_: [series] if e == asked else [], NOW, PERIODS["6h"])
    assert len(found.events) == count and not any(e.lasts for e in found.events)


# The page


@pytest.fixture
def site() -> Site:
    made = Site()
    begin = T - 600.0
    for kind, value in (("flood", 91.0), ("limit", 5e6)):
        made.ranges[QUESTIONS[kind]] = [Series(RED, [(begin + 15.0 * i, value) for i in range(9)])]
    fired = {"alertname": "VigiaUdpFlood", "severity": "critical", "tenant": "red"}
    made.ranges[QUESTIONS["alert"]] = [Series(fired, [(begin + 15.0 * i, 1.0) for i in range(4)])]
    made.ranges[QUESTIONS["begin"]] = [Series(HARM, [(T - 60.0, begin + 30.0)])]
    made.ranges[QUESTIONS["end"]] = [Series(HARM, [(T - 60.0, begin + 90.0)])]
    return made


def chain(text: str) -> list[tuple[str, str]]:
    """Names and contents of the parts of the first incident."""
    return [
        (name, " ".join(unescape(re.sub(r"<[^>]+>", " ", told)).split()))
        for name, told in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", section(text, "chains"), re.S)
    ][:4]


def test_an_incident_reads_from_the_cause_to_the_effect(site: Site) -> None:
    text = site.page("/incidents")
    told = chain(text)
    assert [name for name, _ in told] == ["Cause", "Evidence", "Action", "Effect"]
    assert "red floods from port n1-red-110 on n1, score 91 of 100, 2 min; what red sent" in told[0][1]
    assert "VigiaUdpFlood: tenant red, 45 s; vigia explain VigiaUdpFlood" in told[1][1]
    assert "red is limited to 40.0 Mbit/s at port n1-red-110 on n1, 2 min; approve or revert" in told[2][1]
    assert "blue is hurt by red on n1, 60 s; what blue got" in told[3][1]
    assert all(re.match(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC|\d\d:\d\d:\d\d UTC", t) for _, t in told)


def test_every_part_leads_further(site: Site) -> None:
    text = section(site.page("/incidents"), "chains")
    begin = int(T - 600.0)
    assert text.count(f'<a href="/incidents?at={begin + 60}">') == 3, "flood, alert and limit began together"
    assert f'<a href="/tenants?at={begin + 60}">what red sent</a>' in text
    assert f'<a href="/tenants?at={begin + 90}">what blue got</a>' in text
    assert '<a href="http://localhost:9874/">approve or revert</a>' in text
    for address in re.findall(r'href="(/[^"]+)"', text):
        assert site.client.get(address).status_code == 200, address


def test_what_lasts_goes_from_the_cause_to_the_effect_too(site: Site) -> None:
    site.answer(ALARMS, "harms", 1.0, verdict="attributed", **HARM)
    site.answer(ALARMS, "limits", 5e6, direction="from_tenant", protocol="udp", **RED)
    site.answer(ALARMS, "alerts", 1.0, alertname="VigiaUdpFlood", severity="critical", tenant="red")
    site.answer(ALARMS, "floods", 91.0, **RED)
    cards = section(site.page("/incidents"), "lasts")
    assert re.findall(r'<li class="\w+"><p class="soft">(\w+)</p>', cards) == [
        "Cause",
        "Evidence",
        "Action",
        "Effect",
    ]


def test_alerts_of_nobody_are_counted_and_listed(site: Site) -> None:
    site.ranges[QUESTIONS["alert"]] = [
        Series({"alertname": name, "severity": "warning"}, [(T - 600.0, 1.0)]) for name in ("A", "B")
    ]
    text = site.page("/incidents")
    assert "2 alerts of this time belong to none of them, and are listed below." in section(text, "chains")
    assert "A: the site" in section(text, "hour") and "B: the site" in section(text, "hour")


def test_incidents_are_bounded(site: Site) -> None:
    site.ranges = {
        QUESTIONS["flood"]: [
            Series({**RED, "tenant": f"t{i:03}"}, [(T - 600.0, 91.0)]) for i in range(MOST_INCIDENTS + 7)
        ]
    }
    text = section(site.page("/incidents"), "chains")
    assert text.count("<article ") == MOST_INCIDENTS and "7 more incidents are left out, older ones." in text
    site.ranges = {
        QUESTIONS["flood"]: [Series({**RED, "port": f"p{i}"}, [(T - 600.0, 91.0)]) for i in range(30)]
    }
    assert "and 22 more, below" in section(site.page("/incidents?at=1s"), "chains")


def test_names_are_text(site: Site) -> None:
    site.ranges[QUESTIONS["begin"]] = [
        Series({"node": EVIL, "tenant": EVIL, "offender": EVIL}, [(T - 60.0, T - 100.0)])
    ]
    text = section(site.page("/incidents"), "chains")
    assert "<img" not in text and "&lt;img" in text and "\u202e" not in text


@pytest.mark.parametrize("since", PERIODS)
def test_a_period_is_chosen_by_a_link_and_kept(site: Site, since: str) -> None:
    text = site.page(f"/incidents?since={since}")
    (chosen,) = re.findall(r'aria-current="true">(\w+)</a>', text)
    assert chosen == since and f"The {PERIODS[since].words} before" in text
    kept = f'<input type="hidden" name="since" value="{since}">'
    assert (kept in text) == (since != "1h"), "the usual one needs no parameter"
    past = site.page(f"/incidents?since={since}&at=2h")
    links = re.findall(r'<a href="(/incidents\?[^"]*at=2h[^"]*)"', past)
    assert len(links) == len(PERIODS), "another period of the same moment"


@pytest.mark.parametrize("since", ["2h", "0", "-1h", "1e9", "99999999d", "nan", "1H", "<b>", "24h;1h", "٣h"])
def test_a_period_that_is_none_is_refused_with_the_fix(site: Site, since: str) -> None:
    got = site.client.get("/incidents", query_string={"since": since})
    assert got.status_code == 400
    assert got.text == f"since={since}: is none of the periods; write 15m, 1h, 6h, 24h\n"
    assert site.opened == 0, "and nothing is asked for it"


@pytest.mark.parametrize("address", [a for a in ADDRESSES if a != "/incidents"])
def test_other_pages_take_no_period(site: Site, address: str) -> None:
    got = site.client.get(f"{address}?since=1h")
    assert got.status_code == 400 and got.text.startswith("since is not a parameter of this page; it takes ")


def test_periods_share_their_answers(site: Site) -> None:
    for _ in range(5):
        for since in PERIODS:
            site.page(f"/incidents?since={since}")
    assert site.opened == len(PERIODS) + 1, "each timeline once, and what is wrong now once"


def test_of_the_past_all_of_it_is_known_before_the_answer_begins(site: Site) -> None:
    text = site.page("/incidents?at=30m&since=6h")
    assert 'data-every="0"' in text and "The 6 hours before" in text
    assert '<a href="/incidents?since=6h">now</a>' in text
