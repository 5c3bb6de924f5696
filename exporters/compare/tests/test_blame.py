"""Floods in a simulated site: whoever flooded is named in time, with what speaks for it, and nobody else ever is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from vigia_compare.blame import Blamed, blame, restrained
from vigia_compare.facts import Facts
from vigia_compare.windows import Grid
from vigia_statistics.samples import Floats

from .simulated_site import SECONDS, Site


@dataclass
class Play:
    """A site in which something happens, and whether anybody may be blamed for it."""

    site: Site
    guilty: str | None
    begin: int = 0
    sure: bool = True
    """Whether the guilty one has to be named."""


def _begin(rng: np.random.Generator) -> int:
    return int(rng.integers(300, 700))


def flood_without_isolation(rng: np.random.Generator) -> Play:
    site, begin = Site(rng, isolation=False), _begin(rng)
    site.flood(begin, int(rng.integers(12, 41)), rng.uniform(30e6, 60e6))
    return Play(site, "red", begin)


def flood_where_no_contract_is_known(rng: np.random.Generator) -> Play:
    site, begin = Site(rng, isolation=False, contracts=False), _begin(rng)
    site.flood(begin, 20, rng.uniform(30e6, 60e6))
    return Play(site, "red", begin)


def flood_under_a_limit_beside_a_transfer(rng: np.random.Generator) -> Play:
    """Blue borrows what nobody uses, and red takes it away: the demo."""
    site, begin = Site(rng), _begin(rng)
    _transfer(site, begin, 12, 22e6)
    site.flood(begin, 12, 45e6)
    return Play(site, "red", begin)


def _transfer(site: Site, begin: int, seconds: int, rate: float) -> None:
    """Blue sends at a rate, and from the second second of somebody's flood on a little more than it has then."""
    site.offered[("n1", "blue")][begin - 20 : begin + 40] = rate
    site.offered[("n1", "blue")][begin + 1 : begin + seconds + 1] = 10e6


def flood_beside_innocents_that_are_busy_just_then(rng: np.random.Generator) -> Play:
    site, begin = Site(rng, isolation=False), _begin(rng)
    for tenant in ("green", "white"):
        site.busy(tenant, begin - 2, 30)
    site.flood(begin, 20, 40e6)
    return Play(site, "red", begin)


def flood_from_the_other_end(rng: np.random.Generator) -> Play:
    """From n2: what blue's probes from n1 lose is on their way back."""
    site, begin = Site(rng, isolation=False), _begin(rng)
    site.flood(begin, 20, 40e6, node="n2")
    site.lost[begin : begin + 20] += rng.binomial(20, 0.4, 20)
    return Play(site, "red", begin)


def flood_from_a_third_node(rng: np.random.Generator) -> Play:
    """It arrives at n2, which blue probes."""
    site, begin = Site(rng, isolation=False), _begin(rng)
    site.flood(begin, 20, 40e6, node="n3")
    site.arriving[("n2", "red")] = np.full(SECONDS, 1e3)
    site.arriving[("n2", "red")][begin : begin + 20] += 12e6
    return Play(site, "red", begin)


def nothing_but_stray_losses(rng: np.random.Generator) -> Play:
    site = Site(rng)
    site.stray(0.01)
    return Play(site, None)


def innocents_at_their_contracts_while_blue_loses(rng: np.random.Generator) -> Play:
    """They are as busy as they may just when something breaks that is none of theirs."""
    site, begin = Site(rng, isolation=bool(rng.random() < 0.5)), _begin(rng)
    for tenant in ("green", "white"):
        site.busy(tenant, begin, 30)
    site.lost[begin : begin + 30] += rng.binomial(20, 0.3, 30)
    return Play(site, None)


def innocent_that_looks_like_a_flood(rng: np.random.Generator) -> Play:
    """A name server within its contract, while probes are lost elsewhere, and in strays."""
    site, begin = Site(rng, isolation=bool(rng.random() < 0.5)), _begin(rng)
    site.suspicious("green")
    site.stray(0.005)
    site.lost[begin : begin + 20] += rng.binomial(20, 0.3, 20)
    return Play(site, None)


def flood_beside_one_that_looks_like_it(rng: np.random.Generator) -> Play:
    site, begin = Site(rng, isolation=False), _begin(rng)
    site.suspicious("green")
    site.flood(begin, 20, 40e6)
    return Play(site, "red", begin)


