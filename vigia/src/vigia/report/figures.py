"""Plots as SVG, readable in print and on a phone."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from vigia.report.data import Floats
from vigia.report.document import Figure
from vigia_statistics import ecdf_band

__all__ = ["Bar", "bars", "cdf", "courses", "dots", "timeline"]

COLOURS = ("#0b6e99", "#d9730d", "#5b8c3a", "#8a4f9e", "#b3423a", "#6b6b6b", "#00897b", "#c0a000")
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "svg.fonttype": "none",
    "svg.hashsalt": "vigia",
    "hatch.linewidth": 0.5,
}

_LONG = re.compile(r"(\d\.\d{2})\d+")
"""Digits beyond a hundredth of a point, which nobody sees."""

Bar = tuple[float, float, float]
"""Estimate, lower and upper end of its interval."""


def bars(
    caption: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[Bar | None]],
    unit: str,
    *,
    line: float | None = None,
) -> Figure:
    """Draw a bar with its interval for each group and series; None leaves a gap. A line goes across at a value."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _canvas(max(5.0, 0.9 + 0.42 * len(groups) * max(1, len(series))))
        width = 0.8 / max(1, len(series))
        for n, (name, values) in enumerate(series.items()):
            at = [g + (n - (len(series) - 1) / 2) * width for g in range(len(groups))]
            points = [(x, v) for x, v in zip(at, values, strict=True) if v is not None]
            axes.bar(
                [x for x, _ in points],
                [v[0] for _, v in points],
                width * 0.92,
                label=name,
                color=COLOURS[n % len(COLOURS)],
                hatch=_HATCHES[n % len(_HATCHES)],
                edgecolor="white",
                linewidth=0.3,
            )
            axes.errorbar(
                [x for x, _ in points],
                [v[0] for _, v in points],
                yerr=[[max(0.0, v[0] - v[1]) for _, v in points], [max(0.0, v[2] - v[0]) for _, v in points]],
                fmt="none",
                ecolor="black",
                elinewidth=0.9,
                capsize=2,
            )
        axes.set_xticks(range(len(groups)), groups, rotation=20 if max(map(len, groups)) > 9 else 0)
        if line is not None:
            axes.axhline(line, color="black", linewidth=1.0, linestyle="--")
        axes.set_ylabel(unit)
        _legend(canvas, axes, len(series))
        return Figure(caption, _svg(canvas))


def dots(  # noqa: PLR0913 - one argument per part of the picture
    caption: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[Floats]],
    means: Mapping[str, Sequence[Bar | None]],
    unit: str,
    *,
    published: Mapping[str, Sequence[float | None]] | None = None,
    log: bool = True,
    line: float | None = None,
) -> Figure:
    """Draw a dot for each repetition beside its mean with interval, and published values on the same axis.

    series and means have a place for each group; a log axis leaves out what is not above zero.
    """
    theirs = published or {}
    with mpl.rc_context(_STYLE):
        canvas, axes = _canvas(max(5.0, 0.9 + 0.45 * len(groups) * max(1, len(series) + len(theirs))))
        rows = len(series) + len(theirs)
        width = 0.8 / max(1, rows)
        for n, (name, values) in enumerate(series.items()):
            at = [g + (n - (rows - 1) / 2) * width for g in range(len(groups))]
            _repetitions(axes, name, COLOURS[n % len(COLOURS)], at, width, values, means[name], log)
        for n, (name, numbers) in enumerate(theirs.items(), start=len(series)):
            at = [g + (n - (rows - 1) / 2) * width for g in range(len(groups))]
            points = [(x, v) for x, v in zip(at, numbers, strict=True) if v is not None]
            axes.plot(
                *zip(*points, strict=True), "D", color=COLOURS[n % len(COLOURS)], markersize=4, label=name
            )
        axes.set_xticks(
            range(len(groups)), groups, rotation=20 if max(map(len, groups), default=0) > 9 else 0
        )
        if line is not None:
            axes.axhline(line, color="black", linewidth=1.0, linestyle="--")
        if log:
            axes.set_yscale("log")
        axes.set_ylabel(unit)
        _legend(canvas, axes, rows)
        return Figure(caption, _svg(canvas))


