"""Two campaigns beside each other: which combinations are compared, and what is called significant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from vigia.campaign import folder
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Record, Series
from vigia.errors import VigiaError
from vigia.report import pairing

RNG = np.random.default_rng(9)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Folder]:
    """A campaign with so many repetitions of each path around a value of each metric."""

    def make(values: Mapping[str, Mapping[str, float]], times: int = 8, noise: float = 0.01) -> Folder:
        about = {"version": 1, "name": "t", "title": "T", "question": "Q?", "study": "overlays"}
        small = {"designs": [{"factors": {"path": list(values)}}], "stop": {"repetitions": times}}
        campaign = Campaign.model_validate({**about, "topology": "e1", "standard": small})
        f = folder.create(tmp_path, campaign, "standard", {})
        run = 0
        for block in range(times):
            for cell, (path, metrics) in enumerate(values.items()):
                series = [Series(m, "s", [v * (1 + RNG.uniform(-noise, noise))]) for m, v in metrics.items()]
                f.add(Record(run, block, cell, {"path": path, "size": 64}, 0.0, 1.0, len(series)), series)
                run += 1
        return f

    return make


def test_what_both_measured_is_compared(measured: Callable[..., Folder]) -> None:
    one = measured({"a": {"rtt": 1.0, "rate": 5.0}, "b": {"rtt": 2.0}})
    other = measured({"a": {"rtt": 1.0, "loss": 0.1}, "c": {"rtt": 2.0}})
    (pair,) = pairing.pairs(one, other, None)
    assert (pair.combination, pair.metric, pair.unit) == ("a 64", "rtt", "s")
    assert not pair.significant


def test_a_difference_is_significant_and_has_its_size(measured: Callable[..., Folder]) -> None:
    one, other = measured({"a": {"rtt": 3.0, "rate": 5.0}}), measured({"a": {"rtt": 1.0, "rate": 5.0}})
    found = {p.metric: p for p in pairing.pairs(one, other, None)}
    assert found["rtt"].significant
    assert found["rtt"].comparison.shift == pytest.approx(2.0, rel=0.03)
    assert not found["rate"].significant
    (only,) = pairing.pairs(one, other, "rtt")
    assert only.metric == "rtt"
    combination, metric, count, shift, p, verdict = only.as_text()
    assert (combination, metric, count, verdict) == ("a 64", "rtt", "8, 8", "yes")
    assert float(shift.split()[0]) == pytest.approx(2.0, rel=0.03)
    assert p.startswith("0.000") or p.startswith("<")


def test_many_comparisons_are_adjusted(measured: Callable[..., Folder]) -> None:
    """Of forty metrics without a difference none is called significant by chance."""
    same = {"a": {f"m{n}": 1.0 for n in range(40)}}
    found = pairing.pairs(measured(same), measured(same), None)
    assert len(found) == 40
    assert all(p.p_value >= p.comparison.p_value for p in found)
    assert not any(p.significant for p in found)


def test_what_is_constant_and_equal_is_left_out(measured: Callable[..., Folder]) -> None:
    constant = {"a": {"rules": 1000.0, "rtt": 1.0}}
    one, other = measured(constant, noise=0.0), measured(constant, noise=0.0)
    with pytest.raises(VigiaError, match="have no combination that both measured at least twice"):
        pairing.pairs(one, other, None)
    other = measured({"a": {"rules": 2000.0, "rtt": 1.0}}, noise=0.0)
    (pair,) = pairing.pairs(one, other, None)
    assert pair.metric == "rules"


def test_once_is_not_enough(measured: Callable[..., Folder]) -> None:
    one, other = measured({"a": {"rtt": 1.0}}), measured({"a": {"rtt": 1.0}}, times=1)
    with pytest.raises(VigiaError, match=r"no combination of rtt that both measured at least twice"):
        pairing.pairs(one, other, "rtt")


def test_as_data(measured: Callable[..., Folder]) -> None:
    one, other = measured({"a": {"rtt": 3.0}}), measured({"a": {"rtt": 1.0}})
    (pair,) = pairing.pairs(one, other, None)
    given = pair.as_json()
    assert given["significant"] is True
    assert isinstance(given["comparison"], dict)
    assert given["comparison"]["samples_a"] == 8
    assert isinstance(given["comparison"]["verdict"], str)
