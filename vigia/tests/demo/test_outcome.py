"""What a play showed: each step is seen, the order makes sense, and the victim had what it was promised."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from vigia.demo import outcome, scenario
from vigia.demo.records import Probes
from vigia.demo.scenario import Play
from vigia.demo.transfer import Interval
from vigia.errors import OptionError, VigiaError
from vigia.flood import order
from vigia.flood.run import FloodReport
from vigia.flood.sender import FloodOutcome
from vigia.lab.model import Lab
from vigia.stack.agent import IsolationAction

START = 1_700_000_000.0
"""Unix time of the flood's first packet."""

INSTANTS = {
    "kernel_detected": START + 0.006,
    "alert_started": START + 0.229,
    "webhook_received": START + 0.235,
    "limit_verified": START + 0.302,
    "released": START + 31.7,
}


def action(**changes: float | None) -> IsolationAction:
    instants = {k: v for k, v in {**INSTANTS, **changes}.items() if v is not None}
    return IsolationAction("a1", 1, "udp-flood", "L1", "RELEASED", "evidence", 5_000_000, 1, instants)


def carried(rates: dict[float, float]) -> list[Interval]:
    """Readings of 0.2 s from 8 s before the flood to 36 s after it; rates hold from their moment on, Mbit/s."""
    found = []
    for n in range(-40, 180):
        begin = n * 0.2
        rate = [mbit for since, mbit in sorted(rates.items()) if since <= begin + 0.1][-1]
        found.append(Interval(START + begin, START + begin + 0.2, rate * 1e6, 0))
    return found


@pytest.fixture
def play(pairs: Lab) -> Play:
    """A play as it should be: the victim never falls below the 100 Mbit/s that it bought."""
    who = scenario.cast(pairs, "linuxbridge-vxlan")
    wanted = order.make(
        pairs,
        tenant="red",
        path="linuxbridge-vxlan",
        node="lb1",
        to=None,
        rate=scenario.RATE,
        seconds=15.0,
        size=1400,
    )
    nanoseconds = round(START * 1e9)
    flood = FloodReport(wanted, FloodOutcome(100_000, 0, nanoseconds, nanoseconds + 15_000_000_000))
    moments = {"begin": -7.0, "flood": 0.0, "limit": 0.302, "flood_end": 15.0, "release": 31.7, "end": 34.0}
    probes = {name: Probes(START + at, 20 * (at + 7), 0) for name, at in moments.items()}
    rates = {-8.0: 176.0, 0.0: 146.0, 0.2: 138.0, 15.0: 176.0}
    return Play(who, flood, action(), 5_000_000, carried(rates), probes, START - 8)


def test_a_play_as_it_should_be(play: Play) -> None:
    found = outcome.assess(play)
    assert [i.name for i in found.instants] == [
        *("flood_start", "kernel_detected", "alert_started", "webhook_received", "limit_verified"),
        *("victim_recovered", "flood_end", "released"),
    ]
    assert found.kept == {"first second of the flood": 1.0, "flood, limited": 1.0}
    assert [p.name for p in found.phases] == ["before", "flood, no limit", "flood, limited", "after"]
    assert [p.lost for p in found.phases] == [0, 0, 0, 0]
    before, _, limited, _ = found.phases
    assert before.bits_per_second == pytest.approx(176e6)
    assert limited.bits_per_second == pytest.approx(138e6, rel=0.02)


@pytest.mark.parametrize("event", ["kernel_detected", "alert_started", "webhook_received", "released"])
def test_a_step_that_was_not_seen_is_named(play: Play, event: str) -> None:
    with pytest.raises(VigiaError, match=rf"not observed: .* \(the action has no event {event}\)"):
        outcome.assess(replace(play, action=action(**{event: None})))


@pytest.mark.parametrize(
    ("event", "at"),
    [("kernel_detected", START - 5), ("webhook_received", START + 0.01), ("released", START + 3)],
)
def test_an_order_that_makes_no_sense_is_refused(play: Play, event: str, at: float) -> None:
    with pytest.raises(VigiaError, match=r"was measured before .*: the order makes no sense"):
        outcome.assess(replace(play, action=action(**{event: at})))


def test_clocks_may_differ_a_little(play: Play) -> None:
    assert outcome.assess(replace(play, action=action(kernel_detected=START - 0.1)))


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        (
            {-8.0: 176.0, 0.0: 50.0, 0.6: 120.0, 15.0: 176.0},
            r"had only 78% .*90% was promised \(first second",
        ),
        (
            {-8.0: 176.0, 0.0: 146.0, 0.4: 91.0, 13.8: 101.0, 15.0: 176.0},
            r"95% was promised \(flood, limited",
        ),
        ({-8.0: 176.0, 0.0: 94.0, 15.0: 94.0}, r"did not get its guarantee of 100 Mbit/s"),
    ],
)
def test_a_victim_without_its_guarantee_is_a_failure(
    play: Play, rates: dict[float, float], message: str
) -> None:
    with pytest.raises(VigiaError, match=message):
        outcome.assess(replace(play, intervals=carried(rates)))


def test_a_victim_that_never_recovers_is_a_failure(play: Play) -> None:
    with pytest.raises(
        VigiaError, match=r"did not get its guarantee of 100 Mbit/s under the limit: 30 Mbit/s"
    ):
        outcome.assess(replace(play, intervals=carried({-8.0: 176.0, 0.0: 30.0})))


