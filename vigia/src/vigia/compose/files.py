"""What the containers read: configuration, secrets and certificates, a volume and a user for each part."""

from __future__ import annotations

import configparser
import fcntl
import io
import ipaddress
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from vigia.certs import issuing
from vigia.certs.authority import Authority
from vigia.certs.parts import PARTS
from vigia.errors import VigiaError
from vigia.lab import model, naming, state, topology
from vigia.stack import files as stack_files
from vigia.stack import passwords, places
from vigia.stack import site as sites
from vigia.stack.files import SHORT
from vigia.stack.site import AGENT_PORTS, Site

__all__ = ["DATA", "NODE", "USERS", "ComposeWish", "Volume"]

NODE = "this-machine"
"""The machine that runs the containers, as its agents' configuration calls it."""

ADDRESS = "127.0.0.1"
LAB = "demo"

USERS = {
    "prometheus": 65534,
    "alertmanager": 65533,
    "isolation-agent": 65532,
    "vigia-compare": 65531,
    "node_exporter": 65530,
    "victoria-metrics": 65529,
    "grafana": 472,
    "influxdb": 1000,
    "vigia-probe": 65528,
    "vigia-exporter": 0,
    "vigia-enforcer": 0,
}
"""Who the parts are in their containers; docker-compose.yml says the same.

Two need root, for the sockets of Open vSwitch and the pins of BPF. What they read is in volumes of their own.
"""

DATA = (
    "prometheus",
    "alertmanager",
    "isolation-agent",
    "vigia-compare",
    "grafana",
    "victoria-metrics",
    "influxdb",
)
"""Parts with a volume of their own."""

_EVIDENCE = "/var/lib/vigia-compare/state.json"
"""In the volume of vigia-compare: what paths have shown outlives its container."""

_ALERTMANAGER = "alertmanager.password"

_CERTIFIED = tuple(part for part in USERS if part in PARTS)


@dataclass(frozen=True)
class ComposeWish:
    """What the operator asked for, in the environment."""

    tls: bool
    grafana_address: str
    grafana_password: str


