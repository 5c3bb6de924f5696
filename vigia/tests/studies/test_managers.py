"""E4: what a repetition asks of a site, and what the report says of data whose answer is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from vigia.campaign import design
from vigia.campaign.model import Campaign, Factor, Settings
from vigia.errors import VigiaError
from vigia.report.data import Data
from vigia.studies import catalogue
from vigia.studies.managers import report
from vigia.studies.managers.measurement import COMPILED_ELEMENTS, ELEMENTS, HPCC_ORDER, MEASUREMENT

SETTINGS = Settings.model_validate({"duration": "2s", "warm_up": "1s", "benchmark": 300, "file": 5})


@pytest.mark.parametrize(
    ("what", "size", "printed", "unit"),
    [
        ("stream", ELEMENTS, {"stream_copy": 9000.0, "stream_triad": 8000.0}, "MB/s"),
        ("stream-c", COMPILED_ELEMENTS, {"stream_c_copy": 9000.0, "stream_c_add": 8000.0}, "MB/s"),
        ("hpcc", HPCC_ORDER, {"hpcc_random": 300.0}, "MB/s"),
        ("hpcc", HPCC_ORDER, {"hpcc_fft": 1700.0}, "MFLOPS"),
        ("linpack", 300, {"linpack": 1234.5}, "MFLOPS"),
        ("disk", 5, {"disk_write": 100.0, "disk_reread": 900.0}, "MB/s"),
        ("disk-direct", 5, {"direct_write": 90.0, "direct_read": 100.0}, "MB/s"),
        ("disk-fsync", 5, {"fsync_write": 9.0}, "MB/s"),
    ],
)
def test_a_benchmark_runs_at_the_site(
    answering: Callable[..., Any], what: str, size: int, printed: dict[str, float], unit: str
) -> None:
    here = answering(benchmark=json.dumps(printed))
    series = MEASUREMENT.measure({"site": "direct", "benchmark": what}, SETTINGS, here)
    assert here.asked == [("direct", "cross-node", 2)]
    (job,) = here.host.jobs
    assert (job.kind, job.what, job.size, job.netns) == ("benchmark", what, size, "a-1")
    assert {s.metric: (list(s.values), s.unit) for s in series} == {
        k: ([v], unit) for k, v in printed.items()
    }


def test_the_network_is_measured_to_the_other_end(answering: Callable[..., Any]) -> None:
    here = answering()
    (series,) = MEASUREMENT.measure({"site": "direct", "benchmark": "network"}, SETTINGS, here)
    (client,) = here.host.of("iperf3-client")
    assert (client.netns, str(client.address), client.duration, client.warm_up) == ("a-1", "10.0.1.1", 2, 1)
    assert [s.netns for s in here.host.served] == ["b-1"]
    assert (series.metric, series.unit) == ("network", "bit/s")
    assert series.values[0] > 0


def test_a_benchmark_that_prints_nothing_is_a_failure(answering: Callable[..., Any]) -> None:
    with pytest.raises(VigiaError, match="the benchmark did not report"):
        MEASUREMENT.measure({"site": "direct", "benchmark": "disk"}, SETTINGS, answering(benchmark="Killed"))


def test_what_it_costs_grows_with_what_is_asked() -> None:
    def cost(what: str, **settings: Any) -> Any:
        return MEASUREMENT.estimate({"benchmark": what}, SETTINGS.model_copy(update=settings))

    assert cost("linpack", benchmark=6000).seconds > 10 * cost("linpack", benchmark=300).seconds
    assert cost("disk", file=4000).seconds > cost("disk").seconds + 10
    assert cost("disk-fsync", file=4000).seconds > cost("disk", file=4000).seconds
    assert cost("network").bytes > 0
    assert cost("stream").bytes == cost("disk").bytes == cost("linpack").bytes == 0


# --- reporting ---


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e4"]
    return found


UNITS = {"network": "bit/s", "linpack": "MFLOPS", "direct_write": "MB/s"}
BENCHMARKS = {"network": "network", "linpack": "linpack", "direct_write": "disk-direct"}


def repetitions(
    sites: Mapping[str, Mapping[str, float]], times: int = 12
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    rng = np.random.default_rng(2)
    for _ in range(times):
        for site, values in sites.items():
            for metric, value in values.items():
                yield (
                    {"site": site, "benchmark": BENCHMARKS[metric]},
                    {metric: [value * (1 + rng.uniform(-0.02, 0.02))]},
                )


SITES = {
    "direct": {"network": 2e9, "linpack": 1000.0, "direct_write": 400.0},
    "guest": {"network": 1e9, "linpack": 1000.0, "direct_write": 300.0},
}


def test_what_differs_is_named_with_its_gain(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(SITES)))
    assert document.answer.startswith(
        "Of 3 measures of direct and guest, 2 differ beyond the margin: network (+"
    )
    assert "direct_write (+" in document.answer
    assert document.answer.endswith("; 1 is equivalent, 0 are open.")
    rows = {r[0]: r for r in document.sections[0].tables[0].rows}
    assert rows["network"][2] == "12"
    assert rows["network"][-1] == "direct gets more, guest less"
    assert rows["linpack"][-1] == "equivalent"
    gain = float(rows["network"][5].split("%")[0])
    assert gain == pytest.approx(100, abs=3)


def test_sites_that_are_alike_are_equivalent(data: Callable[..., Data]) -> None:
    alike = {"direct": SITES["direct"], "guest": SITES["direct"]}
    document = report.build(campaign(), data(UNITS, *repetitions(alike)))
    assert document.answer.startswith("Of 3 measures of direct and guest, 0 differ beyond the margin; ")
    assert "linpack: direct beside guest × 0.994 [0.977, 1.02]: equivalent." in " ".join(
        document.summary.found
    )


def test_namespaces_of_one_kernel_are_no_cloud(data: Callable[..., Data]) -> None:
    made = data(UNITS, *repetitions(SITES))
    made.each_condition = ["senders, switches and receivers sharing 2 processors"]
    document = report.build(campaign(), made)
    assert document.answer.startswith(
        "Senders, switches and receivers sharing 2 processors, both sites namespaces of one"
    )
    assert any("says nothing of a cloud" in line for line in document.summary.silent)
    assert document.summary.confidence.endswith("low for clouds, of which none was measured")


def test_measures_are_corrected_together(data: Callable[..., Data]) -> None:
    """Thirteen measures and the network are one family: their intervals are those of fourteen comparisons."""
    plan = campaign().plan("standard")
    found = design.abilities(campaign().hypotheses, plan.cells(), 8, 0.95)
    assert len(found) == 14
    assert all(a.power == 0.0 for a in found), "8 blocks cannot decide 14 comparisons"


def test_every_plan_measures_memory_by_the_compiled_stream_and_disks_past_the_cache() -> None:
    for size in ("smoke", "standard", "full"):
        asked = {c["benchmark"] for c in campaign().plan(size).cells()}
        assert asked == {"network", "stream-c", "hpcc", "linpack", "disk-direct", "disk-fsync"}, size


def test_how_it_was_measured_names_both_streams_and_what_is_missing(data: Callable[..., Data]) -> None:
    said = MEASUREMENT.described(SETTINGS)
    assert "by numpy on arrays of 2000000 doubles (stream), compiled from C where it runs" in said
    assert "timed in nanoseconds" in said
    silent = " ".join(report.build(campaign(), data(UNITS, *repetitions(SITES))).summary.silent)
    assert "What the NAS benchmarks (EP, CG, MG, IS) give is missing: no registry" in silent


def test_a_measure_of_one_site_is_compared_with_nothing(data: Callable[..., Data]) -> None:
    lone = {"direct": SITES["direct"], "guest": {"network": 1e9}}
    document = report.build(campaign(), data(UNITS, *repetitions(lone)))
    assert [r[0] for r in document.sections[0].tables[0].rows] == ["network"]


def test_published_means_are_on_the_axes_of_ours(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(SITES)))
    relative, beside = document.sections[0].figures
    assert relative.caption.startswith("Relative to the mean of guest")
    assert all(f">published, {name}<" in beside.svg for name in ("native", "openstack", "opennebula"))
