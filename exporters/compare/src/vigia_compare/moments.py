"""Moments of the past, as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["DURATION", "SECONDS", "moment"]

DURATION = re.compile(r"([+-]?[0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])")
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of each unit of a duration."""


def moment(text: str, now: float) -> float:
    """Return the Unix time that a text means: 2026-01-31T12:00:00Z, Unix seconds, or how long ago, as 2h.

    A time without a zone is UTC. Raises ValueError where it is none, is before 1970, or is not in the past.
    """
    ago = DURATION.fullmatch(text)
    try:
        if ago is not None:
            at = now - abs(float(ago[1])) * SECONDS[ago[2]]
        elif re.fullmatch(r"[0-9]{9,11}(\.[0-9]{1,6})?", text):
            at = float(text)
        else:
            parsed = datetime.fromisoformat(text)
            at = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            "is not a moment; write for example 2026-01-31T12:00:00Z, 1800000000 or 2h"
        ) from None
    if at <= 0.0:
        raise ValueError("is before 1970; write for example 2h, for two hours ago")
    if at > now + 60.0:
        raise ValueError("is not in the past; write for example 2h, for two hours ago")
    return at
