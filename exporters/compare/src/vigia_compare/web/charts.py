"""Charts as SVG: lines over time and distributions, with an axis that suits the values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from markupsafe import Markup, escape

from vigia_statistics.samples import Floats
from vigia_text import numbers
from vigia_text.terminal import clean, cut

__all__ = ["MOST_LINES", "Line", "distribution", "over_time"]

WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 168, 12, 30

MOST_LINES = 8
"""Lines of one chart: as many colours as can be told apart."""

_LABEL_HEIGHT = 15
_LONGEST_LABEL = 24


@dataclass(frozen=True)
class Line:
    """One path."""

    name: str
    values: Floats
    """Shape (windows,); NaN where there is none."""
    reference: bool = False
    """Whether it is the underlay, drawn in grey."""


@dataclass(frozen=True)
class _Axis:
    """From values to pixels."""

    low: float
    high: float
    log: bool
    begin: float
    end: float
    """Pixels of low and of high."""

    def __call__(self, value: float) -> float:
        low, high, v = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, v = math.log(low), math.log(high), math.log(v)
        return self.begin + (v - low) / (high - low) * (self.end - self.begin)

    def ticks(self, most: int) -> list[float]:
        return _decades(self.low, self.high, most) if self.log else _steps(self.low, self.high, most)


def _axis(values: Floats, begin: float, end: float, share: bool) -> _Axis:
    """Return an axis of all values: logarithmic where all are above zero; shares begin at zero."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if low > 0.0 and not share:
        low, high = low / 1.1, high * 1.1
        if high / low < 1.5:
            middle = math.sqrt(low * high)
            low, high = middle / 1.25, middle * 1.25
        return _Axis(low, high, True, begin, end)
    high = high * 1.1 if high > 0.0 else (0.01 if share else 1.0)
    return _Axis(min(low, 0.0), high, False, begin, end)


