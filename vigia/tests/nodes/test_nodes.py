"""Campaigns across real nodes: two agents in namespaces of their own, joined by a wire, with certificates."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from labkit import ROOT
from portkit import free_port

import vigia_config
from vigia.campaign import folder, jobs
from vigia.campaign.hosts import LocalHost
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.nodes import agent, settings, topology
from vigia.nodes.testbed import NodesTestbed, connect
from vigia.nodes.topology import NodesTopology
from vigia.studies import catalogue
from vigia_config.tls import Tls
from vigia_testing import DEADLINE, eventually

VIGIA = Path(sys.executable).with_name("vigia")
PROBE = ROOT / "bin" / "vigia-probe"

# --- configuration ---

TLS = {"ca_file": "/t/ca.crt", "cert_file": "/t/a.crt", "key_file": "/t/a.key"}


def agent_file(**changes: Any) -> str:
    return json.dumps({"listen": "127.0.0.1", "networks": ["127.0.0.0/8"], **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listen": "0.0.0.0"}, '"0.0.0.0" can be reached from other machines and there is no tls'),
        ({"tls": {**TLS, "key_file": "a.key"}}, "is not an absolute path; write for example /etc/vigia/tls"),
        ({"networks": []}, "networks"),
        ({"namespaces": ["../etc"]}, "namespaces"),
        ({"port": 0}, "port"),
        ({"shell": "yes"}, "shell"),
        ({"clients": []}, "clients"),
    ],
)
def test_agent_configuration_that_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(agent_file(**changes))
    done = subprocess.run(
        [VIGIA, "node", "check-config", "--config", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "node.yaml:1" in done.stderr


def test_agent_configuration_that_is_good(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(agent_file(listen="0.0.0.0", tls=TLS))
    done = subprocess.run(
        [VIGIA, "node", "check-config", "--config", file], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{file}: agent at 0.0.0.0:9877\n", done.stderr
    (tmp_path / "served.yaml").write_text(agent_file(tls=TLS))
    served = subprocess.run(
        [VIGIA, "node", "serve", "--config", tmp_path / "served.yaml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert served.returncode == 1
    assert "tls.ca_file: /t/ca.crt: cannot be read" in served.stderr


HANGS = """
import sys, threading
from pathlib import Path
from vigia.nodes import server, settings
from vigia_service import logs, watchdog
logs.setup()
watchdog._LOOKS, watchdog._ANSWER_WITHIN = 150, 0.5
server.Watchdog = lambda hung: watchdog.Watchdog(hung, patience=15)
run = server.Server.run
def hang(self):
    self._ready.wait()
    self.loop.call_soon_threadsafe(threading.Event().wait)
def run_and_hang(self):
    threading.Thread(target=hang, args=(self,), daemon=True).start()
    run(self)
