"""Looking at the clouds, again and again."""

from __future__ import annotations

import logging
import queue
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from vigia_config import load
from vigia_identity.clouds import CloudError, Identity
from vigia_identity.config import Config
from vigia_identity.config_map import publish
from vigia_identity.files import write
from vigia_service.errors import ServiceError
from vigia_service.reload import Reloader
from vigia_service.watchdog import Watchdog

__all__ = ["Looker", "run"]

_log = logging.getLogger(__name__)

AGAIN = 15.0
"""Seconds until a cloud that did not answer is asked again, if it is not due before."""

ANSWERS = 60
"""Answers that each take all of their timeout, within which a look at all clouds and the writing end."""


def _openstack(config: Config) -> Identity:
    from vigia_identity.clouds import openstack  # noqa: PLC0415 - the SDK takes a second

    assert config.openstack is not None  # noqa: S101 - only asked if it is
    return openstack.ask(config.openstack, ports=config.ports_dir is not None, timeout=config.timeout)


def _kubernetes(config: Config) -> Identity:
    from vigia_identity.clouds import kubernetes  # noqa: PLC0415 - who has none needs none

    assert config.kubernetes is not None  # noqa: S101 - only asked if it is
    return kubernetes.ask(config.kubernetes, timeout=config.timeout)


CLOUDS: Mapping[str, Callable[[Config], Identity]] = {"openstack": _openstack, "kubernetes": _kubernetes}
"""By the key of the configuration; where two name a tenant, the first one's name is used."""


class Looker:
    """Looks at the clouds; what one said last stays while it is away."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.known: dict[str, Identity] = {}
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
        return together

    def once(self) -> bool:
        """Ask, write what is known, log; return whether all went well."""
        self._since = time.monotonic()
        try:
            return self._once()
        finally:
            self._since = None

    def _once(self) -> bool:
        failed = self.ask()
        for e in failed:
            _log.warning("cannot ask a cloud", extra={"err": str(e)})
        identity = self.identity()
        if identity is None:
            return False
        try:
            changed = len(write(identity, self.config.tenants_file, self.config.ports_dir))
            changed += self._publish(identity)
        except (CloudError, OSError) as e:
            _log.warning("cannot write", extra={"err": str(e)})
            return False
        counts = {"tenants": len(identity.names), "hosts": len(identity.ports), "written": changed}
        _log.info("asked the clouds", extra=counts)
        return not failed

    def _publish(self, identity: Identity) -> int:
        """Put what is known where pods read it; return how much of it changed. Raises CloudError."""
        kubernetes = self.config.kubernetes
        if kubernetes is None or kubernetes.site is None:
            return 0
        return len(publish(kubernetes, kubernetes.site, identity, timeout=self.config.timeout))


def run(path: Path) -> int:
    """Ask until told to stop; SIGHUP reads the configuration again. Raises ConfigError."""
    looker = Looker(load(path, Config))
    reloader = Reloader(
        path,
        lambda path: load(path, Config),
        current=lambda: looker.config,
        fixed=lambda _: {},
        prepare=looker.prepare,
        reloaded=lambda _: None,
    )
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    with Watchdog(looker.hung):
        return _look(looker, reloader, signals)


def _look(looker: Looker, reloader: Reloader[Config], signals: queue.SimpleQueue[int]) -> int:
    """Look, again and again, until a signal ends it."""
    while True:
        every = looker.config.every
        wait = every if looker.once() else min(every, AGAIN)
        try:
            if signals.get(timeout=wait) != signal.SIGHUP:
                return 0
        except queue.Empty:
            continue
        try:
            reloader.reload()
        except ServiceError:
            continue  # logged already
