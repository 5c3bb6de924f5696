"""The running agent: one object that owns the database, the audit log and the controller's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar

from isolation_agent import __version__
from isolation_agent.actions.controller import Controller
from isolation_agent.clock import Clock, SystemClock
from isolation_agent.config import Settings, load_settings
from isolation_agent.enforcers.fleet import open_fleet
from isolation_agent.enforcers.snapshot import Snapshot
from isolation_agent.errors import AgentError, DamagedError
from isolation_agent.found import Stamp, stamp
from isolation_agent.metrics import Metrics
from isolation_agent.policy import PolicySet
from isolation_agent.storage.audit import AuditLog
from isolation_agent.storage.damage import open_store, take_over_switches
from isolation_agent.storage.inbox import Inbox
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.lease import LeaderLease, LedStore, never_led
from isolation_agent.storage.policies import Draft, in_force, newest_id, put_policies
from vigia_service.reload import Reloader

__all__ = ["Agent"]

_log = logging.getLogger(__name__)

_BREATH = 0.02
"""Shortest time between two turns, in seconds, however many messages arrive."""

_HOSTS_AGAIN = 300.0
"""Seconds after which a hosts_file that could not be taken over is tried again."""

_STUCK = 30.0
"""Seconds without a turn after which the controller counts as stuck."""

_LAST_TURN = 10.0
"""Seconds that the last turn may take before the lease is given up, so that another replica leads at once."""

_FIXED = ("listen", "database", "audit_log", "replica")
"""Fields that a reload cannot change."""

_reloaded_by: ContextVar[str] = ContextVar("reloaded_by", default="signal")


class Agent:
    """Everything but the web server."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        """Open the database and the audit log. Raises AgentError."""
        self.damage = ""
        """Why only a start helps: the database is damaged or gone; empty if it is not."""
        self.on_damage: Callable[[], None] = lambda: None
        """Called once, in the controller's thread, when that is found."""
        self.clock = clock or SystemClock()
        self.metrics = Metrics()
        with ExitStack() as undo:
            self.store, new = open_store(
                settings.database_url, settings.database_path, settings.replica, self.clock.now()
            )
            undo.callback(self.store.close)
            self.inbox = Inbox(self.store)
            self._policies = newest_id(self.store)
            self.settings = settings = in_force(self.store, settings)
            self.audit = AuditLog(settings.audit_path, self.clock, self.store.audit_anchor())
            undo.callback(self.audit.close)
            self.journal = Journal(self.store, self.audit, self.clock)
            if new or never_led(self.store):
                take_over_switches(self.journal, new or "the last start with a new one did not get this far")
            seconds = settings.config.controller.lease
            self.lease = LeaderLease(self.store, self.clock, settings.replica, seconds)
            undo.callback(self.lease.give_up)
            led = Journal(self.store, self.audit, self.clock, LedStore(self.store, self.lease))
            fleet = open_fleet(settings, self.clock, self.metrics)
            self.snapshot = Snapshot(self.clock)
            self.controller = Controller(led, self.metrics, settings, fleet, self.lease, self.snapshot)
            self._undo = undo.pop_all()
        self.metrics.reloaded(True)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._settings_lock = threading.Lock()
        self._reloader = Reloader(
            settings.path,
            load_settings,
            current=lambda: self.settings,
            fixed=_fixed,
            prepare=self._prepare,
            reloaded=self.metrics.reloaded,
        )
        self._thread = threading.Thread(target=self._control, name="controller", daemon=True)
        self._problem = "the controller has not taken its first turn yet"
        self._last_turn = self.clock.monotonic()
        self._failing_since: float | None = None
        self._hosts_asked_for: Stamp = settings.hosts_stamp
        self._hosts_again_at = 0.0

    def start(self) -> None:
        """Start the controller's thread and the one that waits for reload requests."""
        self.journal.note(
            "agent.started", "agent", version=__version__, policy_version=self.settings.policies.version
        )
        self._thread.start()
        self._reloader.start()

    def stop(self) -> None:
        """Stop after the current turn. Limits in force end by their TTL unless the agent comes back."""
        self._stop.set()
        self._wake.set()
        self._reloader.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout=_LAST_TURN)
        if not self._thread.is_alive():
            self.controller.close()
            self._undo.close()
        _log.info("stopped")

    def notify(self) -> None:
        """Take the next turn now."""
        self._wake.set()

    def request_reload(self) -> None:
        """Reload soon; safe to call from a signal handler."""
        self._reloader.request()

    def reload(self, actor: str) -> None:
        """Read configuration, policies and tokens again.

        On error everything stays as it is and ServiceError is raised.
        """
        token = _reloaded_by.set(actor)
        try:
            self._reloader.reload()
        finally:
            _reloaded_by.reset(token)

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        """Do what can fail of a reload; returns what puts the settings in force."""
        number = newest_id(self.store)
        settings = in_force(self.store, settings)
        self.journal.note("config.reloaded", _reloaded_by.get(), policy_version=settings.policies.version)

        def commit() -> None:
            with self._settings_lock:
                self._use(settings, number)
            self.notify()

        return commit

    def _use(self, settings: Settings, policies: int) -> None:
        """Put settings in force, made with the policies of that number."""
        self.settings, self._policies = settings, policies
        self.controller.swap(settings, open_fleet(settings, self.clock, self.metrics))

    def put_policies(self, draft: Draft, actor: str) -> PolicySet:
        """Put other policies in force. Raises ConfigError or storage.policies.Conflict."""
        with self._settings_lock:
            new = put_policies(self.journal, self.settings, draft, actor)
            self._take_policies()
        self.notify()
        return new

    def follow_policies(self) -> None:
        """Take over policies that were put at another replica, or while a reload was under way."""
        if self.settings.config.policies_by == "file" or newest_id(self.store) == self._policies:
            return
        with self._settings_lock:
            self._take_policies()
        _log.info("policies changed", extra={"version": self.settings.policies.version})

    def follow_hosts(self) -> None:
        """Reload if hosts_file is another one than the one last asked for, and again later if that failed.

        Not only the file can be wrong: the disk may be full, a token not there yet.
        """
        path, at = self.settings.hosts_path, self.clock.monotonic()
        if path is None:
            return
        now = stamp(path)
        if now == self._hosts_asked_for and (now == self.settings.hosts_stamp or at < self._hosts_again_at):
            return
        self._hosts_asked_for, self._hosts_again_at = now, at + _HOSTS_AGAIN
        if now != self.settings.hosts_stamp:
            _log.info("hosts_file changed", extra={"path": str(path)})
            self.request_reload()

    def _take_policies(self) -> None:
        number = newest_id(self.store)
        self._use(in_force(self.store, self.settings), number)

    def problem(self) -> str:
        """Return why the agent is not ready, or nothing."""
        return self.stuck() or self._problem

    def stuck(self) -> str:
        """Return why the agent should be restarted, or nothing."""
        if self._thread.ident is not None and not self._thread.is_alive():
            return "the controller's thread has ended"
        quiet = self.clock.monotonic() - self._last_turn
        if quiet > _STUCK + self.settings.config.controller.tick:
            return f"the controller has not taken a turn for {quiet:.0f}s"
        return ""

    def unhealthy(self) -> str:
        """Return why the agent does not do its work, or nothing: it is stuck, or no turn succeeds."""
        stuck, since = self.stuck(), self._failing_since
        if stuck or since is None:
            return stuck
        failing = self.clock.monotonic() - since
        return f"no turn has succeeded for {failing:.0f}s: {self._problem}" if failing > _STUCK else ""

    def _control(self) -> None:
        while not self._stop.is_set():
            more = self._turn()
            self._last_turn = self.clock.monotonic()
            if not more:
                self._wake.wait(self.settings.config.controller.tick)
            self._wake.clear()
            self._stop.wait(_BREATH)

    def _turn(self) -> bool:
        """Take one turn; a turn that fails is logged once and tried again."""
        problem, more = "", False
        try:
            self.follow_policies()
            self.follow_hosts()
            more = self.controller.step()
        except DamagedError as e:
            problem = str(e)
            if not self.damage:
                self.damage = problem
                self.on_damage()
        except AgentError as e:
            problem = str(e)
        except Exception as e:
            problem = f"unexpected {type(e).__name__} in the controller; see the log"
            _log.exception("cannot take a turn")
        if problem and problem != self._problem:
            _log.error("cannot decide anything", extra={"err": problem})
        self._problem = problem
        if not problem:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self.clock.monotonic()
        self.metrics.ticks.labels("error" if problem else "ok").inc()
        return more


def _fixed(settings: Settings) -> Mapping[str, object]:
    """Return the fields that only a restart changes."""
    tls = "on" if settings.tls_server else "off"
    return {"tls": tls} | {field: getattr(settings.config, field) for field in _FIXED}
