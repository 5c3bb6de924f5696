"""Telling enforcers what was bought as soon as it changes, between two looks at the clouds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from vigia_identity.api_server import Listing, api_server
from vigia_identity.clouds import CloudError, bounded
from vigia_identity.config import Kubernetes
from vigia_identity.config_map import put
from vigia_identity.guarantees.contracts import PATH, Bought, Guarantee, bought, contracts_text
from vigia_identity.guarantees.following import Following
from vigia_identity.guarantees.pods import FIELDS, Pod, pod
from vigia_identity.guarantees.pods import PATH as PODS

__all__ = ["KEY", "Telling", "asked", "tell"]

_log = logging.getLogger(__name__)

KEY = "contracts.yaml"
MAX_GUARANTEES, MAX_PODS = 10_000, 100_000
SETTLE = 0.1
"""Seconds in which further changes are awaited: enforcers are told at most ten times a second."""
AGAIN = 5.0
"""Seconds until it is tried again after the API server did not take it."""


def asked(config: Kubernetes, timeout: float) -> Bought:
    """Ask the API server what was bought. Raises CloudError."""
    assert config.site is not None and config.site.guarantees is not None  # noqa: S101 - only asked if it is
    with api_server(config, timeout) as server:
        items = list(bounded(server.items(PATH), MAX_GUARANTEES, "NetworkGuarantees"))
        found = bounded(server.items(PODS, fieldSelector=FIELDS), MAX_PODS, "pods")
        pods = [p for p in map(pod, found) if p is not None]
    return bought(items, pods, annotations=config.site.guarantees.pod_annotations)


def tell(config: Kubernetes, found: Bought, timeout: float) -> int:
    """Put contracts where enforcers read them; return whether they have changed. Raises CloudError."""
    assert config.site is not None and config.site.guarantees is not None  # noqa: S101 - as above
    texts = {KEY: contracts_text(found.contracts())}
    return len(put(config, config.site, config.site.guarantees.config_map, texts, timeout=timeout))


class Telling:
    """Follows guarantees and pods, and tells enforcers of each change in a thread of its own."""

    def __init__(
        self,
        config: Callable[[], Kubernetes | None],
        timeout: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        """Call back when something was bought or sold, after enforcers were told of it."""
        self._config, self._timeout, self._changed = config, timeout, changed
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._guarantees: Following[dict[str, Any]] = Following(
            config, Listing(PATH), MAX_GUARANTEES, dict, self._due.set
        )
        pods = Listing(PODS, {"fieldSelector": FIELDS}, metadata=True)
        self._pods: Following[Pod] = Following(config, pods, MAX_PODS, pod, self._due.set)
        self._told: Any = None
        self._telling = threading.Lock()  # who has it tells what is known now, never what was known before

    def start(self) -> None:
        self._guarantees.start()
        self._pods.start()
        threading.Thread(target=self._run, name="tell", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._due.set()
        self._guarantees.stop()
        self._pods.stop()

    def problems(self) -> list[str]:
        """Return why it cannot keep up."""
        return [p for p in (self._guarantees.problem(), self._pods.problem()) if p]

    def bought(self) -> Bought | None:
        """Return what was bought as it is known; None before it is."""
        config, items, pods = self._config(), self._guarantees.all(), self._pods.all()
        if config is None or config.site is None or config.site.guarantees is None:
            return None
        if items is None or pods is None:
            return None
        return bought(items, pods, annotations=config.site.guarantees.pod_annotations)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._due.wait()
            self._stopped.wait(SETTLE)
            self._due.clear()
            if not self._tell():
                self._stopped.wait(AGAIN)
                self._due.set()

    def _tell(self) -> bool:
        """Tell enforcers of what has changed; return whether nothing is left to be told."""
        with self._telling:
            config, found = self._config(), self.bought()
            if config is None or found is None or self._stopped.is_set():
                return True
            now = contracts_text(found.contracts()), sorted(map(_version, found.guarantees))
            if now == self._told:
                return True
            try:
                tell(config, found, self._timeout())
            except CloudError as e:
                _log.warning("cannot tell enforcers what was bought", extra={"err": str(e)})
                return False
            self._told = now
        self._changed()
        return True

    def again(self) -> Bought | None:
        """Tell enforcers again, should they have been told otherwise.

        Return what was bought, with statuses as they are now; None before it is known. Raises CloudError.
        """
        with self._telling:
            config, found = self._config(), self.bought()
            if config is None or found is None:
                return None
            assert config.site is not None and config.site.guarantees is not None  # noqa: S101 - else none is found
            tell(config, found, self._timeout())
        pods = self._pods.all() or ()
        with api_server(config, self._timeout()) as server:
            items = list(bounded(server.items(PATH), MAX_GUARANTEES, "NetworkGuarantees"))
        return bought(items, pods, annotations=config.site.guarantees.pod_annotations)


def _version(guarantee: Guarantee) -> tuple[str, int]:
    meta = guarantee.item["metadata"]
    return str(meta["uid"]), int(meta.get("generation") or 0)