def flood_that_hurts_nobody(rng: np.random.Generator) -> Play:
    """Blue loses something at quite another time, and always a little."""
    site, begin = Site(rng), _begin(rng)
    site.flood(begin, 20, 40e6)
    site.lost[begin - 200 : begin - 160] += rng.binomial(20, 0.3, 40)
    return Play(site, None)


def transfer_of_blues_own(rng: np.random.Generator) -> Play:
    """Blue sends more than the link has left, and drops some of it: more than a transfer goes on with."""
    site, begin = Site(rng, isolation=bool(rng.random() < 0.5)), _begin(rng)
    site.offered[("n1", "blue")][begin : begin + 40] = 24e6
    return Play(site, None)


def one_port_beside_a_transfer(rng: np.random.Generator) -> Play:
    """Blue borrows, red sends to a single port, and the schedulers keep everybody's guarantee: no score, no limit."""
    site, begin = Site(rng), _begin(rng)
    _transfer(site, begin, 10, 20e6)
    site.offered[("n1", "red")][begin : begin + 10] = rng.uniform(25e6, 60e6)
    return Play(site, "red", begin)


def neighbour_beyond_its_contract(rng: np.random.Generator) -> Play:
    """No flood by its looks: the contract and the full queue speak."""
    site, begin = Site(rng, isolation=False), _begin(rng)
    site.offered[("n1", "red")][begin : begin + 40] = 40e6
    return Play(site, "red", begin)


def small_packets_that_fill_a_switch(rng: np.random.Generator) -> Play:
    """Within the bytes of red's contract, and for less than the interval of the counters."""
    site, begin = Site(rng, isolation=bool(rng.random() < 0.5), per_packet=18e-6), _begin(rng)
    site.small_packets(begin, int(rng.integers(7, 14)), float(rng.uniform(55e3, 65e3)))
    return Play(site, "red", begin)


def small_packets_beside_one_that_looks_like_it(rng: np.random.Generator) -> Play:
    play = small_packets_that_fill_a_switch(rng)
    play.site.suspicious("white")
    return play


def innocents_on_a_busy_switch(rng: np.random.Generator) -> Play:
    """They fill it now and then by all that they bought, and one of them looks like a flood."""
    site = Site(rng, isolation=bool(rng.random() < 0.5), per_packet=60e-6)
    site.suspicious("white")
    return Play(site, None)


PLAYS: tuple[Callable[[np.random.Generator], Play], ...] = (
    flood_without_isolation,
    flood_where_no_contract_is_known,
    flood_under_a_limit_beside_a_transfer,
    flood_beside_innocents_that_are_busy_just_then,
    flood_from_the_other_end,
    flood_from_a_third_node,
    flood_beside_one_that_looks_like_it,
    neighbour_beyond_its_contract,
    one_port_beside_a_transfer,
    nothing_but_stray_losses,
    innocents_at_their_contracts_while_blue_loses,
    innocent_that_looks_like_a_flood,
    flood_that_hurts_nobody,
    transfer_of_blues_own,
    small_packets_that_fill_a_switch,
    small_packets_beside_one_that_looks_like_it,
    innocents_on_a_busy_switch,
)


def named(found: list[Blamed]) -> str | None:
    blue = [b for b in found if b.tenant == "blue"]
    return blue[0].offender if blue else None


@pytest.mark.parametrize(
    "runs", [pytest.param(5, id="short"), pytest.param(80, id="1360-runs", marks=pytest.mark.long)]
)
def test_the_guilty_are_named_within_30_seconds_and_an_innocent_one_never_is(runs: int) -> None:
    """Of 17 plays: what is said of the whole period, and what was said half a minute after the beginning."""
    said: dict[str, Counter[object]] = {}
    soon: dict[str, Counter[object]] = {}
    for number, make in enumerate(PLAYS):
        name = make.__name__
        said[name], soon[name] = Counter(), Counter()
        for seed in range(runs):
            play = make(np.random.default_rng([31, number, seed]))
            found = blame(play.site.facts())
            said[name][named(found)] += 1
            for b in found:
                assert b.offender == play.guilty, (name, seed, b)
                assert b.tenant != play.guilty, (name, seed, b)
            if play.guilty:
                early = blame(play.site.facts(play.begin + 30))
                soon[name][named(early)] += 1
                assert {b.offender for b in early} <= {play.guilty}, (name, seed)
    for make in PLAYS:
        guilty = make(np.random.default_rng(0)).guilty
        if guilty:
            assert said[make.__name__][guilty] >= 0.97 * runs, (make.__name__, said)
            assert soon[make.__name__][guilty] >= 0.97 * runs, (make.__name__, soon)