server.Server.run = run_and_hang
server.serve(settings.load(Path(sys.argv[1])))
"""


def test_an_agent_whose_web_server_hangs_ends(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(agent_file(port=free_port()))
    done = subprocess.run(
        [sys.executable, "-c", HANGS, file], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 1, done.stderr
    assert "the web server has not taken its turn" in done.stderr and "Timeout (" in done.stderr


def ends(*addresses: str) -> list[dict[str, str]]:
    return [{"node": a.split("/")[0], "address": a.split("/")[1]} for a in addresses]


def place(**changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "kind": "nodes",
        "name": "rack",
        "nodes": [{"name": n, "agent": f"http://127.0.0.1:{p}"} for n, p in (("a", 9), ("b", 10), ("c", 11))],
        "paths": [
            {"name": "direct", "ends": ends("a/10.0.0.1", "b/10.0.0.2")},
            {
                "name": "overlay",
                "ends": ends("a/10.1.0.1", "a/10.1.0.3", "b/10.1.0.2", "b/10.1.0.4", "b/10.1.0.6"),
            },
        ],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": [{"name": "a", "agent": "ftp://a"}]}, "agent"),
        ({"nodes": [{"name": "a", "agent": "https://a:9877"}] * 2, "tls": TLS}, '"a" is there twice'),
        (
            {"nodes": [{"name": "a", "agent": "https://a:9877"}]},
            "needs certificates; add tls at the top level",
        ),
        (
            {"paths": [{"name": "p", "ends": ends("a/10.0.0.1", "z/10.0.0.2")}]},
            '"z" is not a node; write one of a, b',
        ),
        ({"paths": [{"name": "p", "ends": ends("a/10.0.0.1")}]}, "ends"),
        (
            {"paths": [{"name": "p", "ends": ends("a/10.0.0.1", "b/10.0.0.2", "c/10.0.0.3")}]},
            "are on more than two nodes",
        ),
    ],
)
def test_topology_that_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(vigia_config.ConfigError, match=message):
        vigia_config.parse("rack.yaml", json.dumps(place(**changes)), NodesTopology)


def test_which_topologies_are_of_nodes() -> None:
    assert topology.describes_nodes("version: 1\nkind: nodes\nname: x\n")
    assert topology.describes_nodes("kind: 'nodes'  # real ones\n")
    assert not topology.describes_nodes("version: 1\nname: kind\nnodes: []\n  kind: nodes\n")
    for name in ("e1", "e2", "e3", "e4", "e5"):
        assert not topology.describes_nodes(catalogue.topology_text(name, None))


class Known:
    """A node that is only asked what it is."""

    def environment(self) -> dict[str, Any]:
        return {"kernel": "6.1"}


def test_pairs() -> None:
    found = vigia_config.parse("rack.yaml", json.dumps(place()), NodesTopology)
    testbed = NodesTestbed(found, dict.fromkeys("abc", Known()))  # type: ignore[arg-type]

    def shown(path: str, placement: str, n: int) -> list[tuple[str, str]]:
        return [
            (f"{x.node}/{x.address}", f"{y.node}/{y.address}") for x, y in testbed.pairs(path, placement, n)
        ]

    assert shown("direct", "cross-node", 4) == [("a/10.0.0.1", "b/10.0.0.2")] * 2, "the nodes take all"
    assert shown("overlay", "cross-node", 4) == [("a/10.1.0.1", "b/10.1.0.2"), ("a/10.1.0.3", "b/10.1.0.4")]
    assert shown("overlay", "same-node", 2) == [("a/10.1.0.1", "a/10.1.0.3")]
    for path, placement, machines, message in (
        ("overlay", "cross-node", 6, "has 2 cross-node connections and 3 are wanted; add ends"),
        ("direct", "same-node", 2, "has 0 same-node connections and 1 are wanted"),
        ("direct", "cross-node", 3, "3 machines make no pairs"),
        ("direct", "nearby", 2, '"nearby" is not a placement'),
        ("gre", "cross-node", 2, 'has no path "gre"; its paths are direct, overlay'),
    ):
        with pytest.raises(VigiaError, match=message):
            testbed.pairs(path, placement, machines)
    assert testbed.description["environments"]["a"] == {"kernel": "6.1"}
    e1 = next(c for c in catalogue.shipped() if c.name == "e1")
    with pytest.raises(VigiaError, match=r'campaign e1 cannot be run here: .* no path "ovs-vxlan"'):
        catalogue.check_testbed(e1, e1.plan("standard"), testbed)


def blocks(what: str) -> list[str]:
    """The guide's examples of one kind, without their indentation."""
    guide = (ROOT / "docs/how-to/real-nodes.md").read_text()
    found = re.findall(
        rf"^( *)<!-- test: {what} -->\n *```yaml\n(.*?)^ *```", guide, re.MULTILINE | re.DOTALL
    )
    return [textwrap.dedent(text) for _, text in found]


def test_examples_of_the_guide(tmp_path: Path) -> None:
    (text,) = blocks("agent")
    assert vigia_config.parse("node.yaml", text, settings.Agent).namespaces == ["probe-red"]
    found = [vigia_config.parse("rack.yaml", t, NodesTopology) for t in blocks("topology")]
    assert [t.name for t in found] == ["rack", "openstack", "kubernetes"]
    assert all(topology.describes_nodes(t) for t in blocks("topology"))
    for t in found:
        testbed = NodesTestbed(t, dict.fromkeys([n.name for n in t.nodes], Known()))  # type: ignore[arg-type]
        assert all(testbed.pairs(p.name, "cross-node", 2) for p in t.paths)
    (text,) = blocks("probe")
    (tmp_path / "probe.yaml").write_text(text)
    commands.run([str(PROBE), "check-config", f"--config={tmp_path / 'probe.yaml'}"])


