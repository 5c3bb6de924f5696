"""Where the source tree is."""

from __future__ import annotations

from pathlib import Path

from vigia.errors import VigiaError

__all__ = ["source_root"]


def source_root() -> Path:
    """Return the folder of the source tree. Raises VigiaError outside of one."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "alert-rules").is_dir() and (folder / "go.mod").is_file():
            return folder
    raise VigiaError("this needs the source tree (alert-rules/, deploy/, bin/); run it from a checkout")
