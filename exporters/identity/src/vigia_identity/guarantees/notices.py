"""What is missing in the cluster, in Events of the own pod: who looks at the pod sees it without its log."""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime

from vigia_identity.api_server import api_server
from vigia_identity.clouds import CloudError
from vigia_identity.config import Kubernetes
from vigia_identity.guarantees.events import Word, say
from vigia_identity.guarantees.keeper import POD

__all__ = ["Notices"]

_log = logging.getLogger(__name__)

NAME, UID = "POD_NAME", "POD_UID"
"""Of the environment: which pod this is."""
AGAIN = 3600.0
"""Seconds until the same is said again."""
MOST = 16
"""Different things that are said meanwhile."""


class Notices:
    """Says each problem once an hour; where nobody hears it, the log has it anyway."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def say(self, config: Kubernetes, problem: str, *, timeout: float) -> None:
        """Make an Event of a problem."""
        name, uid, now = os.environ.get(NAME, ""), os.environ.get(UID, ""), time.monotonic()
        self._said = {p: at for p, at in self._said.items() if now - at < AGAIN}
        if not name or config.site is None or problem in self._said or len(self._said) >= MOST:
            return
        meta = {"name": name, "namespace": config.site.namespace, "uid": uid}
        word = Word("Warning", "CannotAsk", problem)
        try:
            with api_server(config, timeout) as server:
                say(server, POD, meta, word, datetime.now(UTC))
        except CloudError as e:
            _log.debug("cannot make an event", extra={"err": str(e)})
            return
        self._said[problem] = now