def _repetitions(  # noqa: PLR0913
    axes: Axes,
    name: str,
    colour: str,
    at: Sequence[float],
    width: float,
    values: Sequence[Floats],
    means: Sequence[Bar | None],
    log: bool,
) -> None:
    kept = [v[v > 0] if log else v for v in values]
    xs = [
        x + width * 0.5 * ((i + 0.5) / v.size - 0.5)
        for x, v in zip(at, kept, strict=True)
        for i in range(v.size)
    ]
    axes.plot(xs, [float(y) for v in kept for y in v], ".", color=colour, markersize=3, alpha=0.6)
    points = [(x, b) for x, b in zip(at, means, strict=True) if b is not None and (b[1] > 0 or not log)]
    axes.errorbar(
        [x for x, _ in points],
        [b[0] for _, b in points],
        yerr=[[max(0.0, b[0] - b[1]) for _, b in points], [max(0.0, b[2] - b[0]) for _, b in points]],
        fmt="_",
        color=colour,
        markersize=9,
        elinewidth=1.1,
        capsize=2.5,
        label=name,
    )


def cdf(caption: str, series: Mapping[str, Floats], unit: str, *, band: float | None = None) -> Figure:
    """Draw empirical distribution functions, with a simultaneous band of that confidence if one is given."""
    with mpl.rc_context({**_STYLE, "axes.grid.axis": "both"}):
        canvas, axes = _canvas(5.6)
        for n, (name, values) in enumerate((k, v) for k, v in series.items() if v.size):
            x, level, lower, upper = _thinned(*ecdf_band(values, band or 0.99))
            colour = COLOURS[n % len(COLOURS)]
            axes.step(x, level, where="post", label=name, color=colour, linewidth=1.2)
            if band:
                axes.fill_between(x, lower, upper, step="post", color=colour, alpha=0.18, linewidth=0)
        everything = [v for v in series.values() if v.size]
        if everything:
            least, most = min(v.min() for v in everything), max(_high(v) for v in everything)
            if most > least:  # else the axis would be a point
                axes.set_xlim(least * 0.95, most)
            middles = [middle for v in everything if (middle := float(np.median(v))) > 0]
            if middles and most > 30 * min(middles):
                axes.set_xscale("symlog", linthresh=min(middles))
        axes.set_ylim(0, 1)
        axes.set_xlabel(unit)
        axes.set_ylabel("part of packets")
        _legend(canvas, axes, len(series))
        return Figure(caption, _svg(canvas))


def timeline(
    caption: str, runs: Mapping[str, Sequence[tuple[float, float]]], marks: Sequence[tuple[float, str]]
) -> Figure:
    """When what was measured, in minutes: (begin, end) of each repetition by name, and what happened at which time."""
    with mpl.rc_context({**_STYLE, "axes.grid": False}):
        canvas, axes = _canvas(9.0)
        for row, (name, spans) in enumerate(runs.items()):
            bars = [(begin, max(end - begin, 0.01)) for begin, end in spans]
            axes.broken_barh(bars, (row - 0.3, 0.6), color=COLOURS[row % len(COLOURS)], label=name)
        axes.set_yticks(range(len(runs)), list(runs))
        axes.set_ylim(-0.5, len(runs) - 0.3)  # with room for the numbers: what is outside is not drawn
        for number, (at, what) in enumerate(marks, start=1):
            axes.axvline(at, color="black", linewidth=0.8, linestyle="--")
            axes.annotate(
                str(number), (at, len(runs) - 0.6), fontsize=7, ha="center", gid=f"mark {number}: {what}"
            )
        axes.set_xlabel("minutes since the campaign began")
        return Figure(caption, _svg(canvas))


def courses(
    caption: str, series: Mapping[str, tuple[Floats, Floats]], unit: str, *, marks: Sequence[float] = ()
) -> Figure:
    """Draw values over hours, a line for each name, and dotted lines across at some hours."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _canvas(8.0)
        for n, (name, (hours, values)) in enumerate(series.items()):
            x, y = _thinned(hours, values)
            style = ("-", "--", ":")[n // len(COLOURS) % 3]
            axes.plot(x, y, style, label=name, color=COLOURS[n % len(COLOURS)], linewidth=1.2)
        for at in marks:
            axes.axvline(at, color="black", linewidth=0.6, linestyle=":")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("hours")
        axes.set_ylabel(unit)
        _legend(canvas, axes, len(series))
        return Figure(caption, _svg(canvas))


def _high(values: Floats) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]) * 1.1


def _thinned(*columns: Floats) -> tuple[Floats, ...]:
    step = max(1, columns[0].size // 300)
    return tuple(c[::step] for c in columns)


def _canvas(width: float) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(min(width, 10.0), 2.9), layout="constrained")
    return canvas, canvas.add_subplot()


def _legend(canvas: Canvas, axes: Axes, count: int) -> None:
    if count > 1:
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4, frameon=False)


def _svg(canvas: Canvas) -> str:
    """Return the SVG element alone; the page bounds its width."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return _LONG.sub(r"\1", text[text.index("<svg") :])
