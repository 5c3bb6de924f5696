from __future__ import annotations

from collections.abc import Iterator

import pytest

from .serving import PATIENCE


@pytest.fixture(scope="module", autouse=True)
def patient_endings() -> Iterator[None]:
    """A client that gets no processor takes longer over the end of a connection than the moment that it has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vigia_service.server.connection.LINGER_SECONDS", PATIENCE)
        yield
