"""Errors that a person can act on."""

from __future__ import annotations

from vigia_service.errors import ServiceError

__all__ = ["Interrupted", "OptionError", "VigiaError"]


class VigiaError(ServiceError):
    """A failure with a message for people: what is wrong, its value, and the fix."""


class OptionError(VigiaError):
    """A command line that asks for what cannot be."""


class Interrupted(VigiaError):
    """The command was told to stop by a signal."""