# One thing at a time


STEPS = 120
AT = slice(60, 64)
"""Steps of the flood."""

RED, BLUE = ("n1", "red", "r1"), ("n1", "blue", "b1")


def during(value: float, otherwise: float = np.nan, late: int = 0) -> Floats:
    """A series with one value during the flood, some steps late, and another at other times."""
    out = np.full(STEPS, otherwise)
    out[AT.start + late : AT.stop + late] = value
    return out


def facts(**changed: Any) -> Facts:
    """Red floods from n1, beyond its contract; blue, which probes n2 from n1, loses probes meanwhile."""
    known: dict[str, Any] = {
        "score": {RED: during(95.0)},
        "spread": {RED: during(400.0)},
        "sent": {RED: during(40e6, 1e3, late=1), BLUE: np.full(STEPS, 1e6)},
        "guarantee": {RED: np.full(STEPS, 5e6), BLUE: np.full(STEPS, 8e6)},
        "loss": {("n1", "n2", "blue"): during(0.3)},
    }
    return Facts(Grid(1_800_000_000.0, 5.0, STEPS), **(known | changed))


def test_a_flood_beyond_its_contract_that_hurts_is_named_with_all_that_is_known() -> None:
    known = facts(limit={RED: during(5e6, late=1)}, lost_at={("n1", "queue/up0"): during(900.0, 0.0)})
    (one,) = blame(known)
    assert (one.node, one.tenant, one.offender, one.source, one.ports) == ("n1", "blue", "red", "n1", ["r1"])
    assert (one.measure, one.certain, one.own_share) == ("loss", True, 0.0)
    assert one.share == pytest.approx(1.0) and one.p_value is not None and one.p_value <= 0.05
    assert [c.kind for c in one.clues] == ["flood", "limit", "contract", "saturation", "coincidence"]
    assert (one.begin, one.end) == (known.at(AT.start) - 5.0, known.at(AT.stop - 1))


@pytest.mark.parametrize(
    "innocent",
    [
        {"score": {}, "spread": {}},
        {"score": {RED: during(69.0)}},
        {"sent": {RED: during(5.2e6, 1e3, late=1)}},
        {"sent": {}},
        {"loss": {("n1", "n2", "blue"): during(0.3, late=-20)}},
        {"loss": {("n1", "n2", "red"): during(0.3)}},
        {"loss": {("n2", "n3", "blue"): during(0.3, late=-20)}},
        {"loss": {("n1", "n2", "blue"): np.full(STEPS, 0.3)}},
        {"limit": {BLUE: during(1e6)}},
    ],
    ids=["no flood", "no flood yet", "within its contract", "no counter yet", "another time", "its own harm",
         "other nodes", "always bad", "blue is limited itself"],
)  # fmt: skip
def test_nobody_is_named_where_one_thing_is_missing(innocent: dict[str, Any]) -> None:
    assert blame(facts(**innocent)) == []


def heedless(part: float, sent: float = 40e6) -> Facts:
    """Red sends to one port, of whose packets a part is dropped, and blue waits on a full link meanwhile."""
    return facts(
        score={},
        spread={},
        loss={},
        sent={RED: during(sent, 1e3, late=1), BLUE: np.full(STEPS, 1e6)},
        packets={RED[:2]: during(30e3, 1.0, late=1)},
        drops={RED[:2]: during(part * 30e3, 0.0, late=1)},
        taken={("n1", "blue", "red"): during(4e6)},
    )


def test_who_heeds_no_loss_floods_whatever_it_looks_like() -> None:
    (one,) = blame(heedless(0.6))
    assert (one.tenant, one.offender, one.ports, one.measure, one.certain) == (
        "blue",
        "red",
        ["r1"],
        "bandwidth",
        True,
    )
    assert [c.kind for c in one.clues][:3] == ["heedless", "contract", "saturation"]
    assert one.clues[0].text == "red sent on while 60.0 % of it was dropped"
    assert one.clues[0].value == pytest.approx(0.6, rel=1e-3)
    assert restrained(heedless(0.6))[RED[:2]].any()