# --- the agent's own checks ---


@pytest.fixture
def client() -> Iterator[FlaskClient]:
    config = settings.Agent(
        listen=ipaddress.IPv4Address("127.0.0.1"),
        networks=[ipaddress.IPv4Network("127.0.0.0/8")],
        namespaces=["known"],
        jobs=2,
    )
    host = LocalHost(PROBE)
    servers = agent.Servers(host, config.jobs)
    yield agent.create_app(config, host, servers).test_client()
    servers.close()


def ping(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "ping",
        "source": "127.0.0.1",
        "address": "127.0.0.1",
        "count": 2,
        "interval": 0.01,
        **changes,
    }


@pytest.mark.parametrize(
    ("path", "job", "status", "message"),
    [
        ("/v1/jobs", {"kind": "shell", "command": "id"}, 400, "shell"),
        ("/v1/jobs", ping(count=0), 400, "ping.count"),
        ("/v1/jobs", ping(extra="--flood"), 400, "ping.extra"),
        ("/v1/jobs", ping(address="-f"), 400, "ping.address"),
        (
            "/v1/jobs",
            ping(address="192.0.2.1"),
            403,
            "192.0.2.1 is in none of the networks of this agent: 127.0",
        ),
        (
            "/v1/jobs",
            ping(netns="other"),
            403,
            'namespace "other" is not among the namespaces of this agent: known',
        ),
        ("/v1/jobs", ping(netns="../../proc/1/ns/net"), 400, "netns"),
        ("/v1/jobs", ping(netns="known"), 500, "known"),
        ("/v1/jobs", {"kind": "iperf3-server", "address": "127.0.0.1", "port": 5300}, 400, "/v1/servers"),
        ("/v1/servers", ping(), 400, "ping is not a server"),
        ("/v1/servers", {"kind": "iperf3-server", "address": "127.0.0.1", "port": 22}, 400, "port"),
        ("/v1/other", ping(), 404, ""),
    ],
)
def test_requests_that_are_refused(
    client: FlaskClient, path: str, job: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post(path, data=json.dumps(job))
    assert (answer.status_code, message in answer.get_json()["error"]) == (status, True), answer.json


def test_body_is_bounded(client: FlaskClient) -> None:
    assert client.post("/v1/jobs", data=b" " * (agent.MAX_BODY + 1)).status_code == 413
    assert client.post("/v1/jobs", data=b"[" * agent.MAX_BODY).status_code == 400


def test_job_and_environment(client: FlaskClient) -> None:
    answer = client.post("/v1/jobs", data=json.dumps(ping()))
    assert answer.get_json()["output"].count("bytes from 127.0.0.1") == 2
    assert client.get("/v1/environment").get_json()["kernel"] == os.uname().release


def test_servers_replace_each_other_and_are_bounded(client: FlaskClient) -> None:
    def start(port: int) -> Any:
        job = {"kind": "iperf3-server", "address": "127.0.0.1", "port": port}
        return client.post("/v1/servers", data=json.dumps(job))

    first = start(5361).get_json()["number"]
    again = start(5361)  # as a campaign does that was killed and goes on
    assert again.status_code == 201, again.json
    assert client.delete(f"/v1/servers/{first}").status_code == 404
    assert start(5362).status_code == 201
    refused = start(5363)
    assert (refused.status_code, refused.json) == (
        503,
        {"error": "2 servers are at work; that is the bound (jobs)"},
    )
    assert client.delete(f"/v1/servers/{again.json['number']}").status_code == 204
    assert start(5363).status_code == 201


# --- two nodes ---


@dataclass
class Rack:
    """Two nodes and a guest on the second, in namespaces; campaigns are run on the first."""

    directory: Path
    tls: Path
    near: str
    topology: Path

    def vigia(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=300
        )

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.near, str(VIGIA), *arguments]

    def measuring(self, file: Path, out: Path) -> list[str]:
        """Arguments that measure a campaign's smoke size on these nodes."""
        where = ["--topology", str(self.topology), "--directory", str(out)]
        return ["campaign", "run", str(file), "--size", "smoke", *where]


