"""A release of the chart, through kubectl: whatever that may do, and nothing more."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vigia.errors import VigiaError
from vigia.host import commands
from vigia_json import loads

__all__ = ["Release"]

MAX_ANSWER = 64 << 20
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ->")


@dataclass(frozen=True)
class Release:
    """Where Vigia was installed."""

    namespace: str = "vigia"
    name: str = "vigia"
    """Of its objects: the release's, as the chart makes it."""
    options: tuple[str, ...] = ()
    """Which cluster, as kubectl takes them."""

    def objects(self, kinds: str, *options: str) -> list[dict[str, Any]]:
        """Return objects of some kinds. Raises VigiaError."""
        said = commands.run([*self._kubectl(), "get", kinds, *options, "-o", "json"], timeout=60).stdout
        try:
            items: list[dict[str, Any]] = loads(said, max_size=MAX_ANSWER)["items"]
        except (ValueError, LookupError, TypeError) as e:
            raise VigiaError(f"kubectl get {kinds} does not answer with a list: {e}") from e
        return items

    def own(self, kinds: str, component: str = "") -> list[dict[str, Any]]:
        """Return the release's own objects."""
        selector = "app.kubernetes.io/name=vigia"
        if component:
            selector += f",app.kubernetes.io/component={component}"
        return self.objects(kinds, "--namespace", self.namespace, "--selector", selector)

    def token(self, secret: str) -> str:
        """Return the token of a Secret. Raises VigiaError."""
        argv = [*self._kubectl(), "get", "secret", f"{self.name}-{secret}", "--namespace", self.namespace]
        said = commands.run([*argv, "-o", "jsonpath={.data.token}"], timeout=60).stdout
        try:
            return base64.b64decode(said.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as e:
            raise VigiaError(f"Secret {self.name}-{secret} has no token") from e

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """Reach a port of a pod or a service, KIND/NAME, on loopback: the URL, while the context lasts."""
        argv = [*self._kubectl(), "port-forward", "--namespace", self.namespace, "--address", "127.0.0.1"]
        with commands.spawn([*argv, target, f":{port}"]) as process:
            try:
                assert process.stdout is not None and process.stderr is not None  # noqa: S101 - pipes
                match = _FORWARDED.search(process.stdout.readline())
                if match is None:
                    process.terminate()
                    said = " ".join(process.stderr.read(4096).split())
                    raise VigiaError(f"kubectl cannot reach port {port} of {target}: {said or 'it ended'}")
                yield f"http://127.0.0.1:{match[1]}"
            finally:
                process.terminate()

    def service(self, component: str) -> str:
        """Return a service of the release as kubectl names it."""
        return f"service/{self.name}-{component}"

    def _kubectl(self) -> Sequence[str]:
        return ("kubectl", *self.options)
