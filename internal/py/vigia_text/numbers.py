"""How numbers are written: three significant digits and a unit that suits them.

Arguments are in base units: seconds, bits per second, bytes, ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = [
    "MISSING",
    "bits_per_second",
    "count",
    "difference",
    "interval",
    "percent",
    "probability",
    "quantity",
    "seconds",
    "size",
    "span",
    "times",
]

MISSING = "–"
"""What stands for a number that is not there (NaN) or has no end."""

Units = Sequence[tuple[float, str]]

_TIMES: Units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES: Units = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
_SIZES: Units = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))

_KNOWN: dict[str, tuple[float, Units]] = {
    "s": (1.0, _TIMES),
    "seconds": (1.0, _TIMES),
    "bit/s": (1.0, _RATES),
    "bytes_per_second": (8.0, _RATES),
    "bytes": (1.0, _SIZES),
}
"""Units of metrics: factor to the base of the scale, and the scale."""

_MOST_DECIMALS = 6


def seconds(value: float) -> str:
    """Return a time: 69.0 µs."""
    return _scaled(value, _TIMES)


def bits_per_second(value: float) -> str:
    """Return a data rate: 1.25 Gbit/s."""
    return _scaled(value, _RATES)


def size(value: float) -> str:
    """Return an amount of bytes: 12.0 MiB."""
    return _scaled(value, _SIZES)


def count(value: float) -> str:
    """Return a number of things, whole, in groups of three digits: 12 345."""
    return f"{value:,.0f}".replace(",", " ") if math.isfinite(value) else MISSING


def percent(ratio: float) -> str:
    """Return a ratio in percent: 12.5 %."""
    return f"{_digits(ratio * 100)} %" if math.isfinite(ratio) else MISSING


def times(ratio: float) -> str:
    """Return how many times something is, in two digits or whole: 1.4, 280."""
    if not math.isfinite(ratio):
        return MISSING
    return f"{ratio:.2g}" if ratio < 9.95 else f"{ratio:.0f}"


def probability(p: float) -> str:
    """Return a p-value to three places, <0.001 below that."""
    if not math.isfinite(p):
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def quantity(value: float, unit: str) -> str:
    """Return a value with a metric's unit: seconds, bytes_per_second, bytes, ratio, or any other word."""
    if not math.isfinite(value):
        return MISSING
    if unit == "ratio":
        return percent(value)
    factor, units = _KNOWN.get(unit, (1.0, ((1.0, unit),)))
    return _scaled(value * factor, units)


def difference(value: float, unit: str) -> str:
    """Return a value with its sign: +69.0 µs."""
    text = quantity(value, unit)
    return f"+{text}" if value > 0 and text != MISSING else text


def interval(estimate: float, lower: float, upper: float, unit: str) -> str:
    """Return an estimate and its interval, all in one unit: 69.0 [65.0, 74.0] µs; 69.0 [0 or more] µs."""
    if not math.isfinite(estimate):
        return MISSING
    if math.isfinite(lower) and upper == math.inf:
        return _in_one_unit("{} [{} or more]", (estimate, lower), unit)
    if math.isfinite(upper) and lower == -math.inf:
        return _in_one_unit("{} [{} or less]", (estimate, upper), unit)
    return _in_one_unit("{} [{}, {}]", (estimate, lower, upper), unit)


def span(lower: float, upper: float, unit: str) -> str:
    """Return an interval in one unit: 65.0 to 74.0 µs, 0 s or more; a dash where no end is known."""
    if not (math.isfinite(lower) or math.isfinite(upper)):
        return MISSING
    if upper == math.inf or lower == -math.inf:
        known, more = (lower, "more") if upper == math.inf else (upper, "less")
        return f"{_in_one_unit('{}', (known,), unit)} or {more}"
    return _in_one_unit("{} to {}", (lower, upper), unit)


def _in_one_unit(form: str, values: Sequence[float], unit: str) -> str:
    if unit == "ratio":
        return f"{form.format(*(_digits(v * 100) for v in values))} %"
    factor, units = _KNOWN.get(unit, (1.0, ((1.0, unit),)))
    finite = [abs(v) * factor for v in values if math.isfinite(v)]
    scale, shown = _choose(max(finite, default=0.0), units)
    return f"{form.format(*(_digits(v * factor / scale) for v in values))} {shown}"


def _scaled(value: float, units: Units) -> str:
    if not math.isfinite(value):
        return MISSING
    scale, unit = _choose(abs(value), units)
    return f"{_digits(value / scale)} {unit}"


def _choose(magnitude: float, units: Units) -> tuple[float, str]:
    """Return the largest unit of which there is one, counting what is rounded up to one; of 0 the base."""
    if magnitude == 0:
        return next(u for u in units if u[0] == 1.0)
    return next(((f, u) for f, u in units if _exponent(magnitude / f) >= 0), units[-1])


def _exponent(value: float) -> int:
    """Return the decimal exponent of a positive value that is rounded to three digits: 2 of 99.95."""
    return int(f"{value:.2e}".partition("e")[2])


def _digits(value: float) -> str:
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    places = max(0, 2 - _exponent(abs(value)))
    text = f"{value:,.{min(places, _MOST_DECIMALS)}f}".replace(",", " ")
    return "0" if not text.strip("-0.") else text
