"""Errors that a person can act on."""

from __future__ import annotations

__all__ = ["Interrupted", "VigiaError"]


class VigiaError(Exception):
    """A failure with a message for people: what is wrong, its value, and the fix."""


class Interrupted(VigiaError):
    """The command was told to stop by a signal."""