def tls_of(folder: Path, part: str) -> dict[str, str]:
    return {
        "ca_file": f"{folder}/ca.crt",
        "cert_file": f"{folder}/{part}.crt",
        "key_file": f"{folder}/{part}.key",
    }


NEAR, FAR, GUEST = "10.98.0.1", "10.98.0.2", "10.98.1.2"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    directory = tmp_path_factory.mktemp("rack")
    near, far, guest = names = [f"vigia-test-rack-{n}-{os.getpid()}" for n in ("near", "far", "guest")]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for name in names:
            commands.run(["ip", "netns", "add", name])
        for peer, subnet, device in ((far, 0, "eth0"), (guest, 1, "eth1")):
            wire = ["type", "veth", "peer", "name", "eth0", "netns", peer]
            commands.run(["ip", "link", "add", device, "netns", near, *wire])
            for place, own, name in ((near, 1, device), (peer, 2, "eth0")):
                lines = [
                    f"addr add 10.98.{subnet}.{own}/24 dev {name}",
                    f"link set {name} up",
                    "link set lo up",
                ]
                commands.ip_batch(lines, netns=place)
        yield _start(directory, names, children)
    finally:
        for child in children:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for name in names:
            commands.run(["ip", "netns", "del", name], check=False)


def _start(directory: Path, names: list[str], children: list[subprocess.Popen[bytes]]) -> Rack:
    near, _, guest = names
    tls = directory / "tls"
    hosts = [f"--host={a}" for a in (NEAR, FAR)]
    parts = [f"--part={p}" for p in ("vigia", "vigia-node", "vigia-probe")]
    commands.run([str(VIGIA), "certs", "init", "--dir", str(tls), *hosts, *parts], timeout=300)
    for place, listen in zip(names, (NEAR, FAR), strict=False):
        file = directory / f"{listen}.yaml"
        config = {"listen": listen, "tls": tls_of(tls, "vigia-node"), "networks": ["10.98.0.0/16"]}
        file.write_text(json.dumps({**config, "namespaces": [guest], "probe": str(PROBE)}))
        log = directory / f"{listen}.log"
        children.append(
            commands.start([str(VIGIA), "node", "serve", "--config", str(file)], log=log, netns=place)
        )
    listeners = [{"netns": n, "address": f"{a}:862"} for n, a in zip(names, (NEAR, FAR, GUEST), strict=True)]
    reflector = {"listeners": listeners, "allow": ["10.98.0.0/16"], "max_rate": 100000}
    probe = directory / "probe.yaml"
    probe.write_text(json.dumps({"node": "rack", "reflector": reflector}))
    argv = [str(PROBE), "--config", str(probe), "--web.listen-address", "127.0.0.1:0"]
    children.append(commands.start(argv, log=directory / "probe.log"))
    there = {
        "version": 1,
        "kind": "nodes",
        "name": "rack",
        "tls": tls_of(tls, "vigia"),
        "nodes": [
            {"name": "near", "agent": f"https://{NEAR}:9877"},
            {"name": "far", "agent": f"https://{FAR}:9877"},
        ],
        "paths": [
            {"name": "direct", "ends": ends(f"near/{NEAR}", f"far/{FAR}")},
            {
                "name": "guest",
                "ends": [*ends("near/10.98.1.1"), {"node": "far", "address": GUEST, "netns": guest}],
            },
        ],
    }
    file = directory / "rack.yaml"
    file.write_text(
        "kind: nodes\n" + "".join(f"{k}: {json.dumps(v)}\n" for k, v in there.items() if k != "kind")
    )
    made = Rack(directory, tls, near, file)
    eventually(
        lambda: made.vigia("node", "status", "--topology", str(file)).returncode == 0, "the agents answer"
    )
    return made


def campaign(rack: Rack, study: str, factors: Mapping[str, Any], repetitions: int = 1, **more: Any) -> Path:
    file = rack.directory / f"{study}.yaml"
    settings = {
        "duration": "1s",
        "warm_up": "100ms",
        "threads": 1,
        "probes": 5,
        "interval": "20ms",
        "message": 1000,
    }
    small = {
        "designs": [{"factors": factors}],
        "stop": {"repetitions": repetitions},
        "settings": {**settings, "benchmark": 200, **more},
    }
    about = {
        "version": 1,
        "name": f"rack-{study}",
        "title": "Rack",
        "question": "Does it work?",
        "study": study,
    }
    file.write_text(json.dumps({**about, "topology": "e1", "smoke": small}))
    return file