class Volume:
    """The folder below which the parts' volumes are mounted, and who owns what in them.

    init sees all of them, the lab those of the parts that it tells of its nodes, and every part its own.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, part: str) -> Path:
        """Return a part's folder."""
        return self._root / part

    @property
    def encrypted(self) -> bool:
        """Whether the parts speak TLS."""
        authority = self._root / "ca", self.folder("isolation-agent") / "tls"  # the lab has no authority's
        return any((folder / "ca.crt").exists() for folder in authority)

    def site(self, nodes: Mapping[str, str]) -> Site:
        """Return the site with these nodes."""
        tls = {part: self.folder(part) / "tls" for part in _CERTIFIED} if self.encrypted else None
        return Site(ADDRESS, nodes, self.folder("prometheus") / _ALERTMANAGER, tls)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one container write at a time: init and the lab may be started at once."""
        shared = self.folder("isolation-agent")  # which both have
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (shared / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def write(self, wish: ComposeWish) -> None:
        """Write every file; secrets that are there are kept. Raises VigiaError."""
        with self._alone():
            self._write(wish)

    def _write(self, wish: ComposeWish) -> None:
        _loopback(wish)
        root = places.source_root()
        for part, user in USERS.items():
            self.folder(part).mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chown(self.folder(part), user, user)
            self.folder(part).chmod(0o700)  # a volume is there before
        self._certificates(wish)
        self._secrets(wish)
        here = self.site({NODE: ADDRESS})
        self._prometheus(here, root)
        self._stores(here, root)
        text = (root / "deploy/alertmanager/alertmanager.yml").read_text()
        self.put("alertmanager", "alertmanager.yml", sites.alertmanager(text, here))
        self._alertmanager_asks_for_a_password()
        policies = (root / "deploy/isolation-agent/policies.yaml").read_text()
        self.put("isolation-agent", "policies.yaml", policies)
        self._join(self.site(self.nodes()), SHORT if len(self.nodes()) > 1 else {})
        self._grafana(here, root, wish)
        self._own()

    def nodes(self) -> dict[str, str]:
        """Return the addresses of the nodes that there are: this machine, and the lab's while it is up."""
        found = {NODE: ADDRESS}
        present = state.read(naming.layout_of(LAB))
        if present is not None and present.phase == "up":
            found |= {node.name: str(node.agent) for node in present.lab.nodes}
        return found

    def join(self, site: Site, timing: Mapping[str, object]) -> None:
        """Write what depends on the nodes that there are."""
        with self._alone():
            self._join(site, timing)

    def _join(self, site: Site, timing: Mapping[str, object]) -> None:
        folder = self.folder("isolation-agent")
        tokens = {n: folder / ("enforcer.token" if n == NODE else "lab.token") for n in site.nodes}
        agent = sites.isolation_agent(site, Path("/var/lib/isolation-agent"), tokens)
        self.put("isolation-agent", "isolation-agent.yaml", agent)
        self.put(
            "vigia-compare",
            "compare.yaml",
            sites.compare(site, {**timing, "state": _EVIDENCE, "reload_token_file": "reload.token"}),
        )
        stack_files.write_targets(site, self.folder("prometheus") / "targets")
        self._own()

    def put(self, part: str, name: str, content: str) -> Path:
        """Put a file in place in one step, readable to the part's user and to nobody else."""
        path = self.folder(part) / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(fd, "w") as f:
            f.write(content)
        os.chown(new, USERS[part], USERS[part])
        new.replace(path)
        return path

    def _secrets(self, wish: ComposeWish) -> None:
        """Make what is missing: a token has the part that asks for it and the one that shows it."""
        shared = (
            ("webhook.token", "isolation-agent", "alertmanager"),
            ("api.token", "isolation-agent"),
            ("enforcer.token", "vigia-enforcer", "isolation-agent"),
            ("reload.token", "vigia-compare"),
            (_ALERTMANAGER, "prometheus", "alertmanager"),
            ("admin.password", "grafana"),
            ("admin.password", "influxdb"),
            ("admin.token", "influxdb"),
        )
        for name, *parts in shared:
            first = self.folder(parts[0]) / name
            value = first.read_text() if first.exists() else secrets.token_urlsafe(32) + "\n"
            if (name, *parts) == ("admin.password", "grafana") and wish.grafana_password:
                value = wish.grafana_password + "\n"
            for part in parts:
                self.put(part, name, value)

    def _certificates(self, wish: ComposeWish) -> None:
        """Issue what is missing; every part has a key of its own, and none has the authority's."""
        authority = self._root / "ca"
        lab = [str(node.agent) for node in model.resolve(topology.default()).nodes]
        hosts = dict.fromkeys(AGENT_PORTS, lab) | {"grafana": [wish.grafana_address]}
        if not wish.tls:
            shutil.rmtree(authority, ignore_errors=True)
        for part in _CERTIFIED:
            folder = self.folder(part) / "tls"
            shutil.rmtree(folder, ignore_errors=True)
            config = "{}\n"
            if wish.tls:
                issued = Authority.open(authority).issue(part, hosts.get(part, ()))
                for file in (authority / "ca.crt", issued.certificate, issued.key):
                    self.put(part, f"tls/{file.name}", file.read_text())
                config = issuing.web_config(issued)
            self.put(part, f"tls/{part}.web.yml", config)
        if wish.tls:
            authority.chmod(0o700)

    def _alertmanager_asks_for_a_password(self) -> None:
        folder, name = self.folder("alertmanager"), "tls/alertmanager.web.yml"
        config = passwords.web_config(folder / _ALERTMANAGER, (folder / name).read_text())
        self.put("alertmanager", name, config)

    def _prometheus(self, here: Site, root: Path) -> None:
        text = (root / "deploy/prometheus/prometheus.yml").read_text()
        self.put("prometheus", "prometheus.yml", sites.prometheus(text, here))
        (self.folder("prometheus") / "rules").mkdir(exist_ok=True)  # alert-rules/ is mounted there
        for part in ("prometheus", "alertmanager"):  # for the health checks in docker-compose.yml
            client = {"tls_config": here.credentials(part)} if here.tls else {}
            if part == "alertmanager":
                client |= passwords.basic_auth(self.folder(part) / _ALERTMANAGER)
            self.put(part, "client.yml", yaml.safe_dump(client))
            self.put(part, "url", f"{here.url(part)}\n")

    def _stores(self, here: Site, root: Path) -> None:
        """Write what the long-term stores read; neither can demand certificates of its clients."""
        scrape = yaml.safe_load((root / "deploy/victoria-metrics/scrape.yml").read_text())
        flags, config = "", {}
        if here.tls:
            tls = here.credentials("victoria-metrics")
            scrape["scrape_configs"][0] |= {"scheme": "https", "tls_config": tls}
            flags = f"-tls -tlsCertFile={tls['cert_file']} -tlsKeyFile={tls['key_file']}"
            files = here.credentials("influxdb")
            config = {"tls-cert": files["cert_file"], "tls-key": files["key_file"]}
        self.put("victoria-metrics", "scrape.yml", yaml.safe_dump(scrape, sort_keys=False))
        self.put("victoria-metrics", "flags", f"{flags}\n")
        self.put("influxdb", "config.yml", yaml.safe_dump(config))
        self.put("influxdb", "url", f"{here.scheme}://127.0.0.1:8086\n")

    def _grafana(self, here: Site, root: Path, wish: ComposeWish) -> None:
        shipped = root / "deploy/grafana"
        self.put("grafana", "grafana.ini", _ini((shipped / "grafana.ini").read_text(), here, wish))
        provider = (shipped / "provisioning/dashboards/vigia.yaml").read_text()
        self.put("grafana", "provisioning/dashboards/vigia.yaml", provider)
        self.put("grafana", "url", f"{here.scheme}://{wish.grafana_address}:3000\n")
        source = yaml.safe_load((shipped / "provisioning/datasources/prometheus.yaml").read_text())
        if here.tls:
            entry = source["datasources"][0]
            entry["url"] = here.url("prometheus")
            entry["jsonData"] |= {"tlsAuth": True, "tlsAuthWithCACert": True, "serverName": "prometheus"}
            files = here.credentials("grafana")
            names = {"tlsCACert": "ca_file", "tlsClientCert": "cert_file", "tlsClientKey": "key_file"}
            entry["secureJsonData"] = {key: f"$__file{{{files[name]}}}" for key, name in names.items()}
        self.put("grafana", "provisioning/datasources/prometheus.yaml", yaml.safe_dump(source))

    def _own(self) -> None:
        """Give every part its own folder and all that is in it."""
        for part, user in USERS.items():
            for path in self.folder(part).rglob("*"):
                if not path.is_mount():
                    os.chown(path, user, user, follow_symlinks=False)
                    path.chmod(0o500 if path.is_dir() else 0o400)


def _loopback(wish: ComposeWish) -> bool:
    """Whether Grafana is for this machine alone. Raises VigiaError for what cannot be."""
    try:
        loopback = ipaddress.ip_address(wish.grafana_address).is_loopback
    except ValueError as e:
        raise VigiaError(
            f'VIGIA_GRAFANA_ADDRESS "{wish.grafana_address}" is not an address; write for example 127.0.0.1'
        ) from e
    if not loopback and not wish.grafana_password:
        raise VigiaError(
            f"VIGIA_GRAFANA_ADDRESS {wish.grafana_address} is not loopback, so people have to sign in; "
            "set VIGIA_GRAFANA_PASSWORD, the password of admin"
        )
    return loopback


def _ini(shipped: str, here: Site, wish: ComposeWish) -> str:
    """Return grafana.ini: everybody may look on loopback; elsewhere one has to sign in."""
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(shipped)
    config["server"]["http_addr"] = wish.grafana_address
    config["auth.anonymous"]["enabled"] = str(_loopback(wish)).lower()
    if here.tls:
        files = here.credentials("grafana")
        config["server"].update(protocol="https", cert_file=files["cert_file"], cert_key=files["key_file"])
    text = io.StringIO()
    config.write(text)
    return text.getvalue()
