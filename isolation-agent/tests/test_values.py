"""The values of closed labels are those of the catalogue: what the code can emit, and nothing else."""

from __future__ import annotations

from typing import get_args, get_type_hints

from valueskit import Code, differences

import isolation_agent
from isolation_agent.alerts.payload import Alert
from isolation_agent.decision.guards import GUARDS
from isolation_agent.model.states import OVER, Cause, State
from isolation_agent.policy import LEVELS

CODE = Code(isolation_agent)


def test_closed_labels() -> None:
    ends = [CODE.arguments(f, i, Cause) for f, i in (("begin_release", 1), ("expire", 1), ("_Outcome", 1))]
    emitted = {
        "vigia_isolation_actions.state": [s for s in State if s not in OVER],
        "vigia_isolation_actions.level": LEVELS,
        "vigia_isolation_reaction_seconds.stage": CODE.arguments("_stage", 0),
        "vigia_agent_alerts_total.status": get_args(get_type_hints(Alert)["status"]),
        "vigia_agent_alerts_total.outcome": CODE.returned("_one", "_note_harm", "_first", "_again"),
        "vigia_agent_actions_suppressed_total.guard": [guard.name for guard in GUARDS],
        "vigia_agent_reverts_total.cause": set().union(*ends),
        "vigia_agent_enforcer_requests_total.operation": CODE.arguments("_call", 1),
        "vigia_agent_enforcer_requests_total.outcome": CODE.arguments("_record", 2, count=4)
        | CODE.assigned("outcome"),
        "vigia_agent_controller_ticks_total.result": CODE.arguments("ticks.labels", 0),
        "vigia_agent_approvals_total.verdict": CODE.arguments("approvals.labels", 0),
    }
    assert differences("agent", emitted) == []
