"""The blocks of documentation pages that tests run: ``<!-- test: NAME -->`` stands above each."""

from __future__ import annotations

import re

from labkit import ROOT

from pages import PARTS

__all__ = ["BESIDE_CODE", "blocks", "fences", "page"]

_BLOCK = re.compile(r"^ *<!-- test: ([\w. -]+) -->\n *```\w+\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BESIDE_CODE = ("README.md", *(name for name in PARTS if name.endswith(".md") and name != "CHANGELOG.md"))
"""Pages outside of docs/: the project's own, and those of its parts."""
SHOWN = ("console", "text", "mermaid")
"""Languages of blocks that show something, and are not for anybody to use."""


def page(name: str) -> str:
    """Return a page below docs/."""
    return (ROOT / "docs" / name).read_text()


def blocks(text: str) -> dict[str, str]:
    """Return the blocks of a page by name; those of one name one after the other."""
    found: dict[str, str] = {}
    for name, block in _BLOCK.findall(text):
        found[name] = found.get(name, "") + block
    return found


def fences(text: str) -> tuple[int, int]:
    """Return how many blocks there are for people to use, and how many of them have a test."""
    languages = re.findall(r"^ *```(\w+)$", text, re.MULTILINE)
    return len([x for x in languages if x not in SHOWN]), len(_BLOCK.findall(text))
