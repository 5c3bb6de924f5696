"""Plots: one SVG element without scripts or anything to load, whatever the data are."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

from vigia.report import figures
from vigia.report.document import Figure

SVG = "{http://www.w3.org/2000/svg}"
RNG = np.random.default_rng(1)


def parsed(svg: str) -> ElementTree.Element:
    """The element; ParseError if it is not well-formed."""
    return ElementTree.fromstring(svg)  # noqa: S314 - our own


def bars(**given: object) -> Figure:
    series = {"a": [(1.0, 0.8, 1.2), None], "b": [(2.0, 1.9, 2.1), (3.0, 2.0, 4.0)]}
    return figures.bars("Bars", ["one", "two"], series, "Mbit/s", **given)  # type: ignore[arg-type]


def cdf() -> Figure:
    return figures.cdf("CDF", {"a": RNG.normal(5, 1, 500), "b": RNG.normal(9, 1, 5)}, "ms", band=0.95)


def dots() -> Figure:
    rates = {"a": [np.array([900.0, 1100.0]), np.array([])], "b": [np.array([1.0, 2.0]), np.array([5.0])]}
    means = {"a": [(1000.0, 900.0, 1100.0), None], "b": [(1.4, 1.0, 2.0), (5.0, 5.0, 5.0)]}
    return figures.dots(
        "Dots", ["one", "two"], rates, means, "Mbit/s", published={"theirs": [700.0, None]}, line=2.0
    )


def timeline() -> Figure:
    runs = {"a": [(0.0, 1.0), (2.0, 3.0)], "b": [(1.0, 2.0)]}
    return figures.timeline("Time", runs, [(1.5, "rekeyed"), (2.5, "moved")])


def courses() -> Figure:
    hours = np.linspace(0, 3, 1000)
    return figures.courses(
        "Course", {"a": (hours, hours * 5), "b": (hours, hours**2)}, "MiB", marks=[0.5, 1.5]
    )


@pytest.mark.parametrize("draw", [bars, cdf, courses, dots, timeline])
def test_a_figure_is_one_element_that_stands_alone(draw: Callable[[], Figure]) -> None:
    text = draw().svg
    root = parsed(text)
    assert root.tag == f"{SVG}svg"
    assert "viewBox" in root.attrib
    tags = {e.tag.removeprefix(SVG) for e in root.iter()}
    assert not tags & {"script", "image", "foreignObject"}
    links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"url\((?!#)", text)


def test_the_same_data_give_the_same_bytes() -> None:
    """A report that is written again does not differ."""
    assert bars().svg == bars().svg
    assert timeline().svg == timeline().svg


def test_a_gap_has_no_bar() -> None:
    def patches(figure: Figure) -> int:
        root = parsed(figure.svg)
        return len([e for e in root.iter(f"{SVG}g") if e.get("id", "").startswith("patch_")])

    with_gap = figures.bars("x", ["one", "two"], {"a": [(1.0, 0.8, 1.2), None]}, "s")
    without = figures.bars("x", ["one", "two"], {"a": [(1.0, 0.8, 1.2), (1.0, 0.8, 1.2)]}, "s")
    assert patches(without) == patches(with_gap) + 1


def test_a_line_across() -> None:
    assert bars(line=2.5).svg.count("stroke-dasharray") > bars().svg.count("stroke-dasharray")


@pytest.mark.parametrize(
    "values",
    [
        [],
        [3.0],
        [0.0, 0.0, 0.0],
        [5.0, 5.0, 5.0],
        [0.0, 0.0, 0.0, 1000.0],
        list(range(5000)),
        [1e-9, 1.0, 1e9],
    ],
    ids=lambda v: f"{len(v)} values" if len(v) != 3 else str(v),
)
def test_a_distribution_of_anything_can_be_drawn(values: list[float]) -> None:
    array = np.array(values, dtype=float)
    for band in (None, 0.99):
        parsed(figures.cdf("x", {"a": array, "b": np.array([1.0, 2.0])}, "ms", band=band).svg)
        parsed(figures.cdf("x", {"a": array}, "ms", band=band).svg)


def test_courses_have_a_line_each_and_are_thinned() -> None:
    hours = np.linspace(0, 3, 100_000)
    few, many = (figures.courses("x", {"a": (h, h)}, "MiB").svg for h in (hours[::400], hours))
    assert len(many) < 2 * len(few)
    marked = figures.courses("x", {"a": (hours, hours)}, "MiB", marks=[1.0, 2.0]).svg
    assert marked.count("stroke-dasharray") == few.count("stroke-dasharray") + 2
    many_names = figures.courses("x", {f"p{n}": (hours[:9], hours[:9] + n) for n in range(20)}, "MiB").svg
    assert all(f">p{n}<" in many_names for n in range(20))


def test_long_distributions_are_thinned() -> None:
    few, many = (figures.cdf("x", {"a": np.sort(RNG.normal(0, 1, n)) + 10}, "ms").svg for n in (600, 60_000))
    assert len(many) < 2 * len(few)


@pytest.mark.parametrize("rows", [1, 2, 3, 12])
def test_marks_are_numbered_and_say_what_happened(rows: int) -> None:
    runs = {str(n): [(0.0, 3.0)] for n in range(rows)}
    text = figures.timeline("Time", runs, [(1.5, "rekeyed"), (2.5, "moved")]).svg
    assert text.index("mark 1: rekeyed") < text.index("mark 2: moved")


def test_what_marks_say_is_text_and_not_markup() -> None:
    text = figures.timeline("x", {"a": [(0.0, 1.0)]}, [(0.5, '<script>"&')]).svg
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    parsed(text)


def test_a_dot_for_each_repetition_and_published_values_on_the_same_axis() -> None:
    """Four orders of magnitude: on a log axis all are seen."""
    root = parsed(dots().svg)
    marks = [e for e in root.iter(f"{SVG}use")]
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert "theirs" in texts
    drawn = {(e.get("x"), e.get("y")) for e in marks}
    assert len(drawn) >= 5 + 1, "five repetitions, and the published value"
    heights = [float(e.get("y") or 0) for e in marks]
    assert min(heights) >= 0.0


def test_what_a_log_axis_cannot_show_is_left_out() -> None:
    def drawn(*values: float) -> int:
        bars: dict[str, list[figures.Bar | None]] = {"a": [None]}
        return figures.dots("D", ["g"], {"a": [np.array(values)]}, bars, "s").svg.count("<use")

    assert drawn(0.0, 10.0, 20.0) == drawn(10.0, 20.0)


def test_pictures_are_light() -> None:
    """Text is text, not outlines, and coordinates have two decimals."""
    text = dots().svg
    assert "<text" in text
    assert not re.search(r"\d\.\d{3}", text)
    assert len(text) < 40_000
