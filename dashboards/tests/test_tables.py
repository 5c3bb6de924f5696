"""What a table shows of real answers: rows that merge, and cells that have nothing in them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vigia_dashboards.model import Panel, Query
from vigia_dashboards.tables import holes, joined

PANEL = Panel(
    "table",
    "Effect",
    "Path a over path b.",
    (Query("effect", "a over b"), Query("lower", "lower")),
    "none",
    columns=("a", "b", "probe"),
)
LABELS = {"a": "ovs-gre", "b": "ovs-vxlan", "probe": "stamp-64"}
WHOLE = joined(PANEL, [[(LABELS, 1.5)], [(LABELS, 1.2)]])


def test_rows_of_equal_labels_are_one() -> None:
    assert WHOLE == [(LABELS, {"a over b": 1.5, "lower": 1.2})]
    other = {**LABELS, "b": "direct"}
    assert joined(PANEL, [[(LABELS, 1.5)], [(other, 1.2)]]) == [
        (LABELS, {"a over b": 1.5}),
        (other, {"lower": 1.2}),
    ]


def test_a_name_of_a_metric_keeps_rows_apart() -> None:
    named = [[({**LABELS, "__name__": name}, 1.0)] for name in ("effect", "lower")]
    assert len(joined(PANEL, named)) == 2


def test_a_label_without_a_value_is_none() -> None:
    """Prometheus leaves it out where it aggregates, and keeps it nowhere."""
    rows = joined(PANEL, [[({**LABELS, "machines": ""}, 1.5)], [(LABELS, 1.2)]])
    assert rows == WHOLE


def test_a_row_that_is_whole_has_no_holes() -> None:
    assert holes(PANEL, WHOLE) == []


@pytest.mark.parametrize(
    ("values", "hole"),
    [
        ({"a over b": 1.5}, "Effect: lower is nan in a=ovs-gre b=ovs-vxlan probe=stamp-64"),
        ({"a over b": 1.5, "lower": math.nan}, "lower is nan"),
        ({"a over b": math.inf, "lower": 1.0}, "a over b is inf"),
    ],
)
def test_a_value_that_is_not_there_is_a_hole(values: dict[str, float], hole: str) -> None:
    (found,) = holes(PANEL, [(LABELS, values)])
    assert hole in found


def test_a_panel_may_say_what_a_cell_without_a_value_has() -> None:
    says = replace(PANEL, missing="no limit yet")
    assert holes(says, [(LABELS, {"a over b": 1.5})]) == []
    assert holes(says, [(LABELS, {"a over b": 1.5, "lower": math.inf})]), "Grafana says infinity there"


def test_a_hidden_value_is_no_cell() -> None:
    hidden = replace(PANEL, queries=(PANEL.queries[0], replace(PANEL.queries[1], hidden=True)))
    assert holes(hidden, [(LABELS, {"a over b": 1.5})]) == []


def test_a_label_that_decides_is_stated() -> None:
    values = {"a over b": 1.5, "lower": 1.2}
    without = {"a": "ovs-gre", "probe": "stamp-64"}
    assert holes(PANEL, [(without, values)]) == ["Effect: no b in a=ovs-gre probe=stamp-64"]
    assert holes(replace(PANEL, texts={"b": {"": "nothing"}}), [(without, values)]) == []
    qualified = {k: v for k, v in LABELS.items() if k != "probe"}
    assert holes(PANEL, [(qualified, values)]) == [], "it comes after the values"


def test_a_value_that_has_no_word_is_a_hole() -> None:
    words = (("0", "usual", "text"), ("1", "WORSE", "orange"))
    worded = replace(PANEL, queries=(replace(PANEL.queries[0], words=words), PANEL.queries[1]))
    assert holes(worded, [(LABELS, {"a over b": 1.0, "lower": 1.2})]) == []
    (found,) = holes(worded, [(LABELS, {"a over b": 3.0, "lower": 1.2})])
    assert "a over b has no word for 3" in found
    assert holes(replace(PANEL, words=words), [(LABELS, {"a over b": 0.0, "lower": 1.0})]) == []