OVERLAYS = {
    "path": ["direct", "guest"],
    "placement": ["cross-node"],
    "machines": [2],
    "protocol": ["udp"],
    "direction": ["one-way"],
    "rate": ["5Mbit"],
    "datagram": ["fits"],
}

pytestmark = pytest.mark.netns


def samples(f: folder.Folder, metric: str) -> list[float]:
    return [r["value"] for r in f.samples().to_pylist() if r["metric"] == metric and r["value"] is not None]


def test_campaign_across_nodes(rack: Rack) -> None:
    out = rack.directory / "measured"
    # What waits for a receiver when counting begins is counted, too: of five seconds it is little.
    file = campaign(rack, "overlays", OVERLAYS, duration="5s", interval="100ms")
    done = rack.vigia(*rack.measuring(file, out))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "rack: the agents of near, far answer" in done.stdout
    f = folder.latest(out, "rack-overlays")
    assert [(r.status, r.reason) for r in f.records] == [("done", "")] * 2
    assert len(samples(f, "throughput")) == 2
    assert all(0 < v < 5.5e6 for v in samples(f, "throughput")), "of what was sent, 5 Mbit/s, some arrived"
    probed = [r for r in f.samples().to_pylist() if r["metric"] == "rtt_application"]
    assert len(probed) == 2 * 50
    # On a busy machine answers come too late, and what the reflector says with the next one of when an answer left.
    assert 2 * 15 <= len(samples(f, "rtt_application")) <= 2 * 50
    assert 2 * 15 <= len(samples(f, "rtt")) <= 2 * 50
    assert all(0 < v < 5 for v in samples(f, "rtt"))
    described = json.loads((f.path / "manifest.json").read_text())["bed"]
    assert described["kind"] == "nodes"
    assert set(described["environments"]) == {"near", "far"}
    assert "key_file" not in json.dumps(described)
    report = rack.vigia("campaign", "report", str(f.path), "--no-pdf")
    assert report.returncode == 0, report.stderr


def test_other_studies_across_nodes(rack: Rack) -> None:
    out = rack.directory / "measured"
    for study, factors, wanted in (
        ("isolation", {"path": ["guest"]}, ("rtt_small", "rtt_saturated", "bandwidth", "small_packets")),
        ("managers", {"site": ["direct"], "benchmark": ["network", "linpack"]}, ("network", "linpack")),
        (
            "openflow",
            {"path": ["direct"], "match": ["none"], "size": [64], "rules": ["none"], "rewrite": ["none"]},
            ("rtt", "rtt_application"),
        ),
    ):
        file = campaign(rack, study, factors)
        done = rack.vigia(*rack.measuring(file, out))
        assert done.returncode == 0, done.stderr + done.stdout
        f = folder.latest(out, f"rack-{study}")
        assert [r.reason for r in f.records if r.status == "failed"] == []
        for metric in wanted:
            assert all(v > 0 for v in samples(f, metric)), metric
            assert samples(f, metric), metric


@pytest.mark.long  # in the lab it is in the short set
def test_killed_it_goes_on(rack: Rack) -> None:
    out = rack.directory / "killed"
    file = campaign(rack, "overlays", OVERLAYS, repetitions=2)
    run = rack.command(*rack.measuring(file, out))
    child = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: len(list(out.glob("*/runs/*.json"))) > 1, "a repetition is recorded", 120)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = rack.vigia("campaign", "resume", "rack-overlays", "--directory", str(out))
    assert done.returncode == 0, done.stderr + done.stdout
    f = folder.latest(out, "rack-overlays")
    assert [(r.status, r.reason) for r in f.records] == [("done", "")] * 4


def test_paths_that_are_not_there(rack: Rack) -> None:
    out = rack.directory / "refused"
    done = rack.vigia("campaign", "run", "e1", "--topology", str(rack.topology), "--directory", str(out))
    assert done.returncode == 1
    assert 'campaign e1 cannot be run here: topology rack has no path "ovs-vxlan"' in done.stderr


