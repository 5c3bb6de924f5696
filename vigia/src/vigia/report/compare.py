"""How means, medians and bars of repetitions are written, within the range that is possible."""

from __future__ import annotations

from vigia.report.data import Floats
from vigia_statistics import Interval, bootstrap_interval, geometric_interval, median_interval
from vigia_text.numbers import interval

__all__ = ["bar", "mean_text", "median_text", "within_range"]


def within_range(values: Floats, unit: str, confidence: float) -> Interval:
    """Return the mean of at least two repetitions with an interval that stays where the quantity can be.

    Of ratios, and where a value is zero, the arithmetic mean by bootstrap; else the geometric mean.
    """
    if unit == "ratio" or not (values > 0).all():
        return bootstrap_interval(values, confidence)
    return geometric_interval(values, confidence)


def mean_text(values: Floats, unit: str, confidence: float) -> str:
    """Return the mean with its interval; see within_range."""
    if values.size < 2:
        return interval(values[0], values[0], values[0], unit) if values.size else "–"
    if not values.any():
        return f"0 {'%' if unit == 'ratio' else unit} in all"
    i = within_range(values, unit, confidence)
    return interval(i.estimate, i.lower, i.upper, unit)


def median_text(values: Floats, unit: str, confidence: float) -> str:
    """Return the median with its exact interval."""
    if not values.size:
        return "–"
    i = median_interval(values, confidence)
    return interval(i.estimate, i.lower, i.upper, unit)


def bar(
    values: Floats, unit: str, confidence: float, scale: float = 1.0
) -> tuple[float, float, float] | None:
    """Return the mean with its interval for a plot, divided by scale; None where there is no repetition."""
    if not values.size:
        return None
    if values.size < 2:
        only = float(values[0]) / scale
        return only, only, only
    i = within_range(values, unit, confidence)
    return i.estimate / scale, i.lower / scale, i.upper / scale
