"""Having the ports be what is wanted, again and again, at a rate that Neutron does not feel."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from vigia_identity.clouds import CloudError
from vigia_identity.config import Config, Probes
from vigia_identity.probing.plan import Host, Made, Network, Pair, Plan, Refused, plan
from vigia_identity.probing.telling import tell

if TYPE_CHECKING:
    from vigia_identity.probing.cloud import Neutron

__all__ = ["CHANGES", "Outcome", "Prober"]

_log = logging.getLogger(__name__)

CHANGES = 50
"""Ports that are made or removed in one look, one at a time."""
GRACE = 600.0
"""Seconds for which a host keeps its ports though Neutron shows no agent there: one that is restarted may be
taken from the list, as OVN's is, and its ports would come back with other addresses."""
SHOWN = 5
"""Problems of a look that are logged one by one."""
AGAIN = 15.0
"""Seconds until it is looked again where something went wrong, if it is not due before."""


@dataclass(frozen=True)
class Outcome:
    """What a look has done."""

    ports: int = 0
    """That there are now."""
    down: int = 0
    """Of these, that were not plugged yet when it began."""
    made: int = 0
    removed: int = 0
    problems: Sequence[str] = ()
    """Why there are not all that are wanted."""
    more: bool = False
    """Whether changes were put off to the next look."""


class _Budget:
    """So many changes, and so many seconds of them, are in one look."""

    def __init__(self, seconds: float) -> None:
        self._left = CHANGES
        self._until = time.monotonic() + seconds
        self.spent = False

    def take(self) -> bool:
        """Whether one more is allowed."""
        self._left -= 1
        self.spent = self._left < 0 or time.monotonic() > self._until
        return not self.spent


