"""What the site has beside docs/: READMEs of the parts, and the files of the repository that pages link to.

A hook of MkDocs. Pages keep the links that work in a checkout; here they become links of the site.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PARTS = {
    "probes/README.md": "parts/probe.md",
    "exporters/README.md": "parts/index.md",
    "exporters/tenant/README.md": "parts/exporter.md",
    "exporters/identity/README.md": "parts/identity.md",
    "exporters/compare/README.md": "parts/compare.md",
    "isolation-agent/README.md": "parts/isolation-agent.md",
    "isolation-agent/enforcer/README.md": "parts/enforcer.md",
    "dashboards/README.md": "parts/dashboards.md",
    "vigia/README.md": "parts/vigia.md",
    "internal/py/README.md": "parts/python.md",
    "internal/py/vigia_statistics/README.md": "parts/statistics.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "LICENSE": "project/license.md",
}
"""Files outside of docs/ that are pages, and where in the site they stand."""

SOURCES = "source"
"""Folder of the pages that show a file of the repository as it is."""

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)(\]\()([^)\s]+)(\))")
_CELL = re.compile(r"(?<=[| ])`[^`\n]*\\\|[^`\n]*`")
_LANGUAGES = {".yml": "yaml", ".yaml": "yaml", ".py": "python", ".go": "go", ".json": "json", ".sh": "sh"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/, and one for each other file that a page links to."""
    for name, uri in PARTS.items():
        text = (ROOT / name).read_text()
        plain = f"# {Path(name).stem.capitalize()}\n\n```text\n{text}```\n" if name == "LICENSE" else text
        files.append(File.generated(config, uri, content=plain))
    known = {origin(file) for file in files}
    for file in list(files.documentation_pages()):
        for path in sorted(set(_linked(file)) - known):
            if path.exists() and path != ROOT:
                files.append(File.generated(config, _source(path), content=_shown(path)))
                known.add(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files, **_: Any) -> str:
    """Turn the links of a page into those of the site, and what GitHub wants escaped into what is meant."""
    here = origin(page.file)
    uris = {origin(file): file.src_uri for file in files}

    def turned(link: re.Match[str]) -> str:
        target = link[2]
        path = _resolved(here, target)
        if path is None:
            return link[0]
        uri = uris.get(path) or uris.get(path / "README.md") or uris.get(path / "index.md")
        if uri is None:
            return link[0]  # MkDocs says that there is no such page
        anchor = urlsplit(target).fragment
        away = os.path.relpath(uri, Path(page.file.src_uri).parent)
        return f"{link[1]}{away}{'#' + anchor if anchor else ''}{link[3]}"

    return _outside_of_code(markdown, lambda text: _CELL.sub(_plain, _LINK.sub(turned, text)))


def _plain(code: re.Match[str]) -> str:
    """A bar in the code of a table's cell: escaped for GitHub, plain here."""
    return code[0].replace("\\|", "|")


def origin(file: File) -> Path:
    """Return where in the repository a file of the site comes from."""
    if file.abs_src_path and file.generated_by is None:
        return Path(file.abs_src_path)
    named = {uri: name for name, uri in PARTS.items()}
    return ROOT / (named.get(file.src_uri) or file.src_uri.removeprefix(f"{SOURCES}/").removesuffix(".md"))


def _linked(file: File) -> Iterator[Path]:
    for found in _LINK.finditer(_FENCE.sub("", file.content_string)):
        if path := _resolved(origin(file), found[2]):
            yield path


def _resolved(here: Path, target: str) -> Path | None:
    """Return the file that a link names; None if it leads to another site, or within the page."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    return Path(os.path.normpath(here.parent / parts.path))


def _source(path: Path) -> str:
    return f"{SOURCES}/{path.relative_to(ROOT)}.md"


def _shown(path: Path) -> str:
    """Return a page that shows a file, or the names in a folder; it is not searched, and in no menu."""
    name = path.relative_to(ROOT)
    language = _LANGUAGES.get(path.suffix, "text")
    fence = "`" * 6
    text = path.read_text() if path.is_file() else _names(path)
    return f"---\nsearch: {{exclude: true}}\n---\n# {name}\n\n{fence}{language}\n{text}{fence}\n"


def _names(folder: Path) -> str:
    listed = subprocess.run(["git", "ls-files", "."], cwd=folder, capture_output=True, text=True, check=True)
    return listed.stdout


def _outside_of_code(text: str, change: Any) -> str:
    parts, at = [], 0
    for block in _FENCE.finditer(text):
        parts += [change(text[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*parts, change(text[at:])])
