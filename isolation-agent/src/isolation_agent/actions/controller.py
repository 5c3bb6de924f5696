"""The controller loop: one turn at a time, everything it knows is in the database."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from isolation_agent.actions.lifecycle import Lifecycle
from isolation_agent.actions.memory import Cooldowns
from isolation_agent.actions.reconcile import Reconciler
from isolation_agent.actions.runtime import Runtime
from isolation_agent.actions.terms import Terms
from isolation_agent.actions.tick import Tick
from isolation_agent.alerts.claims import Claim, Claims
from isolation_agent.alerts.intake import Intake
from isolation_agent.alerts.payload import BadPayload, target_of
from isolation_agent.config import Settings
from isolation_agent.decision.evidence import verified
from isolation_agent.decision.guards import GUARDS
from isolation_agent.decision.levels import effective_level
from isolation_agent.enforcers.fleet import Fleet
from isolation_agent.enforcers.snapshot import Snapshot
from isolation_agent.errors import AgentError, StorageError
from isolation_agent.metrics import Metrics
from isolation_agent.model.node import View
from isolation_agent.model.states import ENFORCING, State
from isolation_agent.storage import actions, episodes, inbox
from isolation_agent.storage.allowlist import allowed_now
from isolation_agent.storage.audit import Head
from isolation_agent.storage.journal import Entry, Journal, about
from isolation_agent.storage.lease import LeaderLease
from isolation_agent.storage.retention import Retention, prune
from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import Action, Episode

__all__ = ["Controller"]

_log = logging.getLogger(__name__)

_UNDECIDED_PER_TURN = 200
_SWITCH_LOOKED_AT_EVERY = 0.2
_PRUNE_EVERY = 60.0
_DOUBTFUL = (State.RECEIVED, State.SUPPRESSED, State.PENDING_APPROVAL)
_UNDECIDED = (State.RECEIVED, State.SUPPRESSED, State.APPROVED, *ENFORCING)


class Controller:
    """Turns alerts into actions and looks after them. Not safe for use by several threads, but for swap."""

    def __init__(  # noqa: PLR0913 (what it is made of, once, by the agent)
        self,
        journal: Journal,
        metrics: Metrics,
        settings: Settings,
        fleet: Fleet,
        lease: LeaderLease,
        snapshot: Snapshot,
    ) -> None:
        """journal has to be fenced by the lease."""
        self._journal = journal
        self._lease = lease
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = journal.clock
        self._intake = Intake(journal, metrics)
        self._runtime = Runtime(journal, metrics, Cooldowns(self._clock))
        self._lifecycle = Lifecycle(self._runtime)
        self._reconciler = Reconciler(journal, metrics)
        self._terms = Terms(journal)
        self._settings, self._fleet = settings, fleet
        self._swap_lock = threading.Lock()
        self._next: tuple[Settings, Fleet] | None = None
        self._reconcile_at = self._prune_at = self._clock.monotonic()
        self._anchor = Head(0, "")
        self._shown: set[tuple[str, str, str]] = set()
        self._term = 0
        self._cleared: set[str] | None = None
        """Nodes without limits since the kill switch is on; None while it is off."""
        self._tenants = 0
        for guard in GUARDS:
            metrics.suppressed.labels(guard.name)

    def swap(self, settings: Settings, fleet: Fleet) -> None:
        """Use other settings from the next turn on. Safe to call from any thread."""
        with self._swap_lock:
            if self._next is not None:
                self._next[1].close()
            self._next = settings, fleet

    def reconcile_soon(self) -> None:
        """Compare with every enforcer in the next turn. Safe to call from any thread."""
        self._reconcile_at = self._clock.monotonic()

    def close(self) -> None:
        """Close the connections to the enforcers."""
        self._take_next()
        self._fleet.close()

    def step(self) -> bool:
        """Take one turn; returns whether there is more to do at once.

        Raises AgentError if nothing can be stored: then nothing is done either.
        """
        self._take_next()
        if not self._lead():
            self._clear_metrics()
            if self._snapshot.watched:
                self._snapshot.take(self._fleet.look(self._fleet.nodes))
            return False
        taken = self._intake.drain(self._settings)
        rows, idle = self._open_actions(), self._idle_episodes()
        reconcile = self._clock.monotonic() >= self._reconcile_at
        following = self._lifecycle.following
        waiting = following.waiting()
        tick = self._look(rows, idle, everywhere=reconcile or following.hurries(waiting))
        self._stop_everything(tick)
        if reconcile:
            self._tenants = len({p.tenant for v in tick.views.values() if v.state for p in v.state.ports})
            tick.tenants = self._tenants
            self._reconciler.reconcile(tick)
            self._reconcile_at = self._clock.monotonic() + self._settings.config.controller.reconcile
        following.follow(waiting, tick)
        rows += self._revive(idle, tick)
        more = self._advance(rows, tick)
        if self._clock.monotonic() >= self._prune_at:
            self._prune()
            self._prune_at = self._clock.monotonic() + _PRUNE_EVERY
        self._remember_audit_head()
        self._refresh_metrics(tick)
        return more or taken > 0

    def _lead(self) -> bool:
        """Tell whether this replica leads, after taking up what another one has left."""
        led = self._lease.keep()
        self._metrics.leader.set(led)
        self._metrics.term.set(self._lease.term)
        self._terms.begin(self._lease.term)
        self._fleet.lead(self._terms.of, lambda: self._lease.held, self._beat)
        if not led:
            self._term = 0
        elif self._term != self._lease.term:
            self._term = self._runtime.term = self._lease.term
            self._runtime.watches.clear()
            self._cleared = None
            self._journal.note("leader.elected", "controller", term=self._term)
            self._resume()
        return led

    def _beat(self) -> None:
        """Keep the lease while nodes are awaited: those that do not answer take seconds each."""
        if self._lease.held:
            with contextlib.suppress(StorageError):
                self._lease.keep()

    def _stop_everything(self, tick: Tick) -> None:
        """With the kill switch on, end all limits of all nodes at once; the records follow one by one."""
        on = tick.kill_switch or tick.settings.policies.guards.kill_switch
        if not on:
            self._cleared = None
            return
        first, cleared = self._cleared is None, (self._cleared or set()) & set(self._fleet.nodes)
        left = [node for node in self._fleet.nodes if node not in cleared]
        removed = self._fleet.remove_all(left if first else self._fleet.due(left))
        done = [node for node, answer in removed.items() if isinstance(answer, int)]
        self._cleared = cleared | set(done)
        tick.cleared = {node: self._fleet.read(node) for node in done}
        if first or done:  # a node that does not answer for months is on record once
            told = {n: str(answer) for n, answer in removed.items() if first or n in done}
            self._journal.note("killswitch.enforced", "controller", nodes=told)

    def _take_next(self) -> None:
        with self._swap_lock:
            upcoming, self._next = self._next, None
        if upcoming is not None:
            for node in set(self._fleet.nodes) - set(upcoming[1].nodes):
                with contextlib.suppress(KeyError):
                    self._metrics.enforcer_up.remove(node)
            self._fleet.close()
            self._settings, self._fleet = upcoming
            self._snapshot.keep(self._fleet.nodes)

    def _resume(self) -> None:
        """After a start: cooldowns go on, and actions with a limit say that they were taken up again."""
        now = self._clock.now()
        with self._journal.store.read() as session:
            for key, at in actions.last_ends(session):
                self._runtime.cooldowns.ended(key, (now - (at or now)).total_seconds())
            held = actions.enforcing(session)
        for action in held:
            with self._journal.change(action, "action.resumed", Entry("resumed", now)):
                pass

    def _open_actions(self) -> list[Action]:
        """Return the actions that are not over: limits first, so that many new alerts never starve them."""
        with self._journal.store.read() as session:
            rows = actions.open_actions(session)
        order = {State.RECEIVED: 1, State.PENDING_APPROVAL: 2, State.OBSERVING: 2, State.SUPPRESSED: 3}
        return sorted(rows, key=lambda a: (order.get(a.state, 0), a.seq))

    def _idle_episodes(self) -> list[Episode]:
        """Return the firing episodes for which there is no open action."""
        with self._journal.store.read() as session:
            return episodes.idle(session, self._heard_since())

    def _heard_since(self) -> datetime:
        """Return since when an alert has to have been heard of to count."""
        return self._clock.now() - timedelta(seconds=self._settings.config.controller.episode_timeout)

    def _look(self, rows: Sequence[Action], idle: Sequence[Episode], *, everywhere: bool) -> Tick:
        """Read the enforcers that matter in this turn."""
        nodes = {a.node for a in rows} | {e.labels.get("node", "") for e in idle}
        nodes |= self._fleet.stale
        everywhere = everywhere or self._snapshot.watched
        views = self._fleet.look(nodes | set(self._fleet.nodes) if everywhere else nodes)
        self._snapshot.take({n: v for n, v in views.items() if n in self._fleet})
        views |= self._complaints(rows, idle, views)
        self._terms.follow(self._fleet)
        # Who is not deciding about anything needs no counts of what was decided before.
        deciding = bool(idle) or any(a.state in _UNDECIDED for a in rows)
        new = [a for a in rows if a.state is State.RECEIVED and a.level != "L0" and _borne_out(a, views)]
        now = self._clock.now()
        with self._journal.store.read() as session:
            kill_switch, tripped = self._journal.store.switches(session)
            reasons = actions.reasons_of_open(session) if rows else defaultdict(list)
            recent = self._ended_lately(session) if deciding else Counter()
            begun = self._begun(session) + len(new) if deciding and not tripped else 0
            harm = self._harm(session) if rows else []
        return Tick(
            settings=self._settings,
            fleet=self._fleet,
            kill_switch=kill_switch,
            now=now,
            views=views,
            reasons=reasons,
            held={(a.node, a.port): a for a in rows if a.state in ENFORCING},
            recent=recent,
            tenants=self._tenants,
            breaker=tripped or self._trip(begun),
            allowed=allowed_now(self._journal.store, now) if rows else (),
            harm=harm,
        )

    def _complaints(
        self, rows: Iterable[Action], idle: Iterable[Episode], views: Mapping[str, View]
    ) -> dict[str, View]:
        """Ask the nodes of alerts that their own kernels do not bear out whether victims complain."""
        doubtful = {a.node for a in rows if a.state in _DOUBTFUL and not _borne_out(a, views)}
        doubtful |= {e.labels.get("node", "") for e in idle}
        asked = [n for n in doubtful if n in views and views[n].state is not None]
        return {n: replace(views[n], accused=ports) for n, ports in self._fleet.accused(asked).items()}

    def _ended_lately(self, session: Transaction) -> Counter[str]:
        """Return how many limits of each tenant ended within per_tenant_within."""
        seconds = self._settings.policies.guards.per_tenant_within
        return actions.tenants_ended(session, actions.Span.before(self._clock.now(), seconds))

    def _begun(self, session: Transaction) -> int:
        """Return how many automatic actions began within the breaker's time."""
        seconds = self._settings.policies.guards.breaker.within
        return actions.begun(session, actions.Span.before(self._clock.now(), seconds))

    def _trip(self, begun: int) -> str:
        """Trip the breaker if too many actions began; returns why it has tripped."""
        breaker = self._settings.policies.guards.breaker
        if begun <= breaker.actions:
            return ""
        reason = f"{begun} actions began within {breaker.within:g}s, at most {breaker.actions} are expected"
        with self._journal.writer.write() as session:
            self._journal.store.set_breaker(session, reason)
            self._journal.note("breaker.tripped", "controller", reason=reason)
        return reason

    def _harm(self, session: Transaction) -> list[Episode]:
        """Return the firing alerts by which policies see that others are harmed."""
        policies = self._settings.policies
        if not any(p.step for p in policies.policies):
            return []
        return [e for e in episodes.firing(session, self._heard_since()) if policies.shows_harm(e.labels)]

    def _revive(self, idle: Iterable[Episode], tick: Tick) -> list[Action]:
        """Make actions for alerts that still fire without one, where the source shows the flood."""
        made: dict[int, Action] = {}
        for episode in idle:
            try:
                action = self._revived(episode, tick)
            except AgentError:
                raise
            except Exception:
                _log.exception("cannot handle an alert in this turn", extra={"episode": episode.id})
                continue
            if action is not None and action.state is State.RECEIVED:
                made[action.seq] = action
        return list(made.values())

    def _revived(self, episode: Episode, tick: Tick) -> Action | None:
        """Return the action that an episode has from now on, if the source bears it out."""
        claim = self._claim(episode, tick)
        if claim is None:
            return None
        entry = Entry("alert_still_firing", tick.now, {"fingerprint": episode.fingerprint})
        with self._journal.writer.write() as session:
            ((action, made_for_it),) = Claims(session, tick.settings).take([(claim, [entry])])
            event = "action.received" if made_for_it else "action.reason_added"
            detail = {"fingerprint": episode.fingerprint, "policy": claim.policy.name}
            self._journal.audit.append(about(action, event, "controller", detail))
        tick.reasons[action.seq].append((claim.policy.name, episode))
        return action

    def _claim(self, episode: Episode, tick: Tick) -> Claim | None:
        """Return what an episode without an action asks for now, if the source bears it out."""
        policy = tick.settings.policies.find(episode.labels)
        if policy is None or effective_level(policy, episode.labels) == "L0":
            return None
        try:
            target = target_of(episode.labels)
        except BadPayload:
            return None  # an alert that only tells of harm
        view = tick.views.get(target.node)
        key = (policy.name, target.node, target.port, target.tenant)
        if self._runtime.cooldowns.left(key, policy.cooldown) > 0:
            return None
        if not verified(view, target.port, policy.release.offered_below):
            return None
        return Claim(policy, target, episode, tick.now, needs_evidence=True)

    def _advance(self, rows: Iterable[Action], tick: Tick) -> bool:
        """Let every action take its step; one that breaks does not stop the others.

        New ones that nothing bears out come last: however many alerts somebody sends, they keep no flood
        waiting. A turn with many actions ends early when somebody turns the kill switch meanwhile.
        """
        undecided, look = 0, self._clock.monotonic() + _SWITCH_LOOKED_AT_EVERY
        for action in sorted(rows, key=lambda a: a.state is State.RECEIVED and not _borne_out(a, tick.views)):
            if action.state is State.RECEIVED:
                undecided += 1
                if undecided > _UNDECIDED_PER_TURN:
                    continue
            try:
                self._lifecycle.step(action, tick)
            except AgentError:
                raise
            except Exception:
                _log.exception("cannot handle an action in this turn", extra={"action": action.id})
            if self._clock.monotonic() >= look:
                if self._switch_turned(tick):
                    return True
                look = self._clock.monotonic() + _SWITCH_LOOKED_AT_EVERY
        return undecided > _UNDECIDED_PER_TURN

    def _switch_turned(self, tick: Tick) -> bool:
        """Tell whether the kill switch, or a reloaded policy file's, is another than in this turn."""
        with self._swap_lock:
            upcoming = self._next
        held = tick.settings.policies.guards.kill_switch
        if upcoming is not None and upcoming[0].policies.guards.kill_switch != held:
            return True
        return self._journal.store.kill_switch() != tick.kill_switch

    def _prune(self) -> None:
        """Forget the oldest actions that are over, and episodes that nothing refers to."""
        config = self._settings.config
        keep = Retention(config.limits.kept_actions, timedelta(seconds=config.controller.episode_timeout))
        with self._journal.writer.write() as session:
            prune(session, keep, self._clock.now())
        longest = max((p.cooldown for p in self._settings.policies.policies), default=0.0)
        self._runtime.cooldowns.forget(max(longest, 3600.0))

    def _remember_audit_head(self) -> None:
        head = self._journal.audit.head
        if head != self._anchor:
            self._journal.store.set_audit_anchor(head)
            self._anchor = head

    def _refresh_metrics(self, tick: Tick) -> None:
        with self._journal.store.read() as session:
            rows, depth = actions.count_open(session), inbox.depth(session)
        shown: set[tuple[str, str, str]] = {
            (State.ACTIVE.value, p.level, p.name) for p in tick.settings.policies.policies
        }
        for key in shown:
            self._metrics.actions.labels(*key).set(0)
        for state, level, policy, count in rows:
            self._metrics.actions.labels(state.value, level, policy).set(count)
            shown.add((state.value, level, policy))
        for gone in self._shown - shown:
            self._metrics.actions.labels(*gone).set(0)
        self._shown |= shown
        self._metrics.inbox_depth.set(depth)
        self._metrics.audit_sequence.set(self._journal.audit.head.seq)
        self._metrics.dry_run.set(tick.settings.config.dry_run)
        self._metrics.breaker.set(bool(tick.breaker))
        self._metrics.kill_switch.set(tick.kill_switch or tick.settings.policies.guards.kill_switch)

    def _clear_metrics(self) -> None:
        """Show nothing of the shared record, which the leader shows: sums over replicas count it once."""
        for key in self._shown:
            self._metrics.actions.labels(*key).set(0)
        for gauge in (self._metrics.inbox_depth, self._metrics.orphans, self._metrics.breaker):
            gauge.set(0)
        self._metrics.kill_switch.set(0)
        self._metrics.enforcer_up.clear()


def _borne_out(action: Action, views: Mapping[str, View]) -> bool:
    """Tell whether an enforcer bears out an action's alert now."""
    return verified(views.get(action.node), action.port, action.params["offered_below"])
