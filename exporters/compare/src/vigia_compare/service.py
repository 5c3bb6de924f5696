"""The service: a loop that evaluates, and a web server that shows what it found."""

from __future__ import annotations

import logging
import signal
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flask import Flask

from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, Ledger, evaluate, renewed, terms
from vigia_compare.evidence import FINE_WINDOW
from vigia_compare.exposition import Metrics
from vigia_compare.looks import PATIENCE, Looks
from vigia_compare.pages import Shown, create_app
from vigia_compare.source import Memory, Source
from vigia_compare.standby import Standby, others
from vigia_compare.state import Saver, StateFile
from vigia_config import load
from vigia_prometheus import Prometheus, PrometheusError
from vigia_service import look
from vigia_service.ops import HEALTH, Ops
from vigia_service.reload import Reloader
from vigia_service.server import Limits, Reserved, Server, listen
from vigia_service.watchdog import Watchdog, web_server_hung

__all__ = ["Service", "run"]

_log = logging.getLogger(__name__)

STALE = 3.0
"""Evaluations older than this many intervals are withdrawn: old news must not look like news."""

LOOK = 5.0
"""Seconds between two looks at who hurts whom: a flood is named within 30 s, whatever ``every`` is."""

_MOST_SHOWN = 16 << 20
"""Bytes of one answer that a page is made of."""

_THREADS = 12
"""Requests at once: each page that waits for a slow Prometheus holds one, for PATIENCE at most."""

_SCRAPED = ("/metrics", "/metrics/verdicts")
"""What visitors cannot keep Prometheus from."""

_SAVED_WITHIN = 5.0
"""Seconds for which a reset, and the end of the program, wait for the state file."""

_NOTHING_YET = "no evaluation so far"


@dataclass(frozen=True)
class _Live:
    """What a reload swaps, at once."""

    config: Config
    client: ssl.SSLContext | None
    server: ssl.SSLContext | None
    memory: Memory
    """Of this server and configuration; begins anew with another."""
    ledger: Ledger
    """Evidence, which goes on where the terms stay."""

    @classmethod
    def of(cls, config: Config, ledger: Ledger) -> _Live:
        """Read the certificates. Raises ConfigError."""
        tls = config.tls
        client, server = (tls.client(), tls.server()) if tls else (None, None)
        return cls(config, client, server, Memory(), ledger)


