"""The page: everything that was measured is text in it, and it loads nothing."""

from __future__ import annotations

import builtins
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest

from vigia.errors import VigiaError
from vigia.report import figures, page
from vigia.report.document import Document, Section, Summary, Table

HOSTILE = '<script>alert("x")</script>&"\''
FIGURE = figures.bars("Rates", ["one"], {"a": [(1.0, 0.9, 1.1)]}, "Mbit/s")
DOCUMENT = Document(
    "Title",
    "Question?",
    "Answer.",
    [
        Section("Text", ["First.", "Second."]),
        Section(
            "Numbers",
            tables=[Table("A table", ["path", "rtt"], [["a", "1 ms"]], "A note.")],
            figures=[FIGURE],
        ),
    ],
    facts=[("kernel", "6.1")],
)


class Reader(HTMLParser):
    """Tags that are open, and the text between them."""

    VOID = {"meta", "br", "hr", "img", "link", "col"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "tags are closed in their order"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(document: Document) -> Reader:
    found = Reader()
    found.feed(page.html(document))
    assert found.open == []
    return found


def test_everything_is_on_the_page() -> None:
    found = read(DOCUMENT)
    text = " ".join(" ".join(found.text).split())
    for words in (
        "Title",
        "Question?",
        "Answer.",
        "First.",
        "Second.",
        "A table",
        "1 ms",
        "A note.",
        "kernel",
        "6.1",
    ):
        assert words in text, words
    assert "svg" in found.tags
    assert found.tags.count("table") >= 1


def test_what_was_measured_is_never_markup() -> None:
    hostile = replace(
        DOCUMENT,
        title=HOSTILE,
        question=HOSTILE,
        answer=HOSTILE,
        sections=[Section(HOSTILE, [HOSTILE], [Table(HOSTILE, [HOSTILE], [[HOSTILE]], HOSTILE)])],
        facts=[(HOSTILE, HOSTILE)],
    )
    found = read(hostile)
    assert "script" not in found.tags
    assert "".join(found.text).count(HOSTILE) >= 9


def test_a_document_without_sections_is_a_page() -> None:
    assert "html" in read(replace(DOCUMENT, sections=[], facts=[])).tags


def test_a_template_that_asks_for_what_is_not_there_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(jinja2.UndefinedError):
        page.html(None)  # type: ignore[arg-type]


def test_a_pdf(tmp_path: Path) -> None:
    page.write_pdf(page.html(DOCUMENT), tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(
    "asked",
    ['<img src="https://example.org/x.png">', '<link rel="stylesheet" href="file:///etc/passwd">'],
)
def test_a_pdf_loads_nothing(tmp_path: Path, asked: str, caplog: pytest.LogCaptureFixture) -> None:
    page.write_pdf(f"<html><body>{asked}text</body></html>", tmp_path / "report.pdf")
    assert "a report loads nothing, but asked for" in caplog.text


def test_without_pango_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    real = builtins.__import__

    def load(name: str, *rest: object) -> object:
        if name == "weasyprint":
            raise OSError("cannot load library 'libpango-1.0-0'")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", load)
    with pytest.raises(VigiaError, match=r"a PDF needs Pango: cannot load .*apt-get install libpango-1\.0-0"):
        page.write_pdf("<html></html>", tmp_path / "report.pdf")
    assert not (tmp_path / "report.pdf").exists()


def test_the_first_page_answers() -> None:
    """What was asked and found, how sure, what it does not say, and the study beside it, before any table."""
    summary = Summary(
        ["It is so.", HOSTILE],
        ["Quite sure."],
        ["What is beyond."],
        "The study's answer.",
        "agrees",
        "high: all",
    )
    text = page.html(replace(DOCUMENT, summary=summary))
    places = [
        text.index(f">{word}<") if word[0].isupper() and "?" not in word else text.index(word)
        for word in (
            "Question?",
            "Answer.",
            "What was found",
            "How sure that is",
            "What it does not say",
            "Beside the published study",
        )
    ]
    assert places == sorted(places)
    assert places[-1] < text.index("<table")
    assert "<script>" not in text
    assert "The study&#39;s answer." in text
    bare = page.html(DOCUMENT)
    assert "What was found" not in bare and "Beside the published study" not in bare
