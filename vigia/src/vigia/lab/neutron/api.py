"""The APIs of Keystone and Neutron as the lab uses them: from within the control plane's namespace."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from vigia.errors import VigiaError
from vigia.host import netns
from vigia.lab.neutron import configuration
from vigia.lab.neutron.places import Driver, NeutronPlaces

__all__ = ["Keystone", "Neutron"]

_TIMEOUT = 120.0
_MORE, _PAUSE = 3, 2.0
"""Times, and seconds between, that a service is asked again that failed: one that has just begun may."""


class _Api:
    """One service's API."""

    def __init__(self, places: NeutronPlaces, url: str) -> None:
        self._places = places
        self._url = url

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Return what the API answers, None for an empty answer. Raises VigiaError."""
        answer = self._send(method, path, body, {**self._headers(), **(headers or {})})
        if answer.status_code == httpx.codes.UNAUTHORIZED and self._renew():
            answer = self._send(method, path, body, self._headers())
        for _ in range(_MORE):
            if answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
                break
            time.sleep(_PAUSE)
            answer = self._send(method, path, body, {**self._headers(), **(headers or {})})
        if answer.is_error:
            raise VigiaError(f"{method} {self._url}{path}: {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else None

    def answers(self) -> bool:
        """Whether anything answers, whatever it says, but for errors of its own."""
        try:
            return self._send("GET", "/", None, {}).status_code < httpx.codes.INTERNAL_SERVER_ERROR
        except VigiaError:
            return False

    def _headers(self) -> Mapping[str, str]:
        return {}

    def _renew(self) -> bool:
        """Throw away a token that has ended; false if there was none."""
        return False

    def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> httpx.Response:
        def call() -> httpx.Response:
            with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
                return client.request(method, self._url + path, json=body, headers=dict(headers))

        try:
            return netns.inside(self._places.netns, call)
        except httpx.HTTPError as e:
            raise VigiaError(f"{method} {self._url}{path}: {e or type(e).__name__}") from e


class Keystone(_Api):
    """Keystone, as the administrator."""

    def __init__(self, places: NeutronPlaces) -> None:
        super().__init__(places, places.keystone_url)

    def token(self) -> str:
        """Return a new token."""
        domain = {"id": "default"}
        user = {
            "name": configuration.ADMIN,
            "domain": domain,
            "password": configuration.passwords(self._places)["admin"],
        }
        auth = {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": configuration.PROJECT, "domain": domain}},
        }
        answer = self._send("POST", "/auth/tokens", {"auth": auth}, {})
        if answer.is_error:
            raise VigiaError(f"Keystone gives no token: {answer.status_code}: {answer.text[:500]}")
        return str(answer.headers["X-Subject-Token"])

    def add_project(self, name: str) -> str:
        """Make a project and return its id."""
        answer = self._asked("POST", "/projects", {"project": {"name": name, "domain_id": "default"}})
        return str(answer["project"]["id"])

    def add_neutron(self) -> None:
        """Make the user that Neutron checks tokens by, and say where Neutron is."""
        project = self.add_project("service")
        user = {
            "name": "neutron",
            "domain_id": "default",
            "password": configuration.passwords(self._places)["neutron"],
        }
        made = self._asked("POST", "/users", {"user": user})["user"]["id"]
        (role,) = self._asked("GET", "/roles?name=admin")["roles"]
        self._asked("PUT", f"/projects/{project}/users/{made}/roles/{role['id']}")
        service = self._asked("POST", "/services", {"service": {"type": "network", "name": "neutron"}})
        endpoint = {
            "service_id": service["service"]["id"],
            "interface": "public",
            "url": self._places.neutron_url,
            "region_id": configuration.REGION,
        }
        self._asked("POST", "/endpoints", {"endpoint": endpoint})

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        return self.ask(method, path, body, {"X-Auth-Token": self.token()})


class Neutron(_Api):
    """Neutron, as the administrator; with OVN it asks nobody who that is."""

    def __init__(self, places: NeutronPlaces, driver: Driver) -> None:
        super().__init__(places, places.neutron_url)
        self._keystone = None if driver == "ovn" else Keystone(places)
        self._token = ""

    def _headers(self) -> Mapping[str, str]:
        if self._keystone is not None and not self._token:
            self._token = self._keystone.token()
        return {"X-Auth-Token": self._token} if self._token else {}

    def _renew(self) -> bool:
        had, self._token = self._token, ""
        return bool(had)

    def listed(self, what: str, **query: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, for example ports."""
        asked = "&".join(f"{key}={value}" for key, value in query.items())
        found: list[dict[str, Any]] = self.ask("GET", f"/v2.0/{what}?{asked}")[what.replace("-", "_")]
        return found

    def add(self, what: str, **attributes: Any) -> dict[str, Any]:
        """Make an object, for example a network, and return it."""
        made: dict[str, Any] = self.ask("POST", f"/v2.0/{what}s", {what: attributes})[what]
        return made

    def add_many(self, what: str, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Make objects of a kind in one request, and return them in this order."""
        made: list[dict[str, Any]] = self.ask("POST", f"/v2.0/{what}s", {f"{what}s": items})[f"{what}s"]
        return made

    def change(self, what: str, identity: str, **attributes: Any) -> dict[str, Any]:
        """Change an object and return it."""
        changed: dict[str, Any] = self.ask("PUT", f"/v2.0/{what}s/{identity}", {what: attributes})[what]
        return changed

    def remove(self, what: str, identity: str) -> None:
        """Remove an object."""
        self.ask("DELETE", f"/v2.0/{what}s/{identity}")