def test_rules_are_for_the_lab(rack: Rack) -> None:
    out = rack.directory / "rules"
    factors = {"path": ["direct"], "match": ["exact"], "size": [64], "rules": ["one"], "rewrite": ["none"]}
    file = campaign(rack, "openflow", factors)
    rack.vigia(*rack.measuring(file, out))
    (record,) = folder.latest(out, "rack-openflow").records
    assert record.reason == "rules are installed in the lab only; on real switches write match: none"


@pytest.mark.parametrize(
    ("certificate", "message"),
    [("vigia-probe", "certificates of vigia-probe send no jobs here; vigia may"), (None, "does not answer")],
)
def test_only_campaigns_send_jobs(rack: Rack, certificate: str | None, message: str) -> None:
    text = rack.topology.read_text()
    if certificate is None:  # plain HTTP
        text = text.replace("https:", "http:")
    else:
        text = text.replace("/vigia.crt", f"/{certificate}.crt").replace("/vigia.key", f"/{certificate}.key")
    other = rack.directory / "other.yaml"
    other.write_text(text)
    done = rack.vigia("node", "status", "--topology", str(other), "--json")
    assert done.returncode == 1
    assert all(message in n["error"] for n in json.loads(done.stdout)), done.stdout


def test_a_client_without_a_certificate_is_not_heard(rack: Rack) -> None:
    script = (
        "import httpx, ssl, sys\n"
        f"c = ssl.create_default_context(cafile={str(rack.tls / 'ca.crt')!r})\n"
        f"httpx.get('https://{FAR}:9877/v1/environment', verify=c)\n"
    )
    argv = ["ip", "netns", "exec", rack.near, sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "httpx." in done.stderr


def test_an_agent_that_is_away() -> None:
    there = place(nodes=[{"name": n, "agent": "http://127.0.0.1:1"} for n in "abc"])
    found = vigia_config.parse("rack.yaml", json.dumps(there), NodesTopology)
    with (
        connect(found) as hosts,
        pytest.raises(VigiaError, match=r"node a: its agent at http://127\.0\.0\.1:1 does not answer"),
    ):
        NodesTestbed(found, hosts)


def test_something_else_at_the_address(httpserver_port: Callable[[bytes], int]) -> None:
    for body, message in ((b"<html>", "is not a Vigia agent"), (b"[1]", "HTTP status 200")):
        port = httpserver_port(body)
        there = place(nodes=[{"name": n, "agent": f"http://127.0.0.1:{port}"} for n in "abc"])
        found = vigia_config.parse("rack.yaml", json.dumps(there), NodesTopology)
        with connect(found) as hosts, pytest.raises(VigiaError, match=message):
            NodesTestbed(found, hosts)


@pytest.fixture
def httpserver_port() -> Iterator[Callable[[bytes], int]]:
    """Start web servers that answer everything with one body."""
    import threading  # noqa: PLC0415
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: PLC0415

    started: list[ThreadingHTTPServer] = []

    def start(body: bytes) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        started.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return int(server.server_address[1])

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_certificates_of_another_authority(tmp_path: Path, rack: Rack) -> None:
    init = [str(VIGIA), "certs", "init", "--dir", str(tmp_path / "tls"), "--part", "vigia"]
    commands.run(init, timeout=300)
    text = rack.topology.read_text()
    other = rack.directory / "foreign.yaml"
    # The right authority to check the agents by, and a certificate that is not of it.
    for suffix in ("crt", "key"):
        text = text.replace(f"{rack.tls}/vigia.{suffix}", f"{tmp_path}/tls/vigia.{suffix}")
    other.write_text(text)
    done = rack.vigia("node", "status", "--topology", str(other), "--json")
    assert done.returncode == 1, "refused"
    assert all("does not answer" in n["error"] for n in json.loads(done.stdout)), done.stdout


def test_client_context_checks_names() -> None:
    assert settings.client_context(None) is True
    with pytest.raises(vigia_config.ConfigError, match=r"tls\.ca_file: /t/ca\.crt: cannot be read"):
        settings.client_context(Tls.model_validate(TLS))


def test_jobs_over_the_wire_are_as_they_were() -> None:
    job = jobs.Ping.model_validate(ping(netns="x"))
    assert jobs.adapter.validate_json(job.model_dump_json()) == job
