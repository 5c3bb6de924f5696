"""The agent's metrics, built from the catalogue."""

from __future__ import annotations

from isolation_agent.model.states import Cause
from vigia_service.metrics import SelfMetrics

__all__ = ["Metrics"]

_REACTION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics(SelfMetrics):
    """Every metric of the agent, in its own registry."""

    def __init__(self) -> None:
        super().__init__("agent", "isolation-agent", "isolation_agent")
        make = self.make
        self.actions = make.gauge("vigia_isolation_actions")
        self.reaction = make.histogram("vigia_isolation_reaction_seconds", _REACTION_BUCKETS)
        self.webhook_requests = make.counter("vigia_agent_webhook_requests_total")
        self.alerts = make.counter("vigia_agent_alerts_total")
        self.quarantined = make.counter("vigia_agent_alerts_quarantined_total")
        self.suppressed = make.counter("vigia_agent_actions_suppressed_total")
        self.reverts = make.counter("vigia_agent_reverts_total")
        self.extensions = make.counter("vigia_agent_extensions_total")
        self.inbox_depth = make.gauge("vigia_agent_inbox_depth")
        self.enforcer_up = make.gauge("vigia_agent_enforcer_up")
        self.enforcer_requests = make.counter("vigia_agent_enforcer_requests_total")
        self.orphans = make.gauge("vigia_agent_orphaned_limits")
        self.ticks = make.counter("vigia_agent_controller_ticks_total")
        self.audit_sequence = make.gauge("vigia_agent_audit_sequence")
        self.dry_run = make.gauge("vigia_agent_dry_run")
        self.kill_switch = make.gauge("vigia_agent_kill_switch")
        self.breaker = make.gauge("vigia_agent_breaker_tripped")
        self.leader = make.gauge("vigia_agent_leader")
        self.term = make.gauge("vigia_agent_term")
        self.approvals = make.counter("vigia_agent_approvals_total")
        self.relapses = make.counter("vigia_agent_relapses_total")
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Make series that an alert or a panel may ask for before anything has happened."""
        for result in ("ok", "error"):
            self.ticks.labels(result)
        for stage in ("detect", "notify", "apply", "verify"):
            self.reaction.labels(stage)
        for code in ("200", "202", "400", "401", "403", "408", "413", "415", "503"):
            self.webhook_requests.labels(code)
        for outcome in ("accepted", "duplicate", "ignored", "rejected"):
            self.alerts.labels("firing", outcome)
        for verdict in ("requested", "approved", "rejected", "unanswered"):
            self.approvals.labels(verdict)
        for cause in (Cause.EVIDENCE, Cause.TTL, Cause.OPERATOR, Cause.FAILURE, Cause.GONE):
            self.reverts.labels(cause.value)
