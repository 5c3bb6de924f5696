"""Where the source tree is."""

from __future__ import annotations

from pathlib import Path

from vigia.errors import VigiaError

__all__ = ["built", "source_root"]


def source_root() -> Path:
    """Return the folder of the source tree. Raises VigiaError outside of one."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "alert-rules").is_dir() and (folder / "go.mod").is_file():
            return folder
    raise VigiaError("this needs the source tree (alert-rules/, deploy/, bin/); run it from a checkout")


def built(program: str) -> Path:
    """Return a program that make build builds. Raises VigiaError if it was not built."""
    path = source_root() / "bin" / program
    if not path.is_file():
        raise VigiaError(f"{path} is missing; build it: make build")
    return path
