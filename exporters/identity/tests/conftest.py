"""A real HTTP server that answers as the API documentation of Keystone, Neutron and Kubernetes says."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

PASSWORD, TOKEN, NAMESPACE_TOKEN = "s3cr3t-password", "gAAAA-token", "ns-token"


class Writing:
    """What Neutron does with ports that are made and removed, as ML2 does; the bindings are those of its drivers."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.vif: dict[str, str] = {}
        """binding:vif_type by host; that of Open vSwitch elsewhere."""
        self.quota: int | None = None
        """Ports of each project, at most."""
        self.free = 200
        """Addresses of each network that nobody has."""
        self.forbidden: set[str] = set()
        """Methods that the user has no right to."""
        self.broken_after: int | None = None
        """So many ports are made, and of the next one the answer is lost."""
        self.made = 0
        self.filters = True
        """Whether lists are of what is asked for alone."""

    def post(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Make a port; return a status and what is answered."""
        wanted = body["port"]
        same = [p for p in self.cloud.ports if p.get("project_id") == wanted["project_id"]]
        if "POST" in self.forbidden:
            return 403, self.error(
                "PolicyNotAuthorized", "(rule:create_port:binding:host_id) is disallowed by policy"
            )
        if self.quota is not None and len(same) >= self.quota:
            return 409, self.error("OverQuota", "Quota exceeded for resources: ['port'].")
        if self.free == 0:
            return 409, self.error("IpAddressGenerationFailure", "No more IP addresses available on network.")
        self.made += 1
        self.free -= 1
        host = wanted["binding:host_id"]
        subnets = [s for s in self.cloud.subnets if s["network_id"] == wanted["network_id"]]
        port = {
            **wanted,
            "id": f"{self.made:08x}-5a0e-4a5f-8c0d-0f1e2d3c4b5a",
            "mac_address": f"fa:16:3e:00:{self.made >> 8:02x}:{self.made & 255:02x}",
            "fixed_ips": [{"subnet_id": s["id"], "ip_address": s["cidr"].replace("0/", f"{self.made}/").split("/")[0]} for s in subnets],
            "binding:vif_type": self.vif.get(host, "ovs"),
            "binding:vif_details": {"port_filter": True, **({} if host in self.vif else {"bridge_name": "br-int"})},
            "status": "DOWN",
        }  # fmt: skip
        self.cloud.ports.append(port)
        if self.broken_after is not None and self.made > self.broken_after:
            return 503, {"error": "the answer is lost"}
        return 201, {"port": port}

    def delete(self, path: str) -> tuple[int, Any]:
        """Remove a port."""
        if "DELETE" in self.forbidden:
            return 403, self.error("PolicyNotAuthorized", "(rule:delete_port) is disallowed by policy")
        before = len(self.cloud.ports)
        self.cloud.ports[:] = [p for p in self.cloud.ports if p["id"] != path.rpartition("/")[2]]
        return (
            (204, None)
            if len(self.cloud.ports) < before
            else (404, self.error("PortNotFound", "Port could not be found."))
        )

    def error(self, kind: str, message: str) -> Any:
        return {"NeutronError": {"type": kind, "message": message, "detail": ""}}


class Cloud:
    """What the server knows, and what it was asked."""

    password, namespace_token = PASSWORD, NAMESPACE_TOKEN
    network = tuple(
        f"/network/v2.0/{kind}" for kind in ("ports", "networks", "subnets", "agents", "qos/policies")
    )

    def __init__(self) -> None:
        self.projects: list[dict[str, Any]] = []
        self.ports: list[dict[str, Any]] = []
        self.policies: list[dict[str, Any]] = []
        self.networks: list[dict[str, Any]] = []
        self.subnets: list[dict[str, Any]] = []
        self.agents: list[dict[str, Any]] = []
        self.neutron = Writing(self)
        self.namespaces: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.slices: dict[str, list[dict[str, Any]]] = {}
        """EndpointSlices by service."""
        self.cluster_services: dict[str, dict[str, Any]] = {}
        """What Services are, by name."""
        self.config_map: dict[str, Any] = {"metadata": {"name": "vigia-site"}}
        self.contracts: dict[str, Any] = {"metadata": {"name": "vigia-contracts"}}
        """The ConfigMap of contracts."""
        self.watched: dict[str, queue.SimpleQueue[dict[str, Any] | None]] = {}
        """What is told to who watches a path; None ends the answer."""
        self.objects: dict[str, list[dict[str, Any]]] = {}
        """Further lists, by path."""
        self.changed: list[tuple[str, str, Any]] = []
        """What was done to further objects: method, path and what was sent."""
        self.metrics: str | None = None
        """The page of an enforcer's metrics."""
        self.forbidden: set[str] = set()
        """Requests for which the service account has no right: method and path."""
        self.asked: list[str] = []
        self.queries: list[dict[str, list[str]]] = []
        """What was said beside the path, in the same order."""
        self.accepted: list[str] = []
        """Formats that were asked for."""
        self.broken = False
        self.noauth = False
        """Whether Neutron asks nobody who it is."""
        self.raw: bytes | None = None
        """Answered to every GET in place of what is known."""
        self.page = 2
        self.url = ""

    def config_maps(self) -> dict[str, dict[str, Any]]:
        """Return ConfigMaps by name."""
        return {"vigia-site": self.config_map, "vigia-contracts": self.contracts}

    def lets_in(self, token: str | None) -> bool:
        """Whether Neutron answers whoever shows this token."""
        return self.noauth or token == TOKEN

    def page_of(self, kind: str, items: list[dict[str, Any]], query: dict[str, list[str]], path: str) -> Any:
        """Answer as OpenStack pages: limit, marker, and a link to what follows."""
        if (
            "changed_since" in query
        ):  # as Neutron with filter-validation, which has been the default for years
            return {"NeutronError": {"message": "['changed_since'] is invalid attribute for filtering"}}
        for key in ("device_owner", "project_id"):
            if key in query and self.neutron.filters:
                items = [item for item in items if item.get(key) in query[key]]
        if "id" in query:
            items = [item for item in items if item["id"] in query["id"]]
        if "fields" in query:
            items = [{k: v for k, v in item.items() if k in query["fields"]} for item in items]
        marker = query.get("marker", [""])[0]
        start = next((i + 1 for i, item in enumerate(items) if item["id"] == marker), 0)
        size = min(self.page, int(query.get("limit", ["9999"])[0]))
        part = items[start : start + size]
        answer: dict[str, Any] = {kind: part}
        if start + size < len(items):
            following = f"{self.url}{path}?marker={part[-1]['id']}"
            if kind in ("agents", "networks", "policies", "ports", "subnets"):
                answer[f"{kind}_links"] = [{"rel": "next", "href": following}]
            else:
                answer["links"] = {"next": following, "self": f"{self.url}{path}", "previous": None}
        elif kind == "projects":
            answer["links"] = {"next": None, "self": f"{self.url}{path}", "previous": None}
        return answer

    def catalog(self) -> Any:
        """Return where each service of OpenStack is."""
        endpoints = [
            {"name": "keystone", "type": "identity", "url": f"{self.url}/v3"},
            {"name": "neutron", "type": "network", "url": f"{self.url}/network"},
        ]
        return [
            {"id": e["name"], "name": e["name"], "type": e["type"],
             "endpoints": [{"id": e["name"], "interface": "public", "region": "r1", "region_id": "r1", "url": e["url"]}]}
            for e in endpoints
        ]  # fmt: skip

    def list(self, path: str, query: dict[str, list[str]]) -> Any:
        """Answer as Kubernetes pages: limit, and a token for what follows."""
        service = query.get("labelSelector", ["="])[0].partition("=")[2]
        slices = self.slices.get(service, [])
        items = {
            "/api/v1/namespaces": self.namespaces,
            "/api/v1/nodes": self.nodes,
            "/apis/discovery.k8s.io/v1/namespaces/vigia/endpointslices": slices,
            **self.objects,
        }.get(path)
        if items is None:
            return None
        start = int(query.get("continue", ["0"])[0] or 0)
        more = str(start + self.page) if start + self.page < len(items) else ""
        meta = {"resourceVersion": "7", "continue": more}
        return {
            "kind": "List",
            "apiVersion": "v1",
            "metadata": meta,
            "items": items[start : start + self.page],
        }


class Answering(BaseHTTPRequestHandler):
    """Answers as an API server does, and has what other answers take."""

    protocol_version = "HTTP/1.1"
    cloud: Cloud

    def log_message(self, *_: Any) -> None:
        """Be quiet."""

    def answer(self, status: int, body: Any, **headers: str) -> None:
        raw = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(raw)),
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def kubernetes(self, path: str, query: dict[str, list[str]]) -> None:
        """Answer as an API server does."""
        if self.headers["Authorization"] != f"Bearer {NAMESPACE_TOKEN}":
            self.answer(401, {"kind": "Status", "code": 401})
        elif f"{self.command} {path}" in self.cloud.forbidden:
            self.answer(403, {"kind": "Status", "code": 403})
        elif "/configmaps/" in path:
            self.answer(200, self.cloud.config_maps()[path.rpartition("/")[2]])
        elif "/services/" in path:
            spec = self.cloud.cluster_services.get(path.rpartition("/")[2])
            self.answer(200, {"spec": spec}) if spec else self.answer(404, {"kind": "Status"})
        elif self.command != "GET":
            self.answer(200, {})
        else:
            listed = self.cloud.list(path, query)
            if "watch" in query and listed is not None:
                self.tell(self.cloud.watched.setdefault(path, queue.SimpleQueue()))
            else:
                self.answer(404 if listed is None else 200, listed)

    def tell(self, changes: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        """Answer with changes, a line for each, until there are no more."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while (change := changes.get()) is not None:
            raw = json.dumps(change).encode() + b"\n"
            for part in (raw[:7], raw[7:]):  # as it may come
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def neutron(self, said: tuple[int, Any]) -> None:
        """Answer what Neutron says of a change; the one for a port that went has nothing in it."""
        status, body = said
        if body is not None:
            self.answer(status, body)
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        if self.path.startswith("/network/"):
            self.cloud.asked.append(f"DELETE {self.path}")
            self.neutron(self.cloud.neutron.delete(self.path))
            return
        self.cloud.changed.append(("DELETE", self.path, None))
        self.kubernetes(self.path, {})

    def do_PATCH(self) -> None:
        self.cloud.asked.append(f"PATCH {self.path}")
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        if "/configmaps/" not in self.path:
            self.cloud.changed.append(("PATCH", self.path, change))
        elif f"PATCH {self.path}" not in self.cloud.forbidden:
            into = self.cloud.config_maps()[self.path.rpartition("/")[2]]
            into.setdefault("data", {}).update(change["data"])
        self.kubernetes(self.path, {})


def handler(cloud: Cloud) -> type[Answering]:  # noqa: C901 - one case for each path
    class Handler(Answering):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cloud.asked.append(f"POST {self.path}")
            if self.path.startswith("/api"):
                cloud.changed.append(("POST", self.path, body))
                self.kubernetes(self.path, {})
                return
            if self.path == "/network/v2.0/ports":
                self.neutron(cloud.neutron.post(body))
                return
            user = body["auth"]["identity"]["password"]["user"]
            if self.path != "/v3/auth/tokens" or user["password"] != PASSWORD:
                said = "The request you have made requires authentication."
                self.answer(401, {"error": {"code": 401, "title": "Unauthorized", "message": said}})
                return
            catalog = cloud.catalog()
            self.answer(
                201,
                {"token": {"methods": ["password"], "user": {"id": "u", "name": "vigia", "domain": {"id": "default", "name": "Default"}},
                           "issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2099-01-01T00:00:00.000000Z", "audit_ids": ["a"],
                           "project": {"id": "p", "name": "admin", "domain": {"id": "default", "name": "Default"}},
                           "roles": [{"id": "r", "name": "reader"}], "catalog": catalog}},
                X_Subject_Token=TOKEN,
            )  # fmt: skip

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            cloud.asked.append(f"GET {parts.path}")
            cloud.queries.append(query)
            cloud.accepted.append(self.headers["Accept"] or "")
            if cloud.broken:
                self.answer(503, {"error": {"code": 503, "message": "Service Unavailable"}})
                return
            if cloud.raw is not None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(cloud.raw)))
                self.end_headers()
                self.wfile.write(cloud.raw)
                return
            version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{cloud.url}/v3/"}],
                       "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}]}  # fmt: skip
            match parts.path.rstrip("/"):
                case "/metrics" if cloud.metrics is not None:
                    raw = cloud.metrics.encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                case "/v3":
                    self.answer(200, {"version": version})
                case "/network":
                    self.answer(
                        200,
                        {
                            "versions": [
                                {
                                    "id": "v2.0",
                                    "status": "CURRENT",
                                    "links": [{"rel": "self", "href": f"{cloud.url}/network/v2.0/"}],
                                }
                            ]
                        },
                    )
                case "/v3/projects" if self.headers["X-Auth-Token"] == TOKEN:
                    self.answer(200, cloud.page_of("projects", cloud.projects, query, "/v3/projects"))
                case path if path in cloud.network and cloud.lets_in(self.headers["X-Auth-Token"]):
                    kind = path.rpartition("/")[2]
                    self.answer(200, cloud.page_of(kind, getattr(cloud, kind), query, path))
                case path if path.startswith("/api"):
                    self.kubernetes(path, query)
                case _:
                    self.answer(401, {"error": {"code": 401, "message": "Unauthorized"}})

    return Handler


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    known = Cloud()
    answering = handler(known)
    answering.cloud = known
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering)
    server.daemon_threads = True
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def clouds_file(cloud: Cloud, tmp_path: Path) -> Path:
    path = tmp_path / "clouds.yaml"
    path.write_text(
        json.dumps(
            {"clouds": {"lab": {"auth": {"auth_url": f"{cloud.url}/v3", "username": "vigia", "password": PASSWORD, "project_name": "admin",
                                         "user_domain_name": "Default", "project_domain_name": "Default"}, "region_name": "r1"}}}
        )
    )  # fmt: skip
    return path
