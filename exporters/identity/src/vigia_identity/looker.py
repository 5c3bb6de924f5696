"""Looking at the clouds, again and again."""

from __future__ import annotations

import logging
import queue
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from vigia_config import load
from vigia_identity.api_server import api_server
from vigia_identity.clouds import CloudError, Identity
from vigia_identity.config import Config, Kubernetes
from vigia_identity.config_map import publish
from vigia_identity.files import write
from vigia_identity.guarantees import approvals, nodes, telling
from vigia_identity.guarantees.contracts import Bought
from vigia_identity.guarantees.keeper import tell_guarantees, tell_limits
from vigia_identity.guarantees.last_words import LastWords
from vigia_identity.guarantees.notices import Notices
from vigia_identity.guarantees.telling import Telling
from vigia_identity.probing.prober import Prober
from vigia_service import systemd
from vigia_service.errors import ServiceError
from vigia_service.reload import Reloader
from vigia_service.watchdog import Watchdog

if TYPE_CHECKING:
    from vigia_identity.clouds import neutron
    from vigia_identity.clouds.openstack import ChangeWatch

__all__ = ["Looker", "run"]

_log = logging.getLogger(__name__)

AGAIN = 15.0
"""Seconds until a cloud that did not answer is asked again, if it is not due before."""

ANSWERS = 60
"""Answers that each take all of their timeout, within which a look at all clouds and the writing end."""


ENFORCER_SECONDS = 3.0
"""How long an enforcer may take to say what is in force."""

CHANGED = 0
"""No signal: enforcers were told of something that was bought."""
APPLIED = 1.0
"""Seconds until enforcers are asked what they have in force of it, and twice as long as a look takes."""


def _openstack(config: Config) -> Identity:
    from vigia_identity.clouds import openstack  # noqa: PLC0415 - the SDK takes a second

    assert config.openstack is not None  # noqa: S101 - only asked if it is
    return openstack.ask(config.openstack, timeout=config.timeout, wanted=_wanted(config))


def _wanted(config: Config) -> neutron.Wanted | None:
    """Return what is wanted of Neutron's ports, None for nothing."""
    from vigia_identity.clouds import neutron  # noqa: PLC0415 - as above

    if config.ports_dir is None and config.contracts_dir is None and config.sites_dir is None:
        return None
    return neutron.Wanted(bought=config.contracts_dir is not None, site=config.sites_dir is not None)


def _kubernetes(config: Config) -> Identity:
    from vigia_identity.clouds import kubernetes  # noqa: PLC0415 - who has none needs none

    assert config.kubernetes is not None  # noqa: S101 - only asked if it is
    return kubernetes.ask(config.kubernetes, timeout=config.timeout)


def _followed(config: Config) -> bool:
    """Whether anybody wants to know what has changed at once."""
    return config.contracts_dir is not None or config.sites_dir is not None


def _watch(config: Config) -> ChangeWatch:
    from vigia_identity.clouds.openstack import ChangeWatch  # noqa: PLC0415 - as above

    wanted = _wanted(config)
    assert config.openstack is not None and wanted is not None  # noqa: S101 - only asked if they are
    return ChangeWatch(config.openstack, config.timeout, wanted)


CLOUDS: Mapping[str, Callable[[Config], Identity]] = {"openstack": _openstack, "kubernetes": _kubernetes}
"""By the key of the configuration; where two name a tenant, the first one's name is used."""


