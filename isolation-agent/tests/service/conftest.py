from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolation_agent.clock import SystemClock

from ..support.process import AgentProcess
from ..support.world import World, policy

Start = Callable[..., AgentProcess]


def in_real_time(directory: Path) -> World:
    """A world for an agent in a process of its own, with times as short as a busy machine allows."""
    made = World(directory, SystemClock())
    made.policies = [
        policy(ttl="15s", release={"hold": "1s", "offered_below": 0.8, "probe": "0s"}, cooldown="1s")
    ]
    made.extra = {"controller": {"tick": "200ms", "reconcile": "1s", "backoff": "100ms"}}
    return made


@pytest.fixture
def live(tmp_path: Path) -> Iterator[World]:
    made = in_real_time(tmp_path)
    yield made
    made.close()


@pytest.fixture
def start(live: World) -> Iterator[Start]:
    """Starts agents, and sees to it that none is left."""
    started: list[AgentProcess] = []

    def start(*options: str) -> AgentProcess:
        started.append(AgentProcess(live.write_files(), *options))
        return started[-1].wait_until_ready()

    yield start
    for agent in started:
        agent.stop(signal.SIGKILL)
