"""What the service shows on the web: pages for people, JSON and text for programs."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from vigia_compare import report
from vigia_compare.evaluation import Evaluation
from vigia_compare.incidents import MOST_INCIDENTS, incidents
from vigia_compare.looks import ALARMS_HOLD, HOLD, Looks, NotKnown, TooMany
from vigia_compare.moments import moment
from vigia_compare.site import Alarms
from vigia_compare.timeline import PERIODS
from vigia_compare.web.comparison import Comparison, Wanted, comparison
from vigia_compare.web.frame import POLICY, asset, page
from vigia_compare.web.lanes import drawn
from vigia_compare.web.matrix import matrix
from vigia_service.ops import Ops, blueprint, guarded, harden, text
from vigia_text.terminal import clean

__all__ = ["Shown", "create_app"]

_LONGEST = 200
"""Characters of a path's name, and of any other parameter."""

_MOST_TEXT = 1_000
"""Pairs of the report that a page has in it; a longer one is at its own address."""

_MOST_DRAFTS = 16


@dataclass(frozen=True)
class Shown:
    """Where what is shown comes from."""

    newest: Callable[[], tuple[Evaluation | None, str]]
    """The newest evaluation, or why there is none."""
    reset: Callable[[str], tuple[int, bool]]
    """Forgets the evidence on a path, or on all; returns of how many pairs, and whether that is on disk."""
    lost: Callable[[], str]
    """Why what was known before is not there; empty if it is."""
    looks: Looks
    console: Callable[[], str]
    """Address of the isolation agent's console; empty: on the port next to this."""
    clock: Callable[[], float] = time.time


class _Drafts:
    """What was made of the newest evaluation already: all viewers of one choice see the same."""

    def __init__(self) -> None:
        self._of: Evaluation | None = None
        self._pages: dict[Wanted, Comparison] = {}
        self._text: str | None = None
        self._lock = threading.Lock()

    def _renew(self, found: Evaluation) -> None:
        if found is not self._of:
            self._of, self._pages, self._text = found, {}, None

    def page(self, found: Evaluation, wanted: Wanted) -> Comparison:
        """Return what the page shows of an evaluation."""
        with self._lock:
            self._renew(found)
            if wanted not in self._pages:
                if len(self._pages) >= _MOST_DRAFTS:
                    self._pages.clear()
                self._pages[wanted] = comparison(found, wanted)
            return self._pages[wanted]

    def text(self, found: Evaluation) -> str:
        """Return the report; nothing where it is too long for a page."""
        if len(found.findings) > _MOST_TEXT:
            return ""
        with self._lock:
            self._renew(found)
            if self._text is None:
                self._text = report.as_text(found)
            return self._text


class _Refused(Exception):
    """A request is wrong; the text says how to mend it."""


def create_app(ops: Ops, shown: Shown) -> Flask:
    """Return a WSGI application that shows the newest evaluation, or why there is none."""
    app = Flask("vigia_compare", static_folder=None)
    app.register_blueprint(blueprint(ops))
    harden(app, POLICY)
    _people(app, shown)
    _moments(app, shown)
    _programs(app, shown)

    def begin_anew() -> Response:
        """Let evidence begin anew, of all pairs or of one ?path=; needs the token of reloads."""
        path = request.args.get("path", "")
        if len(path) > _LONGEST or set(request.args) - {"path"}:
            return text("reset takes one parameter, path, the name of a path; none for all\n", 400)
        forgotten, saved = shown.reset(path)
        if path and not forgotten:
            return text(f"no pair has a path {clean(path)}; see /v1/comparisons\n", 404)
        anew = f"evidence of {forgotten} pairs begins anew"
        if saved:
            return text(f"{anew}\n")
        return text(
            f"{anew}, but the state file does not say so yet: a start before it does brings the old back; "
            "see the log if its disk is full\n",
            202,
        )

    known_only = guarded(begin_anew, ops.reload_token_file)
    app.add_url_rule("/v1/comparisons/reset", "reset", known_only, methods=["POST"])

    @app.errorhandler(_Refused)
    def wrong(e: _Refused) -> Response:
        return text(f"{e}\n", 400)

    @app.errorhandler(TooMany)
    def too_many(e: TooMany) -> Response:
        answer = text(f"{e}\n", 429)
        answer.headers["Retry-After"] = "60"
        return answer

    @app.errorhandler(HTTPException)
    def refused(e: HTTPException) -> Response:
        answer = text(f"{e.name}; see /\n", e.code or 500)
        answer.headers.extend({k: v for k, v in e.get_headers() if k == "Allow"})
        return answer

    return app