class Looker:
    """Looks at the clouds; what one said last stays while it is away."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.known: dict[str, Identity] = {}
        self.telling: Telling | None = None  # what tells enforcers between looks; else each look does
        self._notices, self._last_words = Notices(), LastWords()
        self._said: set[str] = set()  # of what is missing
        self.took = 0.0  # seconds of the last look
        self._watch: ChangeWatch | None = None
        self._quiet = 0.0  # until when no cloud is asked for changes, on the monotonic clock
        self._since: float | None = None  # since when it looks, on the monotonic clock; None: it waits

    def hung(self) -> str:
        """Return that a look does not come to its end, or nothing: for the watchdog."""
        since, most = self._since, ANSWERS * self.config.timeout
        if since is None or time.monotonic() - since <= most:
            return ""
        return f"asking the clouds, or writing what they said, has not ended within {most:g}s"

    def prepare(self, config: Config) -> Callable[[], None]:
        """Return what puts a new configuration in force: see Reloader."""

        def commit() -> None:
            self.config = config
            self._end_watch()
            self._quiet = 0.0

        return commit

    def ask(self) -> list[CloudError]:
        """Ask every cloud; return what failed."""
        failed = []
        for name in self._wanted():
            try:
                self.known[name] = CLOUDS[name](self.config)
            except CloudError as e:
                failed.append(e)
        return failed

    def _wanted(self) -> list[str]:
        return [name for name in CLOUDS if getattr(self.config, name) is not None]

    def identity(self) -> Identity | None:
        """Return what all clouds say together, or None until each has answered once."""
        wanted = self._wanted()
        if any(n not in self.known for n in wanted):
            return None
        together = Identity()
        for name in reversed(wanted):  # the first goes before the others
            together.names.update(self.known[name].names)
            together.ports.update(self.known[name].ports)
            together.services.update(self.known[name].services)
            together.unwell += self.known[name].unwell
            together.contracts.update(self.known[name].contracts)
            together.site = self.known[name].site or together.site
            together.problems += self.known[name].problems
            together.asked = self.known[name].asked or together.asked
        return together

    def once(self) -> bool:
        """Ask, write what is known, log; return whether all went well."""
        self._since = time.monotonic()
        try:
            return self._once()
        finally:
            self.took, self._since = time.monotonic() - self._since, None

    def _once(self) -> bool:
        config, failed = self.config, self.ask()
        for e in failed:
            _log.warning("cannot ask a cloud", extra={"err": str(e)})
        identity = self.identity()
        if identity is None:
            self._notice(failed)
            return False
        try:
            found = self._bought(failed)
            changed = len(write(identity, config))
            changed += self._publish(identity)
            if found is not None:
                changed += self._tell(identity, found)
            changed += self._pass_on(failed) + self._repeat(identity, failed)
        except (CloudError, OSError) as e:
            _log.warning("cannot write", extra={"err": str(e)})
            self._notice([*failed, e])
            return False
        self._notice(failed)
        self._say(identity.problems)
        counts = {"tenants": len(identity.names), "hosts": len(identity.ports), "written": changed}
        _log.info("asked the clouds", extra=counts)
        return not failed

    def _say(self, problems: Sequence[str]) -> None:
        """Log what is missing, once."""
        for problem in problems:
            if problem not in self._said:
                _log.warning("not all of the site is known", extra={"err": problem})
        self._said = set(problems)

    def _notice(self, failed: Sequence[Exception]) -> None:
        """Tell who looks at this pod what is missing."""
        if (kubernetes := self.config.kubernetes) is not None:
            for e in failed:
                self._notices.say(kubernetes, str(e), timeout=self.config.timeout)

    def follow(self) -> bool:
        """Take up what a cloud says has changed, and return whether that was written.

        One that fails says so at the next look.
        """
        config, known = self.config, self.known.get("openstack")
        if config.openstack is None or not _followed(config) or known is None:
            return False
        self._since = time.monotonic()
        if self._since < self._quiet:
            self._since = None
            return False
        try:
            if self._watch is None:
                self._watch = _watch(config)
            found = self._watch.changed(known)
            return found is not None and self._take(found)
        except CloudError as e:
            self._end_watch()
            self._quiet = time.monotonic() + min(config.every, AGAIN)
            _log.debug("cannot ask a cloud for changes", extra={"err": str(e)})
            return False
        finally:
            self._since = None

    def _take(self, found: Identity) -> bool:
        config, before = self.config, self.known["openstack"]
        self.known["openstack"] = found
        identity = self.identity()
        if identity is None:
            return False
        try:
            changed = len(write(identity, config))
        except OSError as e:
            self.known["openstack"] = before  # and so it has changed at the next question, too
            _log.warning("cannot write", extra={"err": str(e)})
            return False
        if changed:
            _log.info("took up what has changed", extra={"written": changed})
        return changed > 0

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    def wait(self) -> float:
        """Return the time from one question for changes to the next."""
        openstack = self.config.openstack
        return openstack.changes if openstack is not None and _followed(self.config) else self.config.every

    def _publish(self, identity: Identity) -> int:
        """Put what is known where pods read it; return how much of it changed. Raises CloudError."""
        kubernetes = self.config.kubernetes
        if kubernetes is None or kubernetes.site is None:
            return 0
        return len(publish(kubernetes, kubernetes.site, identity, timeout=self.config.timeout))

    def guarantees(self) -> Kubernetes | None:
        """Return the cluster whose guarantees are asked for, if any."""
        kubernetes = self.config.kubernetes
        if kubernetes is None or kubernetes.site is None or kubernetes.site.guarantees is None:
            return None
        return kubernetes

    def _bought(self, failed: list[CloudError]) -> Bought | None:
        """Tell enforcers what was bought; they keep what they have where that cannot be asked."""
        kubernetes = self.guarantees()
        if kubernetes is None:
            return None
        try:
            if self.telling is not None:
                failed += map(CloudError, self.telling.problems())
                return self.telling.again()
            found = telling.asked(kubernetes, self.config.timeout)
            telling.tell(kubernetes, found, self.config.timeout)
        except CloudError as e:
            _log.warning("cannot ask for guarantees, or tell enforcers of them", extra={"err": str(e)})
            failed.append(e)
            return None
        return found

    def _pass_on(self, failed: list[CloudError]) -> int:
        """Pass on what people said of actions that wait for them; what fails of that stops nothing else."""
        kubernetes, timeout = self.config.kubernetes, self.config.timeout
        if kubernetes is None or kubernetes.site is None or kubernetes.site.approvals is None:
            return 0
        site, now = kubernetes.site, datetime.now(UTC)
        assert site.approvals is not None  # noqa: S101 - asked above
        try:
            with api_server(kubernetes, timeout) as server:
                return approvals.pass_on(site.approvals, server, site.namespace, now, timeout)
        except CloudError as e:
            _log.warning("cannot pass on what people approve", extra={"err": str(e)})
            failed.append(e)
            return 0

    def _repeat(self, identity: Identity, failed: list[CloudError]) -> int:
        """Make events of why Vigia's own pods do not run; what fails of that stops nothing else."""
        kubernetes = self.config.kubernetes
        if kubernetes is None or kubernetes.site is None or not identity.unwell:
            return 0
        try:
            with api_server(kubernetes, self.config.timeout) as server:
                return self._last_words.repeat(server, kubernetes.site.namespace, identity.unwell)
        except CloudError as e:
            _log.warning("cannot say why a pod does not run", extra={"err": str(e)})
            failed.append(e)
            return 0

    def _tell(self, identity: Identity, found: Bought) -> int:
        """Tell the cluster what is in force. Raises CloudError."""
        kubernetes = self.guarantees()
        assert kubernetes is not None and kubernetes.site is not None  # noqa: S101 - it was asked
        assert kubernetes.site.guarantees is not None  # noqa: S101
        inforce = nodes.ask(identity.services.get(kubernetes.site.guarantees.enforcers, ()), ENFORCER_SECONDS)
        now = datetime.now(UTC)
        with api_server(kubernetes, self.config.timeout) as server:
            return tell_guarantees(server, found, inforce, now) + tell_limits(server, inforce, now)


