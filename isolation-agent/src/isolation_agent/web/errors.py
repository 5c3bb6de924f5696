"""Every error as one JSON shape."""

from __future__ import annotations

import logging

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from isolation_agent.errors import AuditError, StorageError
from isolation_agent.web.answers.errors import ErrorAnswer, ErrorDetail
from isolation_agent.web.reply import reply

__all__ = ["ApiError", "register"]

_log = logging.getLogger(__name__)

_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
}


class ApiError(Exception):
    """An error that the client is told about."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, *, retry_after: float = 5.0
    ) -> None:
        """retry_after is in seconds, for an error that goes away."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after


def register(app: Flask) -> None:
    """Answer every exception as JSON; what is unexpected is logged and not shown."""

    @app.errorhandler(ApiError)
    def api_error(e: ApiError) -> Response:
        answer = _answer(e.status, e.code, e.message, e.field)
        if e.status in (429, 503):
            answer.headers["Retry-After"] = f"{e.retry_after:.0f}"
        return answer

    @app.errorhandler(StorageError)
    @app.errorhandler(AuditError)
    def storage_error(e: StorageError | AuditError) -> Response:
        _log.error("cannot store anything, request refused", extra={"err": str(e)})
        return _answer(503, "storage", "nothing can be stored at the moment; try again")

    @app.errorhandler(HTTPException)
    def http_error(e: HTTPException) -> Response:
        status = e.code or 500
        return _answer(status, _CODES.get(status, "error"), e.description or e.name)

    @app.errorhandler(Exception)
    def unexpected(e: Exception) -> Response:
        _log.exception("cannot answer a request")
        return _answer(500, "internal", "internal error; see the agent's log")


def _answer(status: int, code: str, message: str, field: str | None = None) -> Response:
    response = reply(ErrorAnswer(error=ErrorDetail(code=code, message=message, field=field)), status)
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="isolation-agent"'
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response
