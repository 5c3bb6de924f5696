"""Failures that operators are told about in one line."""

from __future__ import annotations

__all__ = ["ServiceError"]


class ServiceError(Exception):
    """What failed, with what, and what to do about it. The command line prints it and ends with 1."""