class Service:
    """Evaluates in one thread and remembers the newest evaluation."""

    def __init__(self, path: Path, config: Config, clock: Callable[[], float] = time.time) -> None:
        """Read the certificates. Raises ConfigError."""
        self.metrics = Metrics()
        self._state = StateFile(config.state)
        self._saver = Saver(self._state)
        self.metrics.unsaved.set_function(self._saver.behind)
        self._live = _Live.of(config, self._kept(config))
        self._folder = path.absolute().parent
        self._clock = clock
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._beat = time.monotonic()
        self._newest: Evaluation | None = None
        self._problem = _NOTHING_YET
        self._standby = Standby(config.replica)
        self._looks = Looks(self._server, clock)
        self._show_leader()
        self.reloader = Reloader(
            path,
            lambda path: load(path, Config),
            current=lambda: self.config,
            fixed=_fixed,
            prepare=self.prepare,
            reloaded=self.metrics.reloaded,
        )
        self.metrics.reloaded(True)
        self._show_terms(config)

    @property
    def newest(self) -> Evaluation | None:
        """The newest evaluation that is not stale."""
        return self._newest

    @property
    def problem(self) -> str:
        """Why the last evaluation failed; empty if it did not."""
        return self._problem

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._live.config

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        """TLS of the listener."""
        return self._live.server

    def app(self) -> Flask:
        """Return what the service shows on the web."""
        ops = Ops(
            self.metrics.registry,
            self.stuck,
            self.unready,
            self.reloader.reload,
            self._reload_token_file,
            self.metrics.verdicts,
        )
        return create_app(
            ops,
            Shown(
                newest=lambda: (self.newest, self.problem),
                reset=self.reset,
                lost=lambda: self._state.problem,
                looks=self._looks,
                console=lambda: self.config.console or "",
                clock=self._clock,
            ),
        )

    def _server(self) -> Prometheus:
        """Open Prometheus for a page, which waits less long than an evaluation."""
        live = self._live
        return Prometheus(
            live.config.prometheus,
            min(live.config.timeout, PATIENCE),
            tls=live.client,
            max_answer=_MOST_SHOWN,
        )

    def reset(self, path: str) -> tuple[int, bool]:
        """Forget the evidence on a path, or on all if it is empty.

        Returns of how many pairs, and whether a start would begin anew as well.
        """
        with self._turn:
            forgotten = self._live.ledger.reset(path)
            self._saver.save(self._live.ledger.as_data())
        saved = self.saved()
        _log.info("evidence begins anew", extra={"path": path or "all", "pairs": forgotten})
        self._wake.set()
        return forgotten, saved

    def _kept(self, config: Config) -> Ledger:
        """Return the evidence of the state file, or none."""
        agreed, data = terms(config), self._state.load()
        if data is None:
            return Ledger(agreed)
        try:
            return Ledger.from_data(data, agreed)
        except ValueError as e:
            self._state.lost(str(e))
            return Ledger(agreed)

    def _reload_token_file(self) -> Path | None:
        file = self.config.reload_token_file
        return file and self._folder / file

    def stuck(self) -> str:
        """Return why the program should be restarted, or nothing: an evaluation asks some 20 times."""
        allowed = self.config.every + 30 * self.config.timeout + 30.0
        return "the loop has stopped taking turns" if time.monotonic() - self._beat > allowed else ""

    def unready(self) -> str:
        """Return why there is nothing to show, or nothing.

        Ready once the first evaluation has been tried: Prometheus being away is no fault of ours.
        """
        return self._problem if self._problem == _NOTHING_YET else ""

    def run(self) -> None:
        """Evaluate until stopped."""
        while not self._stop.is_set():
            self._beat = time.monotonic()
            self.turn()
            self._rest(self._pause())
            self._wake.clear()

    def _rest(self, seconds: float) -> None:
        """Wait for the next turn, and look who hurts whom meanwhile."""
        end = time.monotonic() + seconds
        while not self._wake.wait(max(0.0, min(LOOK, end - time.monotonic()))):
            if time.monotonic() >= end:
                return
            self._beat = time.monotonic()
            self.look()

    def look(self) -> None:
        """Bring up to date who hurts whom; a failure is the next turn's to report."""
        newest, live = self._newest, self._live
        if newest is None:
            return
        try:
            with Prometheus(live.config.prometheus, live.config.timeout, tls=live.client) as prometheus:
                source = Source(prometheus, live.memory)
                self._newest = renewed(newest, source, live.config, self._clock())
                self.metrics.show(self._newest)
        except PrometheusError:
            return
        except Exception:
            _log.exception("cannot look who hurts whom: the program has made a mistake")

    def turn(self) -> None:
        """Evaluate once, if this replica leads; a failure leaves the last evaluation until it is stale."""
        begin, live = time.monotonic(), self._live
        try:
            with Prometheus(live.config.prometheus, live.config.timeout, tls=live.client) as prometheus:
                leads = self._looked(prometheus)
                found = self._evaluated(prometheus, live) if leads else None
            self.metrics.show(found)
        except PrometheusError as e:
            self._failed(str(e))
            self.metrics.prometheus_up.set(0)
        except Exception:
            _log.exception("cannot evaluate: the program has made a mistake")
            self._failed("an evaluation failed; see the log")
        else:
            self._newest, self._problem = found, ""
            self.metrics.prometheus_up.set(1)
            if found is None:
                self._problem = f"stands by: replica {self._standby.leader or 'none'} leads"
                return
            self.metrics.evaluations.labels("ok").inc()
            self.metrics.last.set(found.at)
            self.metrics.duration.set(time.monotonic() - begin)
        finally:
            self._show_leader()

    def _evaluated(self, prometheus: Prometheus, live: _Live) -> Evaluation:
        """Evaluate, and keep what grew. Raises PrometheusError."""
        with self._turn:
            found = evaluate(Source(prometheus, live.memory), live.config, self._clock(), live.ledger)
            if live is self._live:
                self._saver.save(live.ledger.as_data())
        return found

    def _looked(self, prometheus: Prometheus) -> bool:
        """Return whether this replica leads. Raises PrometheusError."""
        name = self._standby.name
        return name is None or self._standby.look(others(prometheus, name), self.config.takeover)

    def _show_leader(self) -> None:
        self.metrics.leader.labels(self._standby.name or "").set(self._standby.leads)

    def _pause(self) -> float:
        """Return the time until the next turn; a replica that stands by asks often enough to see a scrape."""
        config = self.config
        if not self._standby.leads:
            return min(config.every, config.takeover / 3)
        news = self._newest is not None and self._newest.news
        return min(config.every, FINE_WINDOW) if news else config.every

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning("cannot evaluate", extra={"err": problem})
        self._problem = problem
        self.metrics.evaluations.labels("error").inc()
        newest = self._newest
        if newest is not None and self._clock() - newest.at > STALE * self.config.every:
            self._newest = None
            self.metrics.show(None)
            self._standby.resign("Prometheus does not answer this one")

    def prepare(self, config: Config) -> Callable[[], None]:
        """Read a new configuration's certificates; return what puts it in force. Raises ConfigError."""
        before, agreed = self._live.ledger, terms(config)
        ledger = before if before.book.terms == agreed else Ledger(agreed)
        live = _Live.of(config, ledger)

        def commit() -> None:
            self._live = live
            self._looks.forget()
            self._show_terms(config)
            self._wake.set()  # the next evaluation starts now

        return commit

    def _show_terms(self, config: Config) -> None:
        self.metrics.window.set(config.window)
        self.metrics.needed.set(1.0 / terms(config).alpha)

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()
        self._wake.set()

    def saved(self) -> bool:
        """Wait until the state file holds all evidence, but not for long; return whether it does."""
        if self._saver.settled(_SAVED_WITHIN):
            return True
        _log.warning("the state file does not hold all evidence yet: the disk is slow or full")
        return False


def _fixed(config: Config) -> Mapping[str, object]:
    return {
        "listen": config.listen,
        "tls": "on" if config.tls else "off",
        "replica": config.replica or "none",
        "state": str(config.state or "none"),
    }


def run(path: Path) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or ServiceError."""
    config = load(path, Config)
    service = Service(path, config)
    server = Server(
        service.app(),
        [listen(config.listen)],
        Limits(threads=_THREADS, body_bytes=1 << 10),
        tls=lambda: service.server_tls,
        reserved=[Reserved.for_paths(HEALTH), Reserved.for_paths(_SCRAPED)],
        signals={signal.SIGHUP: service.reloader.request},
    )
    loop = threading.Thread(target=service.run, name="evaluate", daemon=True)
    loop.start()
    service.reloader.start()
    _log.info("listening", extra={"address": server.addresses[0], "config": str(path)})
    if config.console is None:
        _log.info(look.assumed("console", look.Service.CONSOLE))
    with Watchdog(lambda: web_server_hung(server) or service.stuck()):
        server.run()
    service.stop()
    service.reloader.stop()
    loop.join(timeout=5.0)
    service.saved()
    _log.info("stopped")
    return 0