def test_a_flood_that_two_scrapes_share_is_beyond_its_contract_all_the_same() -> None:
    """10 s of 7.2 MB/s are 36 MB in each of two scrapes, 2.4 MB/s: well within the 5 that red bought."""
    first = AT.start
    two_scrapes = np.full(STEPS, 1e3)
    two_scrapes[first : first + 6] = 2.4e6
    shared = replace(heedless(0.6), sent={RED: two_scrapes, BLUE: np.full(STEPS, 1e6)})
    assert blame(shared) == [], "who takes for half a minute and sends so little has not taken it"
    brief = {("n1", "blue", "red"): np.zeros(STEPS)}
    brief[("n1", "blue", "red")][first : first + 2] = 1e6
    (one,) = blame(replace(shared, taken=brief))
    assert (one.offender, one.measure, one.ports) == ("red", "bandwidth", ["r1"])
    assert {"heedless", "contract"} <= {c.kind for c in one.clues}
    for missing in ({"packets": {}}, {"drops": {}}, {"guarantee": {}}, {"taken": {}}):
        assert blame(replace(shared, taken=brief, **missing) if "taken" not in missing else shared) == []


def test_a_flood_that_a_switch_loses_uncounted_is_told_by_its_senders_own_probes() -> None:
    """Open vSwitch in user space, overrun: no counter of red's drops, and more than half of red's probes lost."""
    own = {("n1", "n2", "red"): during(0.58)}
    quiet = replace(heedless(0.0), loss=own, taken={("n1", "blue", "red"): during(1e6)})
    (one,) = blame(quiet)
    assert (one.tenant, one.offender, one.certain) == ("blue", "red", True)
    assert one.clues[0].text == "red sent on while 58.0 % of its probes were lost"
    for innocent in (
        replace(quiet, loss={("n1", "n2", "red"): during(0.2)}),
        replace(quiet, loss={("n2", "n1", "red"): during(0.58)}),
        replace(quiet, taken={("n1", "blue", "red"): during(0.3e6)}),
        replace(quiet, sent={RED: during(4.9e6, 1e3, late=1), BLUE: np.full(STEPS, 1e6)}),
    ):
        assert blame(innocent) == []


@pytest.mark.parametrize("flood", ["dropped", "scored", "limited"])
def test_who_borrows_and_loses_probes_beside_a_flood_is_its_victim_and_no_flood(flood: str) -> None:
    """Blue's transfer takes what red waits for, and a third of its probes is lost in the queue that red fills."""
    borrowing: dict[str, Any] = {
        "sent": {RED: during(40e6, 1e3, late=1), BLUE: np.full(STEPS, 16e6)},
        "taken": {("n1", "blue", "red"): during(2e6), ("n1", "red", "blue"): during(1.5e6)},
        "loss": {("n1", "n2", "blue"): during(0.35)},
    }
    how: dict[str, dict[str, Any]] = {
        "dropped": {},
        "scored": {"score": {RED: during(95.0)}},
        "limited": {"score": {RED: during(45.0)}, "limit": {RED: during(5e6)}},
    }
    beside = replace(heedless(0.6 if flood == "dropped" else 0.0), **borrowing, **how[flood])
    (one,) = blame(beside)
    assert (one.tenant, one.offender) == ("blue", "red")
    assert set(restrained(beside)) == {RED[:2]}
    alone = replace(heedless(0.0), **borrowing)
    assert BLUE[:2] in restrained(alone), "where nobody else floods it is blue's own doing"


@pytest.mark.parametrize(
    "innocent",
    [heedless(0.2), heedless(0.6, sent=4.9e6), replace(heedless(0.6), packets={}), replace(heedless(0.6), taken={}),
     replace(heedless(0.6), guarantee={}), replace(heedless(0.6), drops={RED[:2]: during(0.3, 0.0)}, packets={RED[:2]: during(0.5)})],
    ids=["a transfer that heeds loss", "within its contract", "packets are not known", "nobody waits", "no contract is known",
         "a few packets"],
)  # fmt: skip
def test_who_borrows_or_keeps_to_its_contract_does_not(innocent: Facts) -> None:
    assert blame(innocent) == []


