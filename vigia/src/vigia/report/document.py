"""What a report is made of, before it is a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Document", "Figure", "Section", "Table"]


@dataclass(frozen=True)
class Table:
    """Rows under a header; the first column names the row."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A plot, as SVG."""

    caption: str
    svg: str


@dataclass(frozen=True)
class Section:
    """A part of a report: text first, then tables, then figures."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Summary:
    """The first page, below the answer."""

    found: Sequence[str] = ()
    """What was found, a sentence or two each."""
    sure: Sequence[str] = ()
    """How sure that is."""
    silent: Sequence[str] = ()
    """What it does not say."""
    paper: str = ""
    """What the published study answered."""
    agreement: str = ""
    """Whether ours agrees, and the likely reason where it does not."""
    confidence: str = ""
    """high, moderate, low or none, and why: for the table of all campaigns."""


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    question: str
    answer: str
    sections: Sequence[Section]
    summary: Summary = field(default_factory=lambda: Summary())
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """What, on what, when: pairs of a name and a value."""