class Prober:
    """Keeps the ports; in a thread of its own once it was started."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._failed: Counter[Pair] = Counter()
        self._seen: dict[str, tuple[Host, float]] = {}
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._said: tuple[str, ...] | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="probes", daemon=True).start()

    def wake(self) -> None:
        """Have it look now: the configuration is another one."""
        self._due.set()

    def stop(self) -> None:
        """Have it end after the request that it is at."""
        self._stopped.set()
        self._due.set()

    def once(self) -> bool:
        """Look until there is nothing left to be done; return whether all that is wanted is there."""
        openstack = self._config().openstack
        if openstack is None or openstack.probes is None:
            return True
        while (outcome := self.attempt()) is not None and outcome.more and not outcome.problems:
            pass
        return outcome is not None and not outcome.problems

    def _run(self) -> None:
        while not self._stopped.is_set():
            config, begun = self._config(), time.monotonic()
            wait = config.every
            if config.openstack is not None and config.openstack.probes is not None:
                outcome = self.attempt()
                took = time.monotonic() - begun
                if outcome is None or outcome.problems:
                    wait = min(wait, AGAIN)
                elif outcome.more:  # half of the time is others'
                    wait = min(wait, max(1.0, took))
            self._due.wait(wait)
            self._due.clear()

    def attempt(self) -> Outcome | None:
        """Look once and log what came of it; None where the cloud does not answer."""
        try:
            outcome = self.look()
        except (CloudError, OSError) as e:
            self._say([str(e)])
            return None
        self._say(outcome.problems)
        if outcome.made or outcome.removed:
            counts = {"ports": outcome.ports, "made": outcome.made, "removed": outcome.removed}
            _log.info("looked after the ports to probe between", extra={**counts, "down": outcome.down})
        return outcome

    def _say(self, problems: Sequence[str]) -> None:
        """Log problems that are others than those of the last look."""
        if tuple(problems) == self._said:
            return
        self._said = tuple(problems)
        for problem in problems[:SHOWN]:
            _log.warning("not all ports to probe between", extra={"err": problem})
        if len(problems) > SHOWN:
            _log.warning("not all ports to probe between", extra={"further": len(problems) - SHOWN})
        if not problems:
            _log.info("all ports to probe between are there")

    def look(self) -> Outcome:
        """Have the ports be what is wanted, as far as one look goes. Raises CloudError and OSError."""
        from vigia_identity.clouds import openstack  # noqa: PLC0415 - the SDK takes a second
        from vigia_identity.probing.cloud import Neutron  # noqa: PLC0415 - as above

        config = self._config()
        assert config.openstack is not None and config.openstack.probes is not None  # noqa: S101 - asked if it is
        with openstack.connected(config.openstack, config.timeout) as cloud:
            neutron = Neutron(cloud.network, config.openstack.operator)
            return self._look(neutron, config.openstack.probes, config.timeout)

    def _look(self, cloud: Neutron, probes: Probes, timeout: float) -> Outcome:
        networks, problems = cloud.networks(probes.networks)
        hosts, more = cloud.hosts(probes.hosts)
        if problems or not hosts:  # what is missing may be what was not found: nothing is changed by half
            return Outcome(problems=[*problems, *more])
        hosts = self._with_those_just_seen(hosts, probes.hosts)
        wanted = plan(networks, hosts, cloud.ports())
        kept, budget = dict(wanted.keep), _Budget(timeout)
        if wanted.remove:  # nobody shall probe what is not there any more
            tell(probes.dir, networks, hosts, kept)
        removed = self._remove(cloud, wanted, budget)
        refused = self._make(cloud, wanted, {n.name: n for n in networks}, kept, budget)
        tell(probes.dir, networks, hosts, kept)
        return Outcome(
            ports=len(kept),
            down=sum(not port.active for port in wanted.keep.values()),
            made=len(kept) - len(wanted.keep),
            removed=removed,
            problems=[*more, *refused, *_asleep(hosts, networks, kept)],
            more=budget.spent,
        )

    def _with_those_just_seen(self, hosts: dict[str, Host], patterns: Sequence[str]) -> dict[str, Host]:
        """Return the hosts, and as not alive the wanted ones that had an agent until just now."""
        now = time.monotonic()
        self._seen = {n: (h, at) for n, (h, at) in self._seen.items() if now - at < GRACE}
        self._seen |= {name: (host, now) for name, host in hosts.items()}
        away = {
            name: replace(host, alive=False)
            for name, (host, _) in self._seen.items()
            if name not in hosts and any(fnmatchcase(name, p) for p in patterns)
        }
        return hosts | away

    def _remove(self, cloud: Neutron, wanted: Plan, budget: _Budget) -> int:
        removed = 0
        for port in wanted.remove:
            if self._stopped.is_set() or not budget.take():
                break
            cloud.remove(port)
            removed += 1
        return removed

    def _make(
        self, cloud: Neutron, wanted: Plan, known: dict[str, Network], kept: dict[Pair, Made], budget: _Budget
    ) -> list[str]:
        """Make what is to be made, what was refused least often first; return why the rest could not be."""
        problems: list[str] = []
        order = sorted(wanted.make, key=lambda pair: (self._failed[pair], pair))
        for pair in order:
            if self._stopped.is_set() or not budget.take():
                break
            try:
                kept[pair] = cloud.make(known[pair.network], pair.host)
                del self._failed[pair]
            except Refused as e:
                self._failed[pair] += 1
                problems.append(str(e))
                if e.all_alike:
                    break
        self._failed = Counter({pair: self._failed[pair] for pair in order if pair in self._failed})
        return problems


def _asleep(hosts: dict[str, Host], networks: Sequence[Network], kept: dict[Pair, Made]) -> list[str]:
    """Return the hosts that lack ports since their agents are not alive."""
    lacking = sorted(
        h.name
        for h in hosts.values()
        if not h.alive and any(Pair(n.name, h.name) not in kept for n in networks)
    )
    return [
        f"host {name}: Neutron's agent there is not alive, or disabled: start it (openstack network agent "
        "list); it has no ports until then"
        for name in lacking
    ]
