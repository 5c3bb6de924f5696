"""What holds of every number that is written, whatever its size and unit."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vigia_text import numbers
from vigia_text.tables import table

PREFIXES = {
    "seconds": {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9},
    "bit/s": {"Tbit/s": 1e12, "Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1.0},
    "bytes": {"TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0},
    "ratio": {"%": 0.01},
    "packets/s": {"packets/s": 1.0},
}
UNITS = st.sampled_from(sorted(PREFIXES))
COMMON = st.floats(1e-3, 1e15)
"""Magnitudes that three significant digits and at most six decimals can say."""


def read(text: str, unit: str) -> float:
    """Return the number that was written."""
    number, _, prefix = text.rpartition(" ")
    return float(number.replace(" ", "")) * PREFIXES[unit][prefix]


@given(COMMON, UNITS)
def test_what_is_written_is_the_value(value: float, unit: str) -> None:
    assert read(numbers.quantity(value, unit), unit) == pytest.approx(value, rel=0.006)


@given(COMMON, UNITS)
def test_a_negative_number_is_written_as_its_opposite_with_a_sign(value: float, unit: str) -> None:
    assert numbers.quantity(-value, unit) == f"-{numbers.quantity(value, unit)}"
    assert numbers.difference(-value, unit) == f"-{numbers.quantity(value, unit)}"
    assert numbers.difference(value, unit) == f"+{numbers.quantity(value, unit)}"


@given(COMMON, COMMON, UNITS)
def test_a_larger_number_is_never_written_as_a_smaller_one(a: float, b: float, unit: str) -> None:
    low, high = sorted((a, b))
    written = read(numbers.quantity(low, unit), unit), read(numbers.quantity(high, unit), unit)
    assert written[0] <= written[1] * (1 + 1e-12)


@given(COMMON, st.sampled_from(["seconds", "bit/s"]))
def test_the_prefix_leaves_one_to_three_digits_before_the_point(value: float, unit: str) -> None:
    text = numbers.quantity(value, unit)
    number, _, prefix = text.rpartition(" ")
    largest, smallest = max(PREFIXES[unit].values()), min(PREFIXES[unit].values())
    scale = PREFIXES[unit][prefix]
    whole = number.replace(" ", "").partition(".")[0]
    assert scale == largest or len(whole) <= 3
    assert scale == smallest or float(number.replace(" ", "")) >= 1.0


@given(COMMON, UNITS)
@example(0.9995, "ratio")  # whose logarithm is a little below that of 100 %
@example(999.5, "bit/s")
@example(99.95, "seconds")
def test_three_digits_are_significant(value: float, unit: str) -> None:
    number = numbers.quantity(value, unit).rpartition(" ")[0].replace(" ", "")
    digits = number.replace(".", "").lstrip("0")
    if "." in number:
        assert len(digits) == 3
    else:
        assert len(digits) >= 3, "whole digits are never rounded away"


@given(st.lists(COMMON, min_size=3, max_size=3), UNITS)
def test_an_interval_has_one_unit_that_suits_its_largest(values: list[float], unit: str) -> None:
    lower, estimate, upper = sorted(values)
    text = numbers.interval(estimate, lower, upper, unit)
    found = re.fullmatch(r"([\d. ]+) \[([\d. ]+), ([\d. ]+)\] (\S+)", text)
    assert found
    assert found[4] == numbers.quantity(upper, unit).rpartition(" ")[2]
    scale = PREFIXES[unit][found[4]]
    for shown, value in zip(found.groups()[:3], (estimate, lower, upper), strict=True):
        # Six decimals of the common unit are all there is room for.
        assert float(shown.replace(" ", "")) * scale == pytest.approx(value, rel=0.006, abs=scale * 1e-6)
    assert numbers.span(lower, upper, unit).split(" to ")[0] == found[2]


def test_a_span_without_ends_is_a_dash() -> None:
    assert numbers.span(math.nan, math.inf, "seconds") == numbers.MISSING
    assert numbers.span(math.nan, 74e-6, "seconds") == f"{numbers.MISSING} to 74.0 µs"
    assert numbers.span(65e-6, 74e-6, "seconds") == "65.0 to 74.0 µs"


def test_an_interval_with_one_end_says_so() -> None:
    assert numbers.span(65e-6, math.inf, "seconds") == "65.0 µs or more"
    assert numbers.span(-math.inf, 0.0, "seconds") == "0 s or less"
    assert numbers.interval(69e-6, 0.0, math.inf, "seconds") == "69.0 [0 or more] µs"
    assert numbers.interval(-69e-6, -math.inf, -6e-6, "seconds") == "-69.0 [-6.00 or less] µs"
    assert (
        numbers.interval(0.5, -math.inf, math.inf, "things")
        == f"0.500 [{numbers.MISSING}, {numbers.MISSING}] things"
    )


@given(st.sampled_from([math.nan, math.inf, -math.inf]), st.sampled_from([*PREFIXES, "", "things"]))
def test_what_is_no_number_is_a_dash(value: float, unit: str) -> None:
    for text in (
        numbers.quantity(value, unit),
        numbers.difference(value, unit),
        numbers.interval(value, 1.0, 2.0, unit),
        numbers.seconds(value),
        numbers.bits_per_second(value),
        numbers.size(value),
        numbers.count(value),
        numbers.percent(value),
        numbers.probability(value),
    ):
        assert text == numbers.MISSING
    ends = numbers.span(value, 1.0, unit), numbers.interval(1.0, value, 2.0, unit)
    assert all("or less" in e if value == -math.inf else numbers.MISSING in e for e in ends)


@given(st.floats(-1e-30, 1e-30), st.sampled_from(["seconds", "ratio", "bytes", "things"]))
def test_what_is_too_small_to_be_written_is_zero_without_a_sign(value: float, unit: str) -> None:
    assert numbers.quantity(value, unit).startswith("0 ")
    assert "-" not in numbers.span(value, value, unit)


@given(st.integers(-(10**15), 10**15))
def test_counts_are_exact(value: int) -> None:
    text = numbers.count(value)
    assert int(text.replace(" ", "")) == value
    assert re.fullmatch(r"-?\d{1,3}( \d{3})*", text)


@given(st.floats(0.0, 1.0))
def test_a_p_value_is_never_written_as_one_on_the_other_side_of_a_thousandth(p: float) -> None:
    text = numbers.probability(p)
    if text == "<0.001":
        assert p < 0.001
    else:
        assert re.fullmatch(r"[01]\.\d{3}", text)
        assert float(text) == pytest.approx(p, abs=0.0005000001) and p >= 0.001


@given(COMMON)
def test_bytes_per_second_are_written_as_bits(value: float) -> None:
    assert numbers.quantity(value, "bytes_per_second") == numbers.bits_per_second(8 * value)


@given(st.lists(st.tuples(COMMON, UNITS), min_size=1, max_size=5))
def test_a_table_takes_every_quantity_for_a_number(cells: list[tuple[float, str]]) -> None:
    """All of a column's numbers end in the same place."""
    header = "a header that is wider than any of the numbers"
    lines = table((header,), [(numbers.quantity(v, u),) for v, u in cells]).splitlines()
    assert {len(line) for line in lines} == {len(header)}
