"""Styles inside of a page, under a policy that allows those styles alone.

A page whose styles are a file of their own shows nothing until that file has come: one more question, to a
server that is busy finding out what the page shows. Inside of the page they come with its first bytes; their
hash in the policy keeps every other style out, as a file would.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256

__all__ = ["Styles"]

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Styles:
    """What stands between <style> and </style>."""

    text: str
    source: str
    """The same, as a Content-Security-Policy's style-src names it."""

    @classmethod
    def of(cls, css: str) -> Styles:
        """Return a style sheet's rules without what is for people: comments, line ends, indentation.

        Raises ValueError where a page would take a rule for markup.
        """
        lines = (line.strip() for line in _COMMENT.sub("", css).splitlines())
        text = "\n".join(line for line in lines if line)
        if "<" in text:
            at = text[max(0, text.index("<") - 20) :][:40]
            raise ValueError(f"styles have a < in {at!r}: a page takes it for markup; write \\3c")
        return cls(text, f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'")