def _people(app: Flask, shown: Shown) -> None:
    """Add the pages."""
    drafts = _Drafts()

    @app.get("/")
    def landing() -> Response:
        """Show which path wins each measure, by how much and since when."""
        wanted = Wanted(**_parameters("placement", "probe", "machines", "show"))
        found, problem = shown.newest()
        if _wants_text():
            return _as_text(shown)

        def known() -> dict[str, Any]:
            return {
                "page": drafts.page(found, wanted) if found else None,
                "problem": problem,
                "lost": shown.lost(),
                "text": drafts.text(found) if found else "",
            }

        return _page(shown, "comparison", HOLD, known)

    @app.get("/assets/<name>")
    def assets(name: str) -> Response:
        """Return one of the pages' files."""
        return asset(name) or text("Not Found; see /\n", 404)


def _moments(app: Flask, shown: Shown) -> None:
    """Add the pages of what Prometheus has of a moment."""

    @app.get("/mesh")
    def mesh() -> Response:
        """Show who reaches whom, of one path or by the worst of all; of the past with ?at=."""
        given = _parameters("path", "at")
        found, _ = shown.newest()
        paths = sorted({p.path for p in found.paths}) if found else []
        if found and not given["at"] and given["path"] and given["path"] not in paths:
            raise _Refused(
                f"path={clean(given['path'])} is not measured; write one of {clean(', '.join(paths))}"
            )
        at = _moment(given["at"], shown)
        return _page(shown, "mesh", HOLD, lambda: _mesh(shown, at, paths, given), at)

    @app.get("/tenants")
    def tenants() -> Response:
        """Show what tenants bought, send, receive and lose, and who hurts them; of the past with ?at=."""
        given = _parameters("at")
        at = _moment(given["at"], shown)
        return _page(shown, "tenants", HOLD, lambda: _tenants(shown, at, given), at)

    @app.get("/incidents", endpoint="incidents")
    def what_happened() -> Response:
        """Show what is wrong, and incidents of ?since= from cause to effect; of the past with ?at=."""
        given = _parameters("at", "since")
        at, since = _moment(given["at"], shown), _since(given["since"])
        known = {"at": given["at"], "since": since}
        return _page(shown, "incidents", ALARMS_HOLD, lambda: _incidents(shown, at, known), at)


def _mesh(shown: Shown, at: float | None, paths: Sequence[str], given: Mapping[str, str]) -> dict[str, Any]:
    try:
        seen = shown.looks.mesh(given["path"], at)
    except NotKnown as e:
        return {"mesh": None, "matrix": None, "paths": paths, "problem": str(e), **given}
    return {"mesh": seen, "matrix": matrix(seen), "paths": paths, "problem": "", **given}


def _tenants(shown: Shown, at: float | None, given: Mapping[str, str]) -> dict[str, Any]:
    try:
        return {"state": shown.looks.state(at), "problem": "", **given}
    except NotKnown as e:
        return {"state": None, "problem": str(e), **given}


def _incidents(shown: Shown, at: float | None, given: Mapping[str, str]) -> dict[str, Any]:
    choices = {"periods": list(PERIODS), "period": PERIODS[given["since"]], **given}
    try:
        found, then = shown.looks.timeline(at, given["since"]), shown.looks.alarms(at)
    except NotKnown as e:
        return {"problem": str(e), **choices}
    chains, rest = incidents(found.events, found.step, then.harms)
    return {
        "then": then,
        "timeline": found,
        "drawing": drawn(found),
        "incidents": chains[:MOST_INCIDENTS],
        "more_incidents": len(chains) - MOST_INCIDENTS,
        "other_alerts": rest,
        "problem": "",
        **choices,
    }


