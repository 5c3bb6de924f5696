"""Campaign files: what is wrong with them is named, and which combinations they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vigia.campaign import model
from vigia.campaign.model import Design
from vigia_config import ConfigError

SMALL = """\
version: 1
name: mine
title: Mine
question: Is it?
study: overlays
topology: e1
standard:
  designs:
    - factors: {path: [ovs-vxlan, ovs-gre], placement: [same-node], machines: [2], protocol: [tcp], direction: [one-way], rate: [unlimited]}
  stop: {repetitions: 5}
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1", "version: 2", "mine.yaml:1: version"),
        ("name: mine", "name: Mine!", "mine.yaml:2: name"),
        (
            "study: overlays",
            "study: magic",
            'mine.yaml:5: study: "magic": is not a study; write one of overlays, openflow,',
        ),
        ("stop: {repetitions: 5}", "stop: {repetitions: 0}", "mine.yaml:10: standard.stop.repetitions"),
        (
            "stop: {repetitions: 5}",
            "stop: {repetitions: 5, until: 0.05}",
            "until and metric belong together; write both",
        ),
        (
            "stop: {repetitions: 5}",
            "stop: {repetitions: 5, until: 0.05, metric: rtt, minimum: 9}",
            "is more than repetitions; write at most repetitions",
        ),
        ("machines: [2]", "machines: []", "machines: has no levels; write at least one"),
        ("machines: [2]", "machines: [2, 2]", "machines: has a level twice"),
        ("  stop:", "  settings: {duration: 3}\n  stop:", "is not a duration; write for example 500ms"),
        ("  stop:", "  extra: 1\n  stop:", 'unknown key "extra"; known here: designs, settings, stop'),
    ],
)
def test_mistakes_are_named(written: Callable[[str], Path], old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ConfigError) as e:
        model.load(written(SMALL.replace(old, new)))
    assert message in str(e.value)


def test_combinations_of_several_designs_are_made_once() -> None:
    one = Design(factors={"a": [1, 2], "b": ["x"]})
    assert list(one.cells()) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    plan = model.Plan(
        designs=[one, Design(factors={"a": [2, 3], "b": ["x"]})], stop=model.StopRule(repetitions=1)
    )
    assert [c["a"] for c in plan.cells()] == [1, 2, 3]
