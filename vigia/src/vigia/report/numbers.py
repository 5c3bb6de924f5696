"""How numbers are written: three significant digits and a unit that suits them."""

from __future__ import annotations

import math

__all__ = ["interval", "percent", "probability", "quantity", "rate", "seconds"]

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))


def seconds(value: float) -> str:
    """Return a time."""
    return _scaled(value, _TIMES)


def rate(value: float) -> str:
    """Return bits per second."""
    return _scaled(value, _RATES)


def quantity(value: float, unit: str) -> str:
    """Return a value with the unit of a metric: s, bit/s, ratio, or any other."""
    if math.isnan(value):
        return "–"
    match unit:
        case "s":
            return seconds(value)
        case "bit/s":
            return rate(value)
        case "ratio":
            return percent(value)
        case _:
            return f"{_digits(value)} {unit}"


def interval(estimate: float, lower: float, upper: float, unit: str) -> str:
    """Return an estimate and its interval, all in one unit."""
    if math.isnan(estimate):
        return "–"
    if unit == "ratio":
        return f"{_digits(estimate * 100)} [{_digits(lower * 100)}, {_digits(upper * 100)}] %"
    table = {"s": _TIMES, "bit/s": _RATES}.get(unit, ((1.0, unit),))
    factor, shown = _choose(max(abs(estimate), abs(lower), abs(upper)), table)
    return f"{_digits(estimate / factor)} [{_digits(lower / factor)}, {_digits(upper / factor)}] {shown}"


def percent(value: float) -> str:
    """Return a ratio in percent."""
    return f"{_digits(value * 100)} %"


def probability(p: float) -> str:
    """Return a p-value."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _scaled(value: float, table: tuple[tuple[float, str], ...]) -> str:
    if math.isnan(value):
        return "–"
    factor, unit = _choose(abs(value), table)
    return f"{_digits(value / factor)} {unit}"


def _choose(size: float, table: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    return next(((f, u) for f, u in table if size >= f), table[-1]) if size > 0 else table[0]


def _digits(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}".replace(",", " ")
