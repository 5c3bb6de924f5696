"""What a count of lost packets does and does not show."""

from __future__ import annotations

from scipy import special

from vigia_statistics.intervals import Interval
from vigia_statistics.samples import checked_confidence


def loss_interval(lost: int, sent: int, confidence: float = 0.95) -> Interval:
    """Return the loss ratio with the interval of Clopper and Pearson (1934).

    Treats packets as independent; losses come in bursts, so the interval is a
    floor for the uncertainty of one count, not a test between two.
    """
    checked_confidence(confidence)
    if not 0 <= lost <= sent or sent == 0:
        raise ValueError(f"lost, sent: {lost} of {sent}; need 0 <= lost <= sent and sent > 0")
    tail = (1.0 - confidence) / 2.0
    lower = 0.0 if lost == 0 else float(special.betaincinv(lost, sent - lost + 1, tail))
    upper = 1.0 if lost == sent else float(special.betaincinv(lost + 1, sent - lost, 1.0 - tail))
    return Interval(lost / sent, lower, upper, confidence)


def minimum_detectable_loss(sent: float, confidence: float = 0.95) -> float:
    """Return the smallest loss ratio that ``sent`` packets show at least once with ``confidence``.

    It is also the upper bound when none of them was lost; at 95 % close to 3 / sent,
    the rule of three (Hanley and Lippman-Hand 1983). 1 when nothing was sent.
    """
    checked_confidence(confidence)
    if sent < 0:
        raise ValueError(f"sent: {sent} is negative")
    return 1.0 if sent == 0 else float(-special.expm1(special.log1p(-confidence) / sent))
