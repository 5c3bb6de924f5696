"""Writes the table of docs/concepts/faults.md: PYTHONPATH=tests python -m faults."""

from __future__ import annotations

from faults.catalogue import PAGE, page_with

if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text()))
