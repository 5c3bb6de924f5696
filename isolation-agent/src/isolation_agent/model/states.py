"""The state machine of an action, as data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = [
    "BY_THEMSELVES",
    "ENFORCING",
    "IN_FORCE",
    "OVER",
    "TRANSITIONS",
    "Cause",
    "IllegalTransition",
    "State",
    "check_transition",
]


class State(StrEnum):
    """Where an action stands. It is over when it has an end, whatever its state."""

    RECEIVED = "received"  # matched a policy, not decided yet
    SUPPRESSED = "suppressed"  # a guard stopped it; looked at again while its alert fires
    OBSERVING = "observing"  # level L0: recorded, nothing enforced
    PENDING_APPROVAL = "pending_approval"  # waits for a person
    APPROVED = "approved"  # a person said yes; the guards are asked once more
    APPLYING = "applying"  # the intent is stored; the limit may or may not be in the kernel
    ACTIVE = "active"  # the limit was read back from the kernel
    STEPPED_UP = "stepped_up"  # in force at a higher level than it began with
    STEPPED_DOWN = "stepped_down"  # relaxed and watched: it is released unless the flood comes back
    RELEASING = "releasing"  # the limit is to be removed and may still be there
    REVERTED = "reverted"  # removed and verified
    EXPIRED = "expired"  # ended by itself in the kernel
    FAILED = "failed"  # could not be applied or undone
    ORPHANED = "orphaned"  # a limit found on an enforcer that is not on record


class Cause(StrEnum):
    """Why an action ended."""

    EVIDENCE = "evidence"  # the offered load stayed low
    TTL = "ttl"  # the limit's own time ended
    OPERATOR = "operator"  # revert, kill switch, or a guard that was changed
    FAILURE = "failure"  # the enforcer could not do it
    GONE = "gone"  # the port is gone
    MERGED = "merged"  # another action limits the same target already
    RESOLVED = "resolved"  # nothing was enforced and the alert ended
    REJECTED = "rejected"  # a person said no
    UNANSWERED = "unanswered"  # nobody approved it in time


BY_THEMSELVES = (Cause.EVIDENCE, Cause.TTL)
"""Ends that nobody ordered, after which a new flood is a repetition."""

IN_FORCE = (State.ACTIVE, State.STEPPED_UP, State.STEPPED_DOWN)
"""States in which a limit was read back from the kernel."""

ENFORCING = (State.APPLYING, *IN_FORCE, State.RELEASING)
"""States in which a limit may be in the kernel on behalf of the action."""

OVER = (State.REVERTED, State.EXPIRED, State.FAILED)
"""States in which an action that may have had a limit has ended."""

_DECIDED = frozenset({State.SUPPRESSED, State.OBSERVING, State.PENDING_APPROVAL, State.APPLYING})
_WATCHED = frozenset({*IN_FORCE, State.APPLYING, State.RELEASING, State.EXPIRED})

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.RECEIVED: _DECIDED | {State.FAILED},
    State.SUPPRESSED: _DECIDED,
    State.OBSERVING: frozenset(),
    State.PENDING_APPROVAL: frozenset({State.APPROVED, State.SUPPRESSED, State.APPLYING}),
    State.APPROVED: frozenset({State.SUPPRESSED, State.APPLYING, State.FAILED}),
    State.APPLYING: frozenset({*IN_FORCE, State.RELEASING, State.FAILED}),
    State.ACTIVE: _WATCHED,
    State.STEPPED_UP: _WATCHED,
    State.STEPPED_DOWN: _WATCHED,
    State.RELEASING: frozenset({State.REVERTED, State.EXPIRED, State.FAILED}),
    State.REVERTED: frozenset(),
    State.EXPIRED: frozenset(),
    State.FAILED: frozenset(),
    State.ORPHANED: frozenset(),
}


class IllegalTransition(RuntimeError):
    """A step that the state machine does not have."""


def check_transition(old: State, new: State) -> None:
    """Raise IllegalTransition unless old may become new."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(f"an action cannot go from {old} to {new}")
