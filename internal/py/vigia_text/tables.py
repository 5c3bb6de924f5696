"""Tables of aligned columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from vigia_text.terminal import clean, fold, width_of

__all__ = ["table"]

_NUMBER = re.compile(r"[+-]?[\d., ]*\d( ?(%|[^\W\d_]\S*))?|[–-]|<\d+(\.\d+)?")
_SPAN = re.compile(r"\S+ (to|of) \S+( \S+)?|[–-]")
"""What is read at once: an interval, a part of something."""
_GAP = "  "
_LEAST = 8


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: int = 0, width: int | None = None
) -> str:
    """Return lines of aligned columns: numbers, with their units, to the right, text to the left.

    Every row has as many cells as the header. Cells are made clean of control
    characters. With a width (see terminal.width) the widest columns of text
    are folded until the table fits: nothing is left out, and no number is split.
    """
    cells = [[clean(str(c)) for c in row] for row in [header, *rows]]
    columns = list(zip(*cells, strict=True))
    right = [len(column) > 1 and all(_NUMBER.fullmatch(c) for c in column[1:]) for column in columns]
    widths = [max(map(width_of, column)) for column in columns]
    if width is not None:
        widths = _fitted(columns, widths, right, width - indent)
    lines = []
    for row in cells:
        folded = [[c] if r else fold(c, w) for c, w, r in zip(row, widths, right, strict=True)]
        for parts in zip_longest(*folded, fillvalue=""):
            shown = [_cell(c, w, r) for c, w, r in zip(parts, widths, right, strict=True)]
            lines.append((" " * indent + _GAP.join(shown)).rstrip())
    return "\n".join(lines)


def _cell(text: str, columns: int, right: bool) -> str:
    filling = " " * (columns - width_of(text))
    return filling + text if right else text + filling


def _fitted(
    columns: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool], room: int
) -> list[int]:
    """Take from the widest columns of text what does not fit: between words, then in spans, then in words."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - room
    words = [max(width_of(word) for cell in column for word in [*cell.split(), ""]) for column in columns]
    spans = [len(column) > 1 and all(_SPAN.fullmatch(c) for c in column[1:]) for column in columns]
    whole = [width if span else word for width, word, span in zip(widths, words, spans, strict=True)]
    for least in (whole, words, [0] * len(words)):
        while excess > 0:
            texts = [i for i, r in enumerate(right) if not r and fitted[i] > max(_LEAST, least[i])]
            if not texts:
                break
            fitted[max(texts, key=lambda i: fitted[i])] -= 1
            excess -= 1
    return fitted
