"""What can go wrong with a question to Prometheus."""

from __future__ import annotations

from vigia_service.errors import ServiceError

__all__ = ["BadAnswer", "PrometheusError", "Refused", "TooLarge", "Unavailable"]


class PrometheusError(ServiceError):
    """A question without an answer; the message names the server and what to do."""


class Unavailable(PrometheusError):
    """The server cannot be reached, or does not answer in time."""


class Refused(PrometheusError):
    """The server says no: the expression is wrong, or costs more than it allows."""

    def __init__(self, message: str, status: int, kind: str) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.kind = kind
        """Prometheus's errorType, such as bad_data, execution or timeout; empty if there is none."""


class TooLarge(PrometheusError):
    """An answer beyond the bound."""


class BadAnswer(PrometheusError):
    """An answer that is none of the Prometheus API."""