def run(path: Path) -> int:
    """Ask until told to stop; SIGHUP reads the configuration again. Raises ConfigError."""
    looker = Looker(load(path, Config))
    prober = Prober(lambda: looker.config)
    reloader = Reloader(
        path,
        lambda path: load(path, Config),
        current=lambda: looker.config,
        fixed=lambda _: {},
        prepare=looker.prepare,
        reloaded=lambda _: prober.wake(),
    )
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    looker.telling = Telling(looker.guarantees, lambda: looker.config.timeout, lambda: signals.put(CHANGED))
    looker.telling.start()
    prober.start()
    systemd.ready()
    try:
        with Watchdog(looker.hung):
            return _look(looker, reloader, signals)
    finally:
        prober.stop()
        looker.telling.stop()


def _applied(signals: queue.SimpleQueue[int], seconds: float) -> int:
    """Let enforcers take up what they were told; return a signal that came meanwhile, if any."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        with suppress(queue.Empty):
            if (got := signals.get(timeout=left)) != CHANGED:
                return got
    return CHANGED


def _look(looker: Looker, reloader: Reloader[Config], signals: queue.SimpleQueue[int]) -> int:
    """Look, again and again, until a signal ends it."""
    while True:
        every = looker.config.every
        until = time.monotonic() + (every if looker.once() else min(every, AGAIN))
        try:
            got = _signal(looker, signals, until)
        except queue.Empty:
            continue
        if got == CHANGED:
            got = _applied(signals, max(APPLIED, 2 * looker.took))
        if got == CHANGED:
            continue
        if got != signal.SIGHUP:
            return 0
        try:
            reloader.reload()
        except ServiceError:
            continue  # logged already


def _signal(looker: Looker, signals: queue.SimpleQueue[int], until: float) -> int:
    """Return a signal, and follow changes meanwhile. Raises queue.Empty when it is time to look again."""
    while (left := until - time.monotonic()) > 0:
        try:
            return signals.get(timeout=min(left, looker.wait()))
        except queue.Empty:
            if time.monotonic() < until:
                looker.follow()
    raise queue.Empty
