"""Rates as Kubernetes writes them: a quantity in bits per second."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["LEAST", "MOST", "bits", "shown"]

LEAST, MOST = 1_000, 10**15
"""Bits per second; CNI's bandwidth plugin has the same bounds."""

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_FACTORS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def bits(quantity: object) -> int:
    """Return bits per second. Raises ValueError for what is no quantity, or out of bounds."""
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None:
        raise ValueError(f"{str(quantity)[:40]!r} is not a rate; write for example 40M, bits per second")
    value = int(Decimal(match[1]) * _FACTORS[match[2] or ""])
    if not LEAST <= value <= MOST:
        raise ValueError(f"{str(quantity)[:40]!r} is out of bounds; write 1k to 1P, bits per second")
    return value


def shown(value: float) -> str:
    """Return bits per second for people, for example 40 Mbit/s."""
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if value >= 1000**power:
            return f"{value / 1000**power:.3g} {unit}bit/s"
    return f"{value:.3g} bit/s"