def test_a_victim_may_dip_for_as_long_as_the_flood_is_not_noticed(play: Play) -> None:
    """What counts is a second: 40% of it at 85, the rest at 96."""
    dip = {-8.0: 176.0, 0.0: 85.0, 0.4: 96.0, 1.0: 138.0, 15.0: 176.0}
    found = outcome.assess(replace(play, intervals=carried(dip)))
    assert found.kept == {"first second of the flood": pytest.approx(0.916), "flood, limited": 1}
    assert found.first_second == found.worst_second == pytest.approx(91.6e6)


def test_the_worst_second_is_told_wherever_it_was(play: Play) -> None:
    dip = {-8.0: 176.0, 0.0: 146.0, 8.0: 40.0, 9.0: 138.0, 15.0: 176.0}
    found = outcome.assess(replace(play, intervals=carried(dip)))
    assert found.worst_second == pytest.approx(40e6)
    assert found.kept == {"first second of the flood": 1, "flood, limited": 1}
    assert found.victim().endswith("100% (flood, limited); its worst second: 40.0 Mbit/s")
    assert found.as_json()["guarantee"]["worst_second_bits_per_second"] == 40_000_000


def test_in_user_space_nothing_is_promised_until_the_limit(pairs: Lab, play: Play) -> None:
    kernel, ovs = (scenario.cast(pairs, path) for path in ("linuxbridge-vxlan", "ovs-vxlan"))
    assert outcome.promised(kernel, "userspace") == outcome.KEPT
    assert outcome.promised(ovs, "kernel") == outcome.KEPT
    promises = outcome.promised(ovs, "userspace")
    assert promises == {"flood, limited": 0.95}
    starved = replace(play, intervals=carried({-8.0: 176.0, 0.0: 50.0, 0.6: 120.0, 15.0: 176.0}))
    assert outcome.assess(starved, promises).kept["first second of the flood"] == pytest.approx(0.78)
    with pytest.raises(VigiaError, match="95% was promised"):
        outcome.assess(
            replace(play, intervals=carried({-8.0: 176.0, 0.0: 50.0, 0.6: 91.0, 13.8: 101.0, 15.0: 176.0})),
            promises,
        )


def test_a_second_ends_with_a_reading_that_took_long(play: Play) -> None:
    """Where the machine stalls a reading is longer, and counts for as long as it took."""
    readings = [i for i in play.intervals if not START + 4.9 < i.begin < START + 6.3]
    gap = Interval(START + 5.0, START + 6.4, 20e6, 0)
    found = sorted([*readings, gap], key=lambda i: i.begin)
    assert outcome.assess(replace(play, intervals=found)).worst_second == pytest.approx(20e6)


def test_a_transfer_without_readings_is_a_failure(play: Play) -> None:
    end = {name: replace(p, at=START) for name, p in play.probes.items() if name == "flood_end"}
    with pytest.raises(VigiaError, match="no reading during the flood"):
        outcome.assess(replace(play, probes={**play.probes, **end}))


def test_it_is_shown_to_people(play: Play) -> None:
    found = outcome.assess(play)
    lines = found.timeline().splitlines()
    assert lines[0].split() == ["time", "(UTC)", "since", "flood", "what"]
    assert re.fullmatch(r"22:13:20\.\d{6}Z +\+0\.000 s  red sends the first packet of the flood .*", lines[1])
    assert lines[-1].endswith("the limit is lifted on evidence, read back from the kernel")
    victim = found.victim()
    assert "it had 100% (first second of the flood), 100% (flood, limited)" in victim
    assert re.search(r"^before +7\.0 s +176 Mbit/s +0 +140 +0 %$", victim, re.MULTILINE)


@pytest.mark.parametrize("columns", [66, 78])
def test_it_fits_a_terminal(play: Play, columns: int) -> None:
    found = outcome.assess(play)
    told = found.timeline(columns), found.victim(columns)
    assert max(len(line) for text in told for line in text.splitlines()) <= columns
    for text, whole in zip(told, (found.timeline(), found.victim()), strict=True):
        assert sorted("".join(text.split())) == sorted("".join(whole.split())), "nothing is left out"


def test_a_phase_without_probes_has_no_loss(play: Play) -> None:
    probes = {**play.probes, "limit": replace(play.probes["limit"], sent=play.probes["flood"].sent)}
    found = outcome.assess(replace(play, probes=probes))
    assert found.phases[1].loss is None
    assert re.search(r"^flood, no limit .* 0 +-$", found.victim(), re.MULTILINE)


def test_it_is_data(play: Play) -> None:
    found: dict[str, Any] = outcome.assess(play).as_json()
    assert found["timeline"][0]["seconds_after_flood"] == 0
    assert found["timeline"][0]["at"] == "2023-11-14T22:13:20.000000Z"
    assert [p["probes_lost"] for p in found["victim"]] == [0, 0, 0, 0]
    assert found["guarantee"] == {
        "bits_per_second": 100_000_000,
        "kept": {"first second of the flood": 1.0, "flood, limited": 1.0},
        "worst_second_bits_per_second": 138_000_000,
    }


# --- the cast ---


def test_the_cast_shares_a_link(pairs: Lab) -> None:
    who = scenario.cast(pairs, "ovs-gre")
    assert (who.offender.node, who.victim.node, who.victim_sink.node) == ("ovs1", "ovs1", "ovs2")
    assert (who.offender.tenant, who.victim.tenant) == ("red", "blue")
    assert who.guarantee * 8 == 100_000_000


def test_a_path_without_the_offender_is_refused(pairs: Lab) -> None:
    with pytest.raises(
        OptionError, match=r'--path "direct" has no endpoint of tenant red; it has them on linux'
    ):
        scenario.cast(pairs, "direct")
