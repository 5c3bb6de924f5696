"""E4: what a repetition asks of a site, and what the report says of data whose answer is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from vigia.campaign.model import Campaign, Factor, Settings
from vigia.errors import VigiaError
from vigia.report.data import Data
from vigia.studies import catalogue
from vigia.studies.managers import report
from vigia.studies.managers.measurement import ELEMENTS, MEASUREMENT

SETTINGS = Settings.model_validate({"duration": "2s", "warm_up": "1s", "benchmark": 300, "file": 5})


@pytest.mark.parametrize(
    ("what", "size", "printed", "unit"),
    [
        ("stream", ELEMENTS, {"stream_copy": 9000.0, "stream_triad": 8000.0}, "MB/s"),
        ("linpack", 300, {"linpack": 1234.5}, "MFLOPS"),
        ("disk", 5, {"disk_write": 100.0, "disk_reread": 900.0}, "MB/s"),
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
    assert cost("network").bytes > 0
    assert cost("stream").bytes == cost("disk").bytes == cost("linpack").bytes == 0


# --- reporting ---


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e4"]
    return found


UNITS = {"network": "bit/s", "linpack": "MFLOPS", "disk_write": "MB/s"}


def repetitions(
    sites: Mapping[str, Mapping[str, float]], times: int = 10
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    rng = np.random.default_rng(2)
    for _ in range(times):
        for site, values in sites.items():
            for metric, value in values.items():
                noisy = value * (1 + rng.uniform(-0.02, 0.02))
                yield {"site": site, "benchmark": metric.split("_")[0]}, {metric: [noisy]}


SITES = {
    "direct": {"network": 2e9, "linpack": 1000.0, "disk_write": 300.0},
    "guest": {"network": 1e9, "linpack": 1000.0, "disk_write": 290.0},
}


def test_what_differs_is_named_with_its_gain(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(SITES)))
    assert document.answer.startswith("Of 3 measures of direct and guest, 2 differ significantly: network (+")
    assert "disk_write (+" in document.answer
    assert "linpack (" not in document.answer
    table = document.sections[0].tables[0]
    rows = {r[0]: r for r in table.rows}
    assert rows["network"][2] == "10, 10"
    assert rows["network"][-1] == "direct gets more"
    assert rows["linpack"][-1] not in ("direct gets more", "guest gets more")
    gain = float(rows["network"][5].split()[0].rstrip("%"))
    assert gain == pytest.approx(100, abs=5)


def test_sites_that_are_alike(data: Callable[..., Data]) -> None:
    alike = {"direct": SITES["direct"], "guest": SITES["direct"]}
    document = report.build(campaign(), data(UNITS, *repetitions(alike)))
    assert document.answer == "Of 3 measures of direct and guest, 0 differ significantly."


def test_one_difference_is_singular(data: Callable[..., Data]) -> None:
    one = {"direct": SITES["direct"], "guest": {**SITES["direct"], "network": 1e9}}
    document = report.build(campaign(), data(UNITS, *repetitions(one)))
    assert ", 1 differs significantly: network (+" in document.answer


def test_a_measure_of_one_site_is_compared_with_nothing(data: Callable[..., Data]) -> None:
    lone = {"direct": SITES["direct"], "guest": {"network": 1e9}}
    document = report.build(campaign(), data(UNITS, *repetitions(lone)))
    assert [r[0] for r in document.sections[0].tables[0].rows] == ["network"]


def test_bars_are_relative_to_the_last_site(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(SITES)))
    (figure,) = document.sections[0].figures
    assert figure.caption == "Relative to the mean of guest"
    assert "<svg" in figure.svg