def test_a_flood_of_one_port_is_one() -> None:
    (one,) = blame(facts(spread={RED: during(1.0)}))
    assert one.offender == "red"
    assert one.clues[0].text.endswith("flooded 1 UDP port (score 95 of 100)"), one.clues[0].text


def test_without_a_contract_the_element_must_have_been_full_or_harm_coincide() -> None:
    young = {"guarantee": {}, "watched": {"n1": during(1.0)}}
    assert blame(facts(**young)) == [], "too few steps to tell"
    (full,) = blame(facts(**young, lost_at={("n1", "queue/up0"): during(900.0, 0.0)}))
    assert full.certain and full.p_value is None
    (coincides,) = blame(facts(guarantee={}))
    assert "coincidence" in {c.kind for c in coincides.clues}


def test_small_packets_within_a_contract_that_fill_a_processor_are_named() -> None:
    used = {("n1", "ovs-vswitchd", t): during(v, 0.01) for t, v in (("red", 0.8), ("blue", 0.1))}
    within = {"sent": {RED: during(4e6, 1e3, late=1), BLUE: np.full(STEPS, 1e6)}, "used": used}
    assert blame(facts(**within, processes={("n1", "ovs-vswitchd"): during(0.5, 0.1)})) == []
    (one,) = blame(facts(**within, processes={("n1", "ovs-vswitchd"): during(0.97, 0.1)}))
    assert one.share == pytest.approx(8 / 9, rel=0.02) and "contract" not in {c.kind for c in one.clues}
    # A flood of seconds fills no processor by the average of a scrape; the exporter counted the seconds.
    short = {**within, "processes": {("n1", "ovs-vswitchd"): during(0.6, 0.1)}}
    (one,) = blame(facts(**short, full={("n1", "ovs-vswitchd"): during(0.5, 0.0)}))
    full = "ovs-vswitchd on n1 was full for 10 s"
    assert (one.offender, [c.text for c in one.clues if c.kind == "saturation"]) == ("red", [full])
    assert blame(facts(**short, full={("n1", "ovs-vswitchd"): during(0.05, 0.0)})) == [], "a second"
    assert blame(facts(**short, full={("n2", "ovs-vswitchd"): during(0.5, 0.0)})) == [], "another node's"
    others = {("n1", "ovs-vswitchd", t): during(v, 0.01) for t, v in (("red", 0.3), ("blue", 0.5))}
    busy = {**short, "used": others, "full": {("n1", "ovs-vswitchd"): during(0.5, 0.0)}}
    assert blame(facts(**busy)) == [], "blue filled it itself"


def test_from_another_node_it_is_certain_where_the_flood_was_seen_to_arrive_else_likely() -> None:
    elsewhere = {"loss": {("n2", "n3", "blue"): during(0.3)}}
    (likely,) = blame(facts(**elsewhere))
    assert not likely.certain and likely.node == "n2", "they coincide, and no more"
    (certain,) = blame(facts(**elsewhere, received={("n3", "red"): during(20e6, 1e3, late=1)}))
    assert certain.certain and "arrival" in {c.kind for c in certain.clues}


def test_records_of_a_minute_and_drops_are_harm_too() -> None:
    nothing: dict[str, Any] = {"loss": {}}
    assert blame(facts(**nothing)) == []
    (slow,) = blame(facts(**nothing), {("n1", "blue"): ("delay", np.nan_to_num(during(0.02)))})
    assert slow.measure == "delay"
    (dropped,) = blame(facts(**nothing, drops={("n1", "blue"): during(40.0, 0.0)}))
    assert dropped.measure == "drops"
    assert blame(facts(**nothing, drops={("n1", "blue"): during(0.3, 0.0)})) == [], "six packets"


def test_bandwidth_that_the_flooder_takes_from_one_who_waits_is_harm() -> None:
    """Isolation leaves nothing else to see: blue lost no probe, and nothing of it was dropped."""
    nothing: dict[str, Any] = {"loss": {}}
    one_step = np.full(STEPS, np.nan)
    one_step[AT.start] = 0.7e6
    (one,) = blame(facts(**nothing, taken={("n1", "blue", "red"): one_step}))
    assert (one.node, one.tenant, one.offender, one.measure, one.certain) == (
        "n1",
        "blue",
        "red",
        "bandwidth",
        True,
    )
    assert any(
        "while blue waited" in c.text and c.value == 0.7e6 for c in one.clues if c.kind == "saturation"
    )


