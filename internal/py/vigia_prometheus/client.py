"""Asking a server that speaks the Prometheus HTTP API."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

import vigia_http
import vigia_json
from vigia_config.urls import base_url
from vigia_prometheus import answers
from vigia_prometheus.answers import Alert, Labels, Sample, Series
from vigia_prometheus.errors import BadAnswer, Refused, TooLarge, Unavailable

__all__ = ["Access", "Prometheus"]

MAX_ANSWER = 64 << 20
_MAX_WORDS = 300
_MAX_DEPTH = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Access:
    """Who asks. Nothing of it appears in a repr, a log or an error."""

    bearer: str | None = field(default=None, repr=False)
    """Token."""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    """Basic authentication, in place of a token."""

    def __post_init__(self) -> None:
        if self.bearer is not None and self.user is not None:
            raise ValueError("access is by a bearer token or by a user's name and password, not by both")
        if (self.user is None) != (self.password is None):
            raise ValueError("a user's name and password go together")

    def headers(self) -> dict[str, str]:
        """Return the header of a token."""
        return {"Authorization": f"Bearer {self.bearer}"} if self.bearer is not None else {}

    def basic(self) -> httpx.BasicAuth | None:
        """Return basic authentication."""
        if self.user is None or self.password is None:
            return None
        return httpx.BasicAuth(self.user, self.password)


class Prometheus:
    """A server. Every method raises PrometheusError: Unavailable, Refused, TooLarge or BadAnswer."""

    def __init__(  # noqa: PLR0913
        self,
        url: str,
        timeout: float = 10.0,
        *,
        access: Access | None = None,
        tls: ssl.SSLContext | None = None,
        max_answer: int = MAX_ANSWER,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Take the address. Raises ValueError for a URL that is none.

        ``timeout`` is for connecting and for the whole of an answer, each in seconds; ``max_answer`` in
        bytes. ``tls`` is what https uses in place of the machine's authorities.
        """
        self.url = base_url(url, "a Prometheus server", "http://127.0.0.1:9090")
        self._seconds = timeout
        self._most = max_answer
        access = access or Access()
        self._client = httpx.Client(
            base_url=self.url,
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            verify=tls or self.url.startswith("https"),  # loading the authorities takes longer than a query
            auth=access.basic(),
            headers={**vigia_http.IDENTITY, **access.headers()},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def instant(self, expression: str, at: float | None = None) -> list[Sample]:
        """Evaluate an expression now, or at a Unix time; a scalar is one sample without labels."""
        asked = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        return self._read("query", asked, answers.vector)

    def range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Evaluate an expression from start to end (Unix times), every step seconds."""
        asked = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        asked["nocache"] = "1"  # VictoriaMetrics else moves start and end to multiples of the step
        return self._read("query_range", asked, answers.matrix)

    def series(
        self, matchers: Sequence[str], start: float | None = None, end: float | None = None
    ) -> list[Labels]:
        """Return the label sets of series that fit one of the matchers."""
        asked: dict[str, str | Sequence[str]] = {"match[]": list(matchers)}
        asked |= {k: f"{v:.3f}" for k, v in (("start", start), ("end", end)) if v is not None}
        return self._read("series", asked, answers.label_sets)

    def label_values(self, label: str, matchers: Sequence[str] = ()) -> list[str]:
        """Return what a label's values are, of the series that fit one of the matchers."""
        path = f"label/{quote(label, safe='')}/values"
        return self._read(path, {"match[]": list(matchers)}, answers.strings, method="GET")

    def alerts(self) -> list[Alert]:
        """Return the alerts that are pending or fire now, with the texts of their annotations."""
        return self._read("alerts", {}, answers.alerts, method="GET")

    def total(self, expression: str, at: float | None = None) -> float:
        """Return the sum over all series of an instant query, 0 without any; NaN values are left out."""
        return sum(s.value for s in self.instant(expression, at) if s.value == s.value)

    def version(self) -> str:
        """Return the server's version."""
        return self._read("status/buildinfo", {}, _version, method="GET")

    def _read(
        self,
        what: str,
        asked: Mapping[str, str | Sequence[str]],
        read: Callable[[Any], T],
        method: str = "POST",
    ) -> T:
        where = f"Prometheus at {self.url}"
        body, status = self._ask(where, method, what, asked)
        try:
            answer = vigia_json.loads(body, max_size=self._most, max_depth=_MAX_DEPTH)
            if not isinstance(answer, dict) or answer.get("status") not in ("success", "error"):
                raise ValueError("there is no status")
            if answer["status"] == "error":
                raise _refusal(where, asked, answer, status)
            return read(answer.get("data"))
        except ValueError as e:
            raise BadAnswer(
                f"{where} answers {status} without a result: {e}; is the URL that of a Prometheus API?"
            ) from e

    def _ask(
        self, where: str, method: str, what: str, asked: Mapping[str, str | Sequence[str]]
    ) -> tuple[bytes, int]:
        parameters = {"params" if method == "GET" else "data": dict(asked)}
        try:
            with self._client.stream(method, f"/api/v1/{what}", **parameters) as answer:  # type: ignore[arg-type]
                return vigia_http.read(answer, self._most, self._seconds), answer.status_code
        except vigia_http.AnswerTooLarge as e:
            raise TooLarge(f"{where} answers too much: {e}; ask for fewer series or a longer step") from e
        except vigia_http.AnswerLate as e:
            raise Unavailable(f"{where} answers too slowly: {e}; is it overloaded?") from e
        except vigia_http.AnswerError as e:
            raise BadAnswer(f"{where} answers what cannot be read: {e}") from e
        except httpx.TimeoutException as e:
            raise Unavailable(f"{where} does not answer within {self._seconds:g} s; is it overloaded?") from e
        except httpx.HTTPError as e:
            problem = _words(str(e)) or type(e).__name__
            raise Unavailable(f"{where} does not answer: {problem}; is it running?") from e


def _refusal(where: str, asked: Mapping[str, object], answer: Mapping[str, Any], status: int) -> Refused:
    reason = answer.get("error")
    kind = answer.get("errorType")
    question = asked.get("query") or asked.get("match[]") or "this"
    text = _words(reason) if isinstance(reason, str) else "no reason given"
    return Refused(f"{where} refuses {question}: {text}", status, kind if isinstance(kind, str) else "")


def _words(text: str) -> str:
    """Return what a server says, for one line of a terminal or a log."""
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_WORDS]).strip()


def _version(data: Any) -> str:
    if not isinstance(data, dict) or not isinstance(data.get("version"), str):
        raise ValueError("there is no version")
    return _words(data["version"])
