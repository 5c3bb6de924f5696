"""Tables of aligned columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vigia_text.terminal import clean, cut, width_of

__all__ = ["table"]

_NUMBER = re.compile(r"[+-]?[\d., ]*\d( ?(%|[^\W\d_]\S*))?|[–-]|<\d+(\.\d+)?")
_GAP = "  "
_LEAST = 8


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: int = 0, width: int | None = None
) -> str:
    """Return lines of aligned columns: numbers, with their units, to the right, text to the left.

    Every row has as many cells as the header. Cells are made clean of control
    characters. With a width (see terminal.width) the widest columns of text
    are cut until the table fits.
    """
    cells = [[clean(str(c)) for c in row] for row in [header, *rows]]
    columns = list(zip(*cells, strict=True))
    right = [len(column) > 1 and all(_NUMBER.fullmatch(c) for c in column[1:]) for column in columns]
    widths = [max(map(width_of, column)) for column in columns]
    if width is not None:
        widths = _fitted(widths, right, width - indent)
    lines = []
    for row in cells:
        parts = [_cell(c, w, r) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append((" " * indent + _GAP.join(parts)).rstrip())
    return "\n".join(lines)


def _cell(text: str, columns: int, right: bool) -> str:
    shown = cut(text, columns)
    filling = " " * (columns - width_of(shown))
    return filling + shown if right else shown + filling


def _fitted(widths: list[int], right: Sequence[bool], room: int) -> list[int]:
    """Take from the widest columns of text what does not fit; numbers are never cut."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - room
    while excess > 0:
        texts = [i for i, is_number in enumerate(right) if not is_number and fitted[i] > _LEAST]
        if not texts:
            break
        fitted[max(texts, key=lambda i: fitted[i])] -= 1
        excess -= 1
    return fitted