def _decades(low: float, high: float, most: int) -> list[float]:
    """Return round values: decades; with halves and fifths, or steps, where there are few decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found: list[float] = []
    for within in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        more = [m * 10.0**e for e in range(first, last + 1) for m in within if low <= m * 10.0**e <= high]
        if len(more) > most:
            break
        found = more
    return found if len(found) >= 3 else _steps(low, high, most)


def _steps(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / max(most - 1, 1)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1.0, 2.0, 5.0, 10.0) if m * size >= raw)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _tag(name: str, text: str = "", **attributes: object) -> Markup:
    given = Markup("").join(
        Markup(' {}="{}"').format(k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items()
    )
    if text or name in ("text", "title", "desc"):
        return Markup("<{0}{1}>{2}</{0}>").format(escape(name), given, clean(text))
    return Markup("<{0}{1}/>").format(escape(name), given)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _colour(index: int, line: Line) -> str:
    return "reference" if line.reference else f"s{index % MOST_LINES}"


def _numbered(lines: Sequence[Line]) -> Iterator[tuple[str, Line]]:
    """Yield a class with each line: those that compete take the colours in turn."""
    index = 0
    for line in lines:
        yield _colour(index, line), line
        index += not line.reference


def over_time(  # noqa: PLR0913
    lines: Sequence[Line], start: float, end: float, unit: str, title: str, told: str
) -> Markup:
    """Return lines of values from a Unix time to another; ``told`` says in words what is seen."""
    bottom = HEIGHT - _BOTTOM
    y = _axis(np.concatenate([x.values for x in lines]), bottom, _TOP, unit == "ratio")
    x = _Axis(start, max(end, start + 1.0), False, _LEFT, WIDTH - _RIGHT)
    parts = [*_values(y, unit), *_moments(x)]
    labels = []
    for colour, line in _numbered(lines):
        points = [
            (x(t), v) for t, v in zip(np.linspace(start, end, line.values.size), line.values, strict=True)
        ]
        parts += _drawn(points, y, colour)
        last = next((v for _, v in reversed(points) if math.isfinite(v)), None)
        if last is not None:
            labels.append((y(last), colour, line.name))
    parts += _labels(labels, WIDTH - _RIGHT + 6)
    return _picture(parts, title, told)


def distribution(lines: Sequence[Line], unit: str, title: str, told: str) -> Markup:
    """Return the share of windows whose value is at most so much, by line."""
    bottom = HEIGHT - _BOTTOM
    x = _axis(np.concatenate([x.values for x in lines]), _LEFT, WIDTH - _RIGHT, unit == "ratio")
    y = _Axis(0.0, 1.0, False, bottom, _TOP)
    parts = [*_shares(y), *_along(x, unit)]
    colours = []
    for colour, line in _numbered(lines):
        values = np.sort(line.values[np.isfinite(line.values)])
        if not values.size:
            continue
        shares = np.arange(1, values.size + 1) / values.size
        path = f"M{_number(x(values[0]))} {_number(y(0.0))}"
        path += "".join(f"H{_number(x(v))}V{_number(y(s))}" for v, s in zip(values, shares, strict=True))
        parts.append(_tag("path", d=f"{path}H{WIDTH - _RIGHT}", class_=f"line {colour}"))
        colours.append((colour, line.name))
    parts += _legend(colours)
    return _picture(parts, title, told)


def _drawn(
    points: Sequence[tuple[float, float]], y: Callable[[float], float], colour: str
) -> Iterator[Markup]:
    """Yield a line for each stretch of windows that have values; a window alone is a dot."""
    stretch: list[str] = []
    for at, value in [*points, (0.0, math.nan)]:
        if math.isfinite(value):
            stretch.append(f"{_number(at)},{_number(y(value))}")
            continue
        if len(stretch) == 1:
            cx, _, cy = stretch[0].partition(",")
            yield _tag("circle", cx=cx, cy=cy, r=2.5, class_=f"dot {colour}")
        elif stretch:
            yield _tag("polyline", points=" ".join(stretch), class_=f"line {colour}")
        stretch = []


def _values(y: _Axis, unit: str) -> Iterator[Markup]:
    for tick in y.ticks(6):
        at = _number(y(tick))
        yield _tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at, class_="grid")
        yield _tag("text", numbers.quantity(tick, unit), x=_LEFT - 6, y=at, class_="tick end", dy="0.35em")


def _shares(y: _Axis) -> Iterator[Markup]:
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = _number(y(tick))
        yield _tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at, class_="grid")
        yield _tag("text", f"{100.0 * tick:.0f} %", x=_LEFT - 6, y=at, class_="tick end", dy="0.35em")


def _legend(colours: Sequence[tuple[str, str]]) -> Iterator[Markup]:
    left = WIDTH - _RIGHT + 8
    for i, (colour, name) in enumerate(colours):
        at = _TOP + 8 + i * (_LABEL_HEIGHT + 3)
        yield _tag("line", x1=left, x2=left + 22, y1=at, y2=at, class_=f"line {colour}")
        yield _tag(
            "text",
            cut(clean(name), _LONGEST_LABEL - 4),
            x=left + 27,
            y=at,
            class_=f"name {colour}",
            dy="0.35em",
        )


def _along(x: _Axis, unit: str) -> Iterator[Markup]:
    bottom = HEIGHT - _BOTTOM
    for tick in x.ticks(5):
        at = _number(x(tick))
        yield _tag("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid")
        yield _tag("text", numbers.quantity(tick, unit), x=at, y=bottom + 18, class_="tick middle")


def _moments(x: _Axis) -> Iterator[Markup]:
    bottom, length = HEIGHT - _BOTTOM, x.high - x.low
    every = next(
        (s for s in (60, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400) if length / s <= 7), 604800
    )
    tick = math.ceil(x.low / every) * every
    while tick <= x.high:
        at = _number(x(tick))
        form = "%H:%M" if every < 86400 else "%m-%d"
        text = datetime.fromtimestamp(tick, UTC).strftime(form)
        yield _tag("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid")
        yield _tag("text", text, x=at, y=bottom + 18, class_="tick middle")
        tick += every


def _labels(labels: Sequence[tuple[float, str, str]], left: float) -> Iterator[Markup]:
    """Yield the names at the ends of the lines, pushed apart where they would overlap."""
    placed = sorted(labels)
    for at, (_, colour, name) in zip(_apart([y for y, _, _ in placed]), placed, strict=True):
        yield _tag(
            "text",
            cut(clean(name), _LONGEST_LABEL),
            x=left,
            y=_number(at),
            class_=f"name {colour}",
            dy="0.35em",
        )


def _apart(heights: Sequence[float]) -> list[float]:
    """Return ascending heights, moved as little as keeps names from overlapping, and inside of the chart."""
    out: list[float] = []
    for at in heights:
        out.append(max(at, out[-1] + _LABEL_HEIGHT if out else float(_TOP)))
    lowest = float(HEIGHT - _BOTTOM)
    for i in range(len(out) - 1, -1, -1):
        out[i] = min(out[i], lowest)
        lowest = out[i] - _LABEL_HEIGHT
    return out


def _picture(parts: Sequence[Markup], title: str, told: str) -> Markup:
    inner = Markup("").join([_tag("title", title), _tag("desc", told), *parts])
    return Markup('<svg viewBox="0 0 {} {}" role="img" class="chart">{}</svg>').format(WIDTH, HEIGHT, inner)
