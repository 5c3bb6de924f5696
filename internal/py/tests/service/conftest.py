from __future__ import annotations

import pytest

from vigia_service import health
from vigia_testing import DEADLINE


@pytest.fixture(autouse=True)
def patient_health_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers in these tests may get no processor for longer than an instance has."""
    monkeypatch.setattr(health, "_SECONDS", DEADLINE)
