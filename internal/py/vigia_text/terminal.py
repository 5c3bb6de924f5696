"""What a stream can show, and text made safe for it."""

from __future__ import annotations

import os
import shutil
from typing import Literal, TextIO

from wcwidth import wcswidth, wcwidth

__all__ = ["clean", "cut", "fold", "hang", "paint", "wants_colour", "width", "width_of"]

Colour = Literal["red", "green", "yellow", "cyan", "bold", "dim"]

_CODES: dict[Colour, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


def clean(text: str) -> str:
    r"""Return text in which nothing but letters moves the cursor: control characters are shown as \x1b."""
    if text.isprintable():
        return text  # as nearly all is
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def width_of(text: str) -> int:
    """Return how many columns a text takes on a terminal; it has to be clean."""
    return max(0, wcswidth(text))


def cut(text: str, columns: int) -> str:
    """Return a clean text that takes at most so many columns, with … where it goes on."""
    if width_of(text) <= columns:
        return text
    out, used = "", 0
    for c in text:
        used += max(0, wcwidth(c))
        if used > columns - 1:
            break
        out += c
    return f"{out}…" if columns > 0 else ""


def fold(text: str, columns: int) -> list[str]:
    """Return the lines of a clean text, none of which takes more columns: a line ends between two words.

    A word that is longer ends after one of its hyphens, or where it has to.
    """
    lines, rest, columns = [], text.strip(), max(1, columns)
    while width_of(rest) > columns:
        fitting = _fitting(rest, columns)
        end = rest.rfind(" ", 0, len(fitting) + 1)
        if end <= 0:
            end = fitting.rfind("-") + 1 or len(fitting)
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*lines, rest]


def _fitting(text: str, columns: int) -> str:
    """Return the begin of a text that takes at most so many columns, one letter at least."""
    used = 0
    for i, c in enumerate(text):
        used += max(0, wcwidth(c))
        if used > columns and i > 0:
            return text[:i]
    return text


_LEAST = 20
"""Columns of a terminal below which it folds lines itself."""


def hang(text: str, columns: int | None) -> str:
    """Return clean lines of which those that are too long for a terminal go on below, indented by two more.

    A word that is longer than a line is left whole, as addresses and paths are copied.
    """
    if columns is None or columns < _LEAST:
        return text
    return "\n".join(part for line in text.split("\n") for part in _hung(line, columns))


def _hung(line: str, columns: int) -> list[str]:
    if width_of(line) <= columns:
        return [line]
    words = line.split()
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [indent + words[0]]
    for word in words[1:]:
        if width_of(lines[-1]) + 1 + width_of(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}  {word}")
    return lines


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour: on a terminal that can, unless NO_COLOR is set; FORCE_COLOR insists."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return _is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb")


def paint(text: str, colour: Colour, stream: TextIO) -> str:
    """Return text in a colour, if the stream wants colours."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if wants_colour(stream) else text


def width(stream: TextIO) -> int | None:
    """Return the columns of a terminal; None for a file or a pipe, which has no end."""
    return shutil.get_terminal_size().columns if _is_terminal(stream) else None


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