@pytest.mark.parametrize(
    "taken",
    [
        {("n1", "blue", "green"): during(2e6)},
        {("n2", "blue", "red"): during(2e6)},
        {("n1", "blue", "red"): during(2e6, late=-20)},
        {("n1", "blue", "red"): np.full(STEPS, 2e6)},
        {("n1", "blue", "red"): during(0.005e6)},
        {("n1", "red", "blue"): during(2e6)},
    ],
    ids=[
        "by somebody else",
        "on another node",
        "at another time",
        "always",
        "next to nothing",
        "from the flooder",
    ],
)
def test_bandwidth_that_the_flood_did_not_take_is_not_its_harm(taken: dict[Any, Floats]) -> None:
    assert blame(facts(loss={}, taken=taken)) == []


@pytest.mark.parametrize("every", [8, 10, 16], ids=["40 s", "50 s", "80 s"])
def test_who_floods_again_and_again_is_named_for_each(every: int) -> None:
    """What blue suffers from red's other floods, which may be worse, is none to compare with."""

    def at_each(value: float, steps: int, otherwise: float = np.nan, late: int = 0) -> Floats:
        out = np.full(STEPS, otherwise)
        for first in range(4, STEPS - 5, every):
            out[first + late : first + late + steps] = value
        return out

    last = range(4, STEPS - 5, every)[-1]
    taken = at_each(2e6, 2)
    taken[last : last + 2] /= 4.0
    known = facts(
        score={RED: at_each(95.0, 2)},
        spread={RED: at_each(400.0, 2)},
        sent={RED: at_each(40e6, 3, 1e3, late=1), BLUE: np.full(STEPS, 1e6)},
        loss={},
        taken={("n1", "blue", "red"): taken},
    )
    (one,) = blame(known)
    assert (one.tenant, one.offender, one.measure) == ("blue", "red", "bandwidth")
    assert (one.begin, one.end) == (known.at(last) - 5.0, known.at(last + 1))
    # But it is not named for what blue always suffers, by others as well.
    always = {("n1", "n2", "blue"): np.where(np.arange(STEPS) % 3 == 0, 0.3, 0.2)}
    assert blame(replace(known, taken={}, loss=always)) == []


def test_what_happens_now_is_not_hidden_by_what_was_worse_before() -> None:
    """Green takes bandwidth, a quarter of an hour after red's flood that cost blue probes."""
    green = ("n1", "green", "g1")
    later = {name: during(value, late=40) for name, value in (("score", 95.0), ("spread", 400.0))}
    known = facts(
        score={RED: during(95.0), green: later["score"]},
        spread={RED: during(400.0), green: later["spread"]},
        sent={
            RED: during(40e6, 1e3, late=1),
            green: during(40e6, 1e3, late=41),
            BLUE: np.full(STEPS, 1e6),
        },
        guarantee={p: np.full(STEPS, 5e6) for p in (RED, green, BLUE)},
        taken={("n1", "blue", "green"): during(2e6, late=40)},
    )
    (one,) = blame(known)
    assert (one.tenant, one.offender, one.measure) == ("blue", "green", "bandwidth")
    assert one.begin == known.at(AT.start + 40) - 5.0
    (before,) = blame(replace(known, taken={}))
    assert (before.tenant, before.offender, before.measure) == ("blue", "red", "loss")


def test_two_who_borrow_and_take_from_each_other_hurt_nobody() -> None:
    borrowed = {("n1", "blue", "red"): during(2e6), ("n1", "red", "blue"): during(2e6)}
    assert blame(facts(score={}, spread={}, loss={}, taken=borrowed)) == []


def test_who_floods_or_is_limited_is_at_fault_then() -> None:
    at_fault = restrained(facts(limit={BLUE: during(1e6, late=10)}))
    assert set(at_fault) == {("n1", "red"), ("n1", "blue")}
    assert np.flatnonzero(at_fault[("n1", "red")]).tolist() == list(range(60, 64))
    assert np.flatnonzero(at_fault[("n1", "blue")]).tolist() == list(range(70, 74))