def _programs(app: Flask, shown: Shown) -> None:
    """Add what programs read."""

    @app.get("/v1/comparisons")
    def comparisons() -> Response:
        """Return all that is compared, with verdicts, intervals and evidence."""
        found, problem = shown.newest()
        if found is None:
            return text(f"{problem}\n", 503)
        return _json(report.as_json(found) | {"evidence_lost": shown.lost() or None})

    @app.get("/v1/comparisons.txt")
    def comparisons_text() -> Response:
        """Return the same as a table for a terminal."""
        return _as_text(shown)

    @app.get("/v1/site")
    def site() -> Response:
        """Return what the pages show: what is wrong, tenants, paths; of the past with ?at=."""
        at = _moment(_parameters("at")["at"], shown)
        try:
            wrong, state = shown.looks.alarms(at), shown.looks.state(at)
        except NotKnown as e:
            return text(f"{e}\n", 503)
        tenants = [asdict(t) | {"state": t.words} for t in state.tenants]
        paths = [asdict(p) | {"state": p.words} for p in state.paths]
        more = {"more_tenants": state.more_tenants}
        return _json({"version": 1, **asdict(wrong), "tenants": tenants, "paths": paths, **more})


def _page(
    shown: Shown, name: str, every: float, known: Callable[[], dict[str, Any]], at: float | None = None
) -> Response:
    """Return a page with what is wrong now above it; a moment of the past stays as it is.

    ``known`` finds out what it shows, while its top is on its way. Of the past it may be too much to ask,
    which is another answer than a page, so that is known before anything is sent.
    """

    def all_of_it() -> dict[str, Any]:
        alarms: Alarms | None = None
        not_known = ""
        try:
            alarms = shown.looks.alarms()
        except NotKnown as e:
            not_known = str(e)
        return {"alarms": alarms, "not_known": not_known, **known()}

    if at is None:
        return page(f"{name}.html", name, every, shown.console(), all_of_it)
    found = all_of_it()
    return page(f"{name}.html", name, 0.0, shown.console(), lambda: found)


def _parameters(*names: str) -> dict[str, str]:
    """Return parameters of the address, empty where they are not given. Raises _Refused."""
    unknown = sorted(set(request.args) - set(names))
    if unknown:
        raise _Refused(
            f"{clean(unknown[0][:_LONGEST])} is not a parameter of this page; it takes {', '.join(names)}"
        )
    given = {n: request.args.get(n, "") for n in names}
    for name, value in given.items():
        if len(value) > _LONGEST:
            raise _Refused(f"{name} is longer than {_LONGEST} characters")
    return given


def _moment(given: str, shown: Shown) -> float | None:
    if not given.strip():
        return None
    try:
        return moment(given.strip(), shown.clock())
    except ValueError as e:
        raise _Refused(f"at={clean(given)}: {e}") from e


def _since(given: str) -> str:
    """Return the period that is asked for, an hour if none is. Raises _Refused."""
    wanted = given.strip() or "1h"
    if wanted not in PERIODS:
        raise _Refused(f"since={clean(given)}: is none of the periods; write {', '.join(PERIODS)}")
    return wanted


def _wants_text() -> bool:
    """Tell whether who asks names plain text, and not pages."""
    accepted = request.accept_mimetypes
    return accepted["text/plain"] > accepted["text/html"]


def _as_text(shown: Shown) -> Response:
    found, problem = shown.newest()
    lost = (
        f"Evidence of before this program was started is not there: {shown.lost()}.\n\n"
        if shown.lost()
        else ""
    )
    if found is None:
        return text(f"{lost}not yet: {problem}\n", 503)
    return text(f"{lost}{report.as_text(found)}\n")


def _json(data: Any) -> Response:
    return Response(json.dumps(_finite(data), allow_nan=False), content_type="application/json")


def _finite(data: Any) -> Any:
    """Return data with null where a number is not known."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {k: _finite(v) for k, v in data.items()}
    return [_finite(v) for v in data] if isinstance(data, list | tuple) else data
