"""Like with like: which paths are compared, on which hosts, and what is said of those that are not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from vigia_compare.evidence import Book
from vigia_compare.findings import COSTS, NO_COMMON_HOSTS, OPEN, noted
from vigia_compare.pairing import Side, sides
from vigia_compare.paths import Kind, data_planes, elements, kind
from vigia_compare.readings import Readings
from vigia_compare.standings import standings
from vigia_statistics.sequential import Scale

from .made import BASE, HOSTS, KNOWN, TERMS, attributes, found_in, known, readings

OTHER, THIRD = ("n3", "n4"), ("n5", "n6")
RNG = np.random.default_rng(51)


def noisy(level: float, count: int = 60) -> np.ndarray:
    return level * RNG.lognormal(0.0, 0.03, count)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("gre", "vxlan", Kind.CONTEST),
        ("gre", "bridge", Kind.CONTEST),
        ("gre", "netdev", Kind.CONTEST),
        ("gre", "direct", Kind.REFERENCE),
        ("ipsec", "direct", Kind.REFERENCE),
        ("ipsec", "gre", Kind.ELEMENT),
        ("openflow", "gre", Kind.ELEMENT),
        ("both", "ipsec", Kind.ELEMENT),
        ("both", "gre", None),
        ("ipsec", "vxlan", None),
        ("macvlan", "gre", None),
        ("openflow", "openflow", None),
        ("direct", "direct", None),
    ],
)
def test_why_two_paths_are_compared(a: str, b: str, why: Kind | None) -> None:
    assert kind(KNOWN[a], KNOWN[b]) is kind(KNOWN[b], KNOWN[a]) is why


def test_elements_are_one_thing() -> None:
    assert elements(KNOWN["ipsec"], KNOWN["gre"]) == "security esp"
    assert elements(KNOWN["gre"], KNOWN["ipsec"]) == elements(KNOWN["vxlan"], KNOWN["gre"]) == ""
    # ESP is the encapsulation of a path that is encrypted: one thing in two attributes.
    encrypted = attributes(encap="esp", security="ipsec")
    assert elements(encrypted, KNOWN["gre"]) == "security ipsec"


def test_a_data_plane_in_user_space_is_named_beside_one_in_the_kernel() -> None:
    words = data_planes("gre", KNOWN["netdev"], "bridge", KNOWN["bridge"])
    assert words == "gre runs in user space (ovs-userspace), bridge in the kernel (linuxbridge)"
    assert data_planes("gre", KNOWN["gre"], "bridge", KNOWN["bridge"]) == "", "both in the kernel"
    assert data_planes("gre", attributes(dataplane="asic"), "bridge", KNOWN["bridge"]) == ""
    (found,) = found_in(readings("rtt", {"netdev": noisy(40e-6), "bridge": noisy(20e-6)}))
    assert found.verdict == "bridge" and "user space (ovs-userspace)" in found.words


def test_hosts_and_technology_are_not_confounded() -> None:
    """The better hardware under the worse technology: only the hosts that both share count."""
    slow, fast = 60e-6, 20e-6
    paths = {
        "gre": {HOSTS: noisy(slow), OTHER: noisy(fast)},
        "vxlan": {HOSTS: noisy(0.7 * slow), THIRD: noisy(3 * slow)},
    }
    (found,) = found_in(readings("rtt", paths))
    assert (found.verdict, found.hosts) == ("vxlan", 1), "pooled, gre would be better by far"
    assert found.ratio is not None and found.ratio[1] == pytest.approx(1 / 0.7, rel=0.02)


def test_pairs_of_hosts_are_strata() -> None:
    """Each counts alike, whatever its own level; a window counts where both paths have a value."""
    gap = np.where(np.arange(60) < 30, np.nan, 1.0)
    paths = {
        "gre": {HOSTS: noisy(20e-6), OTHER: noisy(2e-3)},
        "vxlan": {HOSTS: 1.5 * noisy(20e-6), OTHER: 1.5 * noisy(2e-3) * gap},
    }
    (found,) = found_in(readings("rtt", paths))
    assert (found.verdict, found.hosts, found.windows) == ("gre", 2, 60)
    assert found.ratio is not None and found.ratio[1] == pytest.approx(1 / 1.5, rel=0.02)


def test_paths_without_common_hosts_are_said_to_be_so() -> None:
    paths = {"gre": {HOSTS: noisy(20e-6)}, "vxlan": {OTHER: noisy(40e-6)}, "bridge": {OTHER: noisy(30e-6)}}
    found = {(f.a, f.b): f for f in found_in(readings("rtt", paths))}
    assert found[("bridge", "vxlan")].verdict == "bridge"
    apart = found[("gre", "vxlan")]
    assert apart.verdict == NO_COMMON_HOSTS and apart.said == apart.words == (
        "gre (n1-n2) and vxlan (n3-n4) share no pair of hosts: hosts and technology cannot be told apart; vxlan "
        "between n1-n2 as well, or twins of both on the underlay, would tell"
    )  # fmt: skip
    (cell,) = standings(list(found.values()))
    assert not cell.decided and "share no pair of hosts" in cell.said
    # Paths that would not compete on common hosts are not said to lack them.
    assert found_in(readings("rtt", {"ipsec": {HOSTS: noisy(1.0)}, "vxlan": {OTHER: noisy(1.0)}})) == []


def test_paths_that_are_gone_are_not_said_to_lack_hosts() -> None:
    book = Book(TERMS)
    paths = {"gre": {HOSTS: noisy(20e-6)}, "vxlan": {OTHER: noisy(40e-6)}}
    first, jitter = readings("rtt", paths), readings("jitter", paths)
    assert len(found_in(first, jitter, book=book)) == 2
    (left,) = found_in(Readings("rtt", first.grid), book=book)
    assert left.cell.metric == "jitter"
    (left,) = found_in(Readings("loss", first.grid), book=book)
    assert left.cell.metric == "jitter", "nothing was read of it"


def test_what_has_more_goes_first_so_that_costs_are_above_zero() -> None:
    paths = {"direct": noisy(20e-6), "gre": noisy(30e-6), "ipsec": noisy(50e-6)}
    found = {(f.a, f.b): f for f in found_in(readings("rtt", paths))}
    assert set(found) == {("gre", "direct"), ("ipsec", "direct"), ("ipsec", "gre")}
    for pair, cost in found.items():
        assert (cost.verdict, cost.better, cost.scale) == (COSTS, pair[1], Scale.DIFFERENCE)
        assert cost.shift[0] < cost.shift[1] < cost.shift[2]
    assert found[("gre", "direct")].shift[1] == pytest.approx(10e-6, rel=0.1)
    assert (
        found[("gre", "direct")].said.startswith("gre has 1")
        and " µs above direct" in found[("gre", "direct")].said
    )
    assert standings(list(found.values())) == [], "the underlay is the reference, never a contestant"


def test_differences_of_twins_decide_what_common_noise_hides() -> None:
    """Load that both probes of a pair meet hides 1 us from two medians, and cancels in the differences."""
    common = 1e-6 * RNG.lognormal(4.0, 0.8, 120)
    apart = 1e-6 * RNG.lognormal(4.0, 0.8, 120)
    paths = {"direct": common, "gre": apart + 1e-6}
    (alone,) = found_in(readings("rtt", paths))
    (twins,) = found_in(readings("rtt", paths, twins={"gre": RNG.normal(3e-6, 5e-7, 120)}))
    assert alone.verdict == OPEN and twins.verdict == COSTS
    assert twins.shift[0] < 3e-6 < twins.shift[2] and twins.shift[2] - twins.shift[0] < 2e-6


def test_twins_tell_technologies_apart_that_share_no_hosts() -> None:
    """Each above the underlay of its own hosts: the slow hosts of the better technology do not count."""
    paths = {"gre": {HOSTS: noisy(80e-6)}, "vxlan": {OTHER: noisy(30e-6)}}
    twins = {"gre": {HOSTS: RNG.normal(3e-6, 5e-7, 60)}, "vxlan": {OTHER: RNG.normal(9e-6, 5e-7, 60)}}
    (found,) = found_in(readings("rtt", paths, twins=twins))
    assert (found.verdict, found.kind, found.scale, found.hosts) == ("gre", Kind.CONTEST, Scale.DIFFERENCE, 2)
    assert found.shift[0] < -6e-6 < found.shift[2] < 0.0
    assert "share no pair of hosts" in found.words and "by twins" in found.words
    assert noted(found.notes) == "other hosts, by twins"
    (cell,) = standings([found])
    assert (cell.winner, cell.note) == ("gre", "other hosts, by twins")
    (half,) = found_in(readings("rtt", paths, twins={"gre": twins["gre"]}))
    assert half.verdict == NO_COMMON_HOSTS, "twins of one path tell nothing of the other"
    unlike = readings("rtt", {"netdev": paths["gre"], "bridge": paths["vxlan"]},
                      twins={"netdev": twins["gre"], "bridge": twins["vxlan"]})  # fmt: skip
    (both,) = found_in(unlike)
    assert noted(both.notes) == "kernel against user space, other hosts, by twins"


def test_equal_technologies_on_unequal_hosts_are_not_told_apart_by_twins() -> None:
    named = 0
    for seed in range(100):
        rng = np.random.default_rng([52, seed])
        paths = {"gre": {HOSTS: noisy(80e-6)}, "vxlan": {OTHER: noisy(30e-6)}}
        twins = {p: {h: rng.normal(5e-6, 5e-7, 60)} for p, h in (("gre", HOSTS), ("vxlan", OTHER))}
        (found,) = found_in(readings("rtt", paths, twins=twins))
        named += found.better != ""
    assert named <= 8, "5 % at most, and a deviation"


def test_the_cost_of_an_element_is_paired_by_twins_of_both() -> None:
    """Load that each path meets at its own moments hides 2 us of two medians; each cancels with its own twin."""
    gre, ipsec = (1e-6 * RNG.lognormal(4.0, 0.8, 120) for _ in range(2))
    paths = {"gre": gre, "ipsec": ipsec + 2e-6}
    twins = {"gre": RNG.normal(3e-6, 5e-7, 120), "ipsec": RNG.normal(5e-6, 5e-7, 120)}
    (alone,) = found_in(readings("rtt", paths))
    (paired,) = found_in(readings("rtt", paths, twins=twins))
    assert (alone.verdict, paired.verdict, paired.kind) == (OPEN, COSTS, Kind.ELEMENT)
    assert paired.shift[0] < 2e-6 < paired.shift[2] and paired.shift[2] - paired.shift[0] < 2e-6
    (half,) = found_in(readings("rtt", paths, twins={"gre": twins["gre"]}))
    assert half.verdict == OPEN, "twins of one alone are no pair"


def test_data_planes_are_looked_at_on_every_host() -> None:
    of = replace(known(), by_node={(n, p): KNOWN[p] for n in ("n1", "n3") for p in ("gre", "bridge")})
    of = replace(of, by_node={**of.by_node, ("n3", "gre"): replace(KNOWN["gre"], dataplane="ovs-userspace")})
    paths = {p: {HOSTS: noisy(20e-6), OTHER: noisy(20e-6)} for p in ("gre", "bridge")}
    (found,) = found_in(readings("rtt", paths), of=of)
    assert noted(found.notes) == "kernel against user space", "they are alike on the first host alone"


def test_user_space_beside_what_nobody_states() -> None:
    unknown = attributes(dataplane="unknown")
    words = data_planes("gre", KNOWN["netdev"], "other", unknown)
    assert words == data_planes("other", unknown, "gre", KNOWN["netdev"])
    assert words.startswith("gre runs in user space (ovs-userspace), and other elsewhere")
    assert not data_planes("gre", KNOWN["netdev"], "direct", KNOWN["direct"])


def test_loss_is_judged_by_counts_of_both() -> None:
    paths = {"gre": np.zeros(60), "vxlan": RNG.binomial(600, 0.05, 60) / 600}
    (found,) = found_in(readings("loss", paths, sent=600.0))
    assert (found.verdict, found.scale) == ("gre", Scale.DIFFERENCE)
    assert found.shift[0] < -0.05 < found.shift[2] < 0.0
    silent = readings("loss", paths, sent=0.0)
    assert found_in(silent) == [], "nothing was sent"


def test_runs_are_paired_each_with_the_next_of_the_other() -> None:
    """Bulk tests take turns: their values stay, and no window has a new one of both."""
    a = np.repeat([1.0e8, 1.1e8, 1.0e8, 1.1e8], 30)
    b = np.concatenate([np.full(10, np.nan), np.repeat([2.0e8, 2.2e8, 2.1e8], 30), np.full(20, 2.3e8)])
    given = readings("tcp_throughput", {"gre": a, "vxlan": b})
    book = Book(TERMS)
    (found,) = found_in(given, book=book)
    assert found.windows == 4 and found.ahead == "vxlan"
    (again,) = found_in(given, book=book)
    assert again == found, "what was read again is no new run"


@pytest.mark.parametrize("metric", ["tcp_rtt", "udp_jitter"])
def test_delays_under_load_are_runs_as_well(metric: str) -> None:
    a = np.repeat(1e-3 * RNG.lognormal(0.0, 0.05, 30), 2)
    b = np.concatenate([[np.nan], np.repeat(2e-3 * RNG.lognormal(0.0, 0.05, 30), 2)[:-1]])
    (found,) = found_in(readings(metric, {"gre": a, "vxlan": b}))
    assert (found.verdict, found.windows) == ("gre", 30)
    assert found.ratio is not None and found.ratio[1] == pytest.approx(0.5, rel=0.05)


def test_a_key_is_unique_and_read_back() -> None:
    made, _ = sides(readings("rtt", {"direct": BASE, "gre": BASE, "openflow": BASE, "vxlan": BASE}), known())
    keys = [s.side.key for s in made]
    assert len(set(keys)) == len(keys) == 9
    assert [Side.parse(k) for k in keys] == [s.side for s in made]
    good = next(k for k in keys if "contest" in k)
    for broken in ("[]", "7", '["rtt"]', good.replace("rtt", "ping"), good.replace("contest", "duel"), "{"):
        with pytest.raises(ValueError):
            Side.parse(broken)


def test_a_host_that_joins_changes_no_configuration() -> None:
    one = readings("rtt", {"gre": {HOSTS: BASE}, "vxlan": {HOSTS: BASE}})
    two = readings("rtt", {"gre": {HOSTS: BASE, OTHER: BASE}, "vxlan": {HOSTS: BASE, OTHER: BASE}})
    (before,), (after,) = (sides(r, known())[0] for r in (one, two))
    assert before.fingerprint == after.fingerprint and math.isclose(after.since, 0.0)
    other = known({"gre": replace(KNOWN["gre"], dataplane="ovs-dpdk")})
    assert sides(one, other)[0][0].fingerprint != before.fingerprint
