"""The site of the documentation: it is built without a warning, whole, and asks nobody else for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from labkit import ROOT

import pages

DOCS = ROOT / "docs"
SILENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
"""The theme advertises its successor otherwise."""

FRONT_DOOR = (
    "tutorial/first-ten-minutes",
    *(
        f"how-to/{x}"
        for x in ("compose", "node", "kubernetes", "tls", "scale", "extend", "alerts", "upgrade", "remove")
    ),
    *(
        f"concepts/{x}"
        for x in ("time-stamps", "isolation", "statistics", "cost", "faults", "soak", "performance")
    ),
    *(
        f"reference/{x}"
        for x in ("command-lines", "metrics", "configuration", "http-api", "alerts", "labels")
    ),
    *("glossary", "troubleshooting", "sizing", "faq", "adr/index"),
)
"""Pages that everybody may expect."""


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=SILENT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "built"
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr and "not found" not in done.stderr, done.stderr
    return folder


class Read(HTMLParser):
    """What a page loads, where it leads, and what can be led to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.names |= {values[key] for key in ("id", "name") if key in values}
        if "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.loaded.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def written(site: Path) -> Iterator[Path]:
    """The pages of the site; reports of campaigns are files of their own."""
    reports = {*(site / "examples").rglob("report.html")}
    yield from (p for p in sorted(site.rglob("*.html")) if p not in reports and p.name != "404.html")


def test_make_docs_builds_it_the_same_way() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (command,) = re.findall(r"^docs: .*\n\t@(.*)$", makefile, re.MULTILINE)
    assert command == "NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict"
    (command,) = re.findall(r"^docs-serve: .*\n\t@(.*)$", makefile, re.MULTILINE)
    assert "--dev-addr 127.0.0.1:" in command
    config = (ROOT / "mkdocs.yml").read_text()
    (folder,) = re.findall(r"^site_dir: (\S+)$", config, re.MULTILINE)
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", f"{folder}/index.html"], cwd=ROOT, check=False
    )
    assert ignored.returncode == 0


@pytest.mark.parametrize("name", FRONT_DOOR)
def test_what_everybody_looks_for_is_there(site: Path, name: str) -> None:
    assert (site / f"{name}.html").is_file()
    assert f'href="{name}.html"' in (site / "index.html").read_text(), "no menu leads there"


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = {unquote(link) for link in Read(site / "index.html").links}
    files = {str(p.relative_to(site)) for p in written(site)}
    hidden = {f for f in files if f not in menu and not f.startswith(f"{pages.SOURCES}/")}
    assert hidden - {"index.html"} == set()
    ours = [p for p in DOCS.rglob("*.md") if p != DOCS / "index.md"]
    assert len(files) >= len(ours) + len(pages.PARTS)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        away = [x for x in Read(page).loaded if urlsplit(x).scheme not in ("", "data") or x.startswith("//")]
        assert away == [], page
    for sheet in site.rglob("*.css"):
        imports = re.findall(r"url\(\s*['\"]?(https?:)?//", sheet.read_text())
        assert imports == [], sheet


def test_no_page_uses_what_the_theme_would_fetch(site: Path) -> None:
    """Diagrams and formulas come from other sites, if a page has some."""
    for page in written(site):
        text = page.read_text()
        assert 'class="mermaid"' not in text and "mathjax" not in text.lower(), page


def test_every_link_and_picture_is_there(site: Path) -> None:
    names = {page: Read(page).names for page in written(site)}
    checked = 0
    for page in names:
        read = Read(page)
        for link in (*read.links, *read.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file() or (target / "index.html").is_file(), (page, link)
            if parts.fragment and target in names:
                assert unquote(parts.fragment) in names[target], (page, link)
            checked += 1
    assert checked > 10_000


def test_no_markdown_is_left_in_a_page(site: Path) -> None:
    """What one reader of Markdown takes for a list or a table, another takes for words."""
    for page in written(site):
        body = page.read_text().partition("<article")[2].partition("</article>")[0]
        body = re.sub(r"<(pre|code)\b.*?</\1>", "code", body, flags=re.DOTALL)
        for text in re.findall(r"<(?:p|li|td)\b[^>]*>(.*?)</(?:p|li|td)>", body, re.DOTALL):
            assert not re.search(r"\n\s*(?:[-*]|\d+\.) \S|\|\s*-{3}|```|\]\(", text), (page, text[:200])


def test_a_link_that_leads_nowhere_is_a_failure(tmp_path: Path) -> None:
    """As mkdocs.yml has it, in a folder of its own."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# A\n\n[b](b.md) [c](#c)\n")
    config = (ROOT / "mkdocs.yml").read_text()
    config = config.replace("hooks: [docs/pages.py]\n", "").replace("  - awesome-nav\n", "")
    (tmp_path / "mkdocs.yml").write_text(config)
    done = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0
    assert "'b.md'" in done.stderr and "'#c'" in done.stderr


def test_the_menu_names_pages_in_an_order() -> None:
    named = re.findall(
        r"- (?:\w[^:\n]*: |glob: )?([\w/.*-]+)$", (DOCS / ".nav.yml").read_text(), re.MULTILINE
    )
    there = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} | set(pages.PARTS.values())
    assert [n for n in named if "*" not in n and n not in there] == []
    assert len(named) == len(set(named)) > 50
    assert yaml.safe_load((DOCS / ".nav.yml").read_text())["nav"][0] == {
        "Home": ["index.md", "troubleshooting.md", "faq.md", "glossary.md", "sizing.md"]
    }


def test_links_become_those_of_the_site(site: Path) -> None:
    text = (site / "how-to/scale.html").read_text()
    assert 'href="../source/deploy/prometheus/replica.yml.html"' in text, "a file of the repository is shown"
    assert 'href="../adr/0020-one-replica-leads.html"' in text
    assert "scrape_configs" in (site / "source/deploy/prometheus/replica.yml.html").read_text()
    assert 'href="../how-to/extend.html#add-a-probe-protocol"' in (site / "parts/probe.html").read_text()
    folder = (site / "source/deploy/docker/node.html").read_text()
    assert "exporter.yaml" in folder and "enforcer.yaml" in folder


def test_code_is_left_as_it_is(site: Path) -> None:
    assert pages._outside_of_code("a\n```\nb\n```\nc", str.upper) == "A\n```\nb\n```\nC"
    assert pages._outside_of_code("a\n1. x\n    ```sh\n    b\n    ```\nc", str.upper) == (
        "A\n1. X\n    ```sh\n    b\n    ```\nC"
    )
    panels = (site / "reference/panels.html").read_text()
    assert "active|stepped_up" in panels and r"active\|stepped_up" not in panels
