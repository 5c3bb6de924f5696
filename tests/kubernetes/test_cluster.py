"""docs/how-to/kubernetes.md on two real nodes: what is typed there, and what is promised there.

The tests are one story: each begins where the one before it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubekit import TOPOLOGY, Cluster, guide
from labkit import VIGIA, Machine, own_topology, run_vigia

import vigia_config
from vigia.lab import model
from vigia.lab.kubernetes.places import ClusterPlaces
from vigia.lab.topology import Topology
from vigia_testing import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]

NAME = "kubetest"
PATIENCE = 300.0
LIMIT = {"level": "L2", "seconds": 1800, "reason": "a test of the cluster"}

POD = """
apiVersion: v1
kind: Pod
metadata: {name: %(name)s, namespace: red}
spec:
  nodeName: %(node)s
  hostNetwork: %(host)s
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: lab.local/busybox:1
      command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do ping -c 1 -W 1 %(to)s > /dev/null; sleep 0.2 & wait $!; done"]
"""


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_topology(tmp_path_factory.mktemp("kubernetes"), NAME, "127.94.0.0/24", TOPOLOGY)


def up(topology: Path) -> list[str]:
    return [str(VIGIA), "lab", "up", "--cloud", "kubernetes", "--topology", str(topology)]


@pytest.fixture(scope="module")
def cluster(topology: Path) -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    lab = model.resolve(vigia_config.load(topology, Topology))
    try:
        subprocess.run(up(topology), check=True, timeout=7200)
        yield Cluster(lab)
    finally:
        done = run_vigia("lab", "down", "--lab", NAME, timeout=600)
        assert done.status == 0, done.stderr


def left() -> list[str]:
    """What a cluster leaves, beside what any lab does."""
    places = ClusterPlaces(model.resolve(vigia_config.load(TOPOLOGY, Topology)).layout)
    own = places.group.replace("kubernetes", NAME)
    found = [*Path("/sys/fs/cgroup").glob(f"*/{own}"), *Path("/var/lib/vigia").glob(f"lab-{NAME}")]
    return [str(p) for p in found]


@pytest.mark.parametrize("line", ["connected", "answers"])
def test_a_cluster_that_was_killed_on_its_way_leaves_nothing(topology: Path, line: str) -> None:
    before = Machine.now(NAME)
    with subprocess.Popen(up(topology), stdout=subprocess.PIPE, text=True) as making:
        assert making.stdout is not None
        assert any(line in said for said in making.stdout), "it ended before it was killed"
        making.kill()
    assert left(), "there is something to remove"
    done = run_vigia("lab", "down", "--lab", NAME, timeout=600)
    assert done.status == 0, done.stderr
    assert (left(), Machine.now(NAME)) == ([], before)


def test_the_nodes_are_real_and_ready(cluster: Cluster) -> None:
    versions = {n["metadata"]["name"]: n["status"]["nodeInfo"] for n in cluster.objects("nodes")}
    assert list(versions) == ["node1", "node2"]
    assert {v["kubeletVersion"] for v in versions.values()} == {"v1.34.1"}
    assert run_vigia("lab", "status", "--lab", NAME).status == 0


INSTALLED = {"at": 0.0}


def probers(cluster: Cluster) -> list[str]:
    """Where all probers are: one in the host's network and one in the pods' of each node."""
    found = []
    for service in ("vigia-probe", "vigia-probe-pods"):
        slices = cluster.objects(
            "-n", "vigia", "endpointslices", "-l", f"kubernetes.io/service-name={service}"
        )
        found += [f"{e['addresses'][0]}:9871" for one in slices for e in one.get("endpoints") or ()]
    return found


def whole_matrix(cluster: Cluster) -> bool:
    """Whether every prober has had answers from the other node's."""
    at = probers(cluster)
    return len(at) == 4 and all(cluster.total(p, "vigia_probe_mesh_rtt_seconds_count") > 0 for p in at)


def test_the_chart_is_installed_and_the_matrix_is_whole(cluster: Cluster) -> None:
    INSTALLED["at"] = time.monotonic()
    cluster.type(guide("kubernetes install"))
    eventually(lambda: whole_matrix(cluster), cluster.state, PATIENCE)
    sys.stderr.write(
        f"the first full matrix: {time.monotonic() - INSTALLED['at']:.1f} s after helm install began\n"
    )
    nodes = 'up{job=~"vigia-(probe|exporter|enforcer)"}'  # four programs on each of two nodes
    eventually(lambda: len(cluster.query(f"{nodes} == 1")) == 8, cluster.state, PATIENCE)
    eventually(lambda: cluster.query("up") and not cluster.query("up == 0"), cluster.state, PATIENCE)


def test_helm_test_passes(cluster: Cluster) -> None:
    said = cluster.type(guide("kubernetes test"))
    assert said.count("Phase:          Succeeded") == 3, said


def port_of(cluster: Cluster, node: int, pod: str) -> dict[str, str]:
    """What the exporter of a node says of a pod's port; empty while it knows none."""
    at = f"{cluster.nodes[node].address}:9872"
    found = [dict(labels) for labels in cluster.metrics(at, "vigia_port_info", tenant="red", workload=pod)]
    return found[0] if found else {}


def carried(cluster: Cluster, node: int, port: str) -> float:
    at = f"{cluster.nodes[node].address}:9872"
    return cluster.total(at, "vigia_port_bytes_total", port=port, direction="from_tenant")


def test_a_pods_namespace_is_its_tenant(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "red")
    to = cluster.nodes[1].address
    pods = [{"name": "web", "host": "false"}, {"name": "agent", "host": "true"}]
    for pod in pods:
        cluster.kubectl("apply", "-f", "-", stdin=POD % {**pod, "node": "node1", "to": to})
    cluster.kubectl("-n", "red", "wait", "pod", "--all", "--for=condition=Ready", "--timeout=120s")
    port = eventually(lambda: port_of(cluster, 0, "web"), "the pod's port", PATIENCE)
    uid = next(
        p["metadata"]["uid"] for p in cluster.objects("-n", "red", "pods") if p["metadata"]["name"] == "web"
    )
    assert (port["port"], port["source"], port["hook"]) == (f"{uid}/eth0", "cni", "tcx")
    eventually(lambda: carried(cluster, 0, port["port"]) > 0, "the pod's bytes", PATIENCE)
    # A pod in the host's network has no port, and no port is nobody's.
    assert port_of(cluster, 0, "agent") == {}
    assert cluster.total(f"{cluster.nodes[0].address}:9872", "vigia_exporter_ports", state="unresolved") == 0


class Agent:
    """The isolation agent's API, as an operator uses it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._token = cluster.secret("vigia-api-token")

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        url = f"http://{self._cluster.address('vigia-isolation-agent')}{path}"
        said = self._cluster.http(url, token=self._token, method=method, body=body)
        return json.loads(said) if said else None


def limit_of(cluster: Cluster, port: str, token: str = "") -> dict[str, Any]:
    """The limit that the first node's enforcer has at a port; empty without one, or while nobody answers."""
    url = f"http://{cluster.nodes[0].address}:9873/v1/state"
    said = cluster.http(url, token=token or cluster.secret("vigia-enforcer-token"))
    ports = json.loads(said)["ports"] if said else []
    found: list[dict[str, Any]] = [p["limit"] for p in ports if p["port"] == port and p.get("limit")]
    return found[0] if found else {}


def is_kept(cluster: Cluster, port: str, token: str) -> None:
    """Wait until the isolation agent extends the limit at a port: it has longer to live than it had."""
    least = [float("inf")]

    def extended() -> bool:
        left_over = limit_of(cluster, port, token).get("expires_in_seconds")
        if left_over is None:
            return False
        least[0] = min(least[0], left_over)
        return bool(left_over > least[0])

    eventually(extended, "the limit to be extended", PATIENCE)


def audit(agent: Agent) -> list[Any]:
    page = agent.ask("/v1/audit?from=1&limit=1000")
    return list(page["records"]) if page else []


def test_upgrade_and_rollback_keep_counters_limits_and_audit(cluster: Cluster) -> None:
    agent = Agent(cluster)
    port = port_of(cluster, 0, "web")["port"]
    order = {"node": "node1", "port": port, "tenant": "red", **LIMIT}
    action = eventually(
        lambda: agent.ask("/v1/actions", "POST", order), "the agent to begin an action", PATIENCE
    )
    limit = eventually(lambda: limit_of(cluster, port), "the limit", PATIENCE)
    records = audit(agent)
    assert any(action["id"] in json.dumps(r) for r in records)
    secrets = {
        s["metadata"]["name"]: s["data"]
        for s in cluster.objects("-n", "vigia", "secrets")
        if s["type"] == "Opaque"
    }
    counted = carried(cluster, 0, port)
    for step in ("kubernetes upgrade", "kubernetes rollback"):
        cluster.type(guide(step))
        again = eventually(lambda: carried(cluster, 0, port), "the exporter", PATIENCE)
        assert again >= counted > 0, step
        counted = again
        eventually(
            lambda: limit_of(cluster, port).get("id") == limit["id"],
            lambda: str(agent.ask(f"/v1/actions/{action['id']}")),
            PATIENCE,
        )
        is_kept(cluster, port, cluster.secret("vigia-enforcer-token"))
        kept = eventually(lambda: audit(agent), "the agent", PATIENCE)
        assert kept[: len(records)] == records, step
        assert agent.ask("/v1/audit:verify")["ok"] is True, step
    now = {
        s["metadata"]["name"]: s["data"]
        for s in cluster.objects("-n", "vigia", "secrets")
        if s["type"] == "Opaque"
    }
    assert now == secrets


def sent(cluster: Cluster, at: str) -> float:
    return cluster.total(at, "vigia_probe_mesh_sent_total")


def grows(read: Callable[[], float], what: str) -> None:
    before = read()
    eventually(lambda: read() > before, what, PATIENCE)


def test_without_the_api_server_probing_exporting_and_limits_go_on(cluster: Cluster) -> None:
    port = port_of(cluster, 0, "web")["port"]
    token, at = cluster.secret("vigia-enforcer-token"), probers(cluster)
    (cluster.places.hold / "control-kube-apiserver").touch()
    try:
        for pid in cluster.processes("kube-apiserver"):
            os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: not cluster.kubectl("get", "--raw", "/readyz", check=False), "the API server to be away"
        )
        for prober in at:
            grows(lambda prober=prober: sent(cluster, prober), f"probes of {prober}")  # type: ignore[misc]
        grows(lambda: carried(cluster, 0, port), "the pod's bytes")
        is_kept(cluster, port, token)
        assert not cluster.kubectl("get", "--raw", "/readyz", check=False)
    finally:
        (cluster.places.hold / "control-kube-apiserver").unlink()
    eventually(
        lambda: cluster.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API server", PATIENCE
    )


def test_a_cordoned_and_drained_node_is_still_measured(cluster: Cluster) -> None:
    cluster.type(guide("kubernetes drain"))
    try:
        assert {
            p["spec"]["nodeName"]
            for p in cluster.objects("-n", "vigia", "pods", "-l", "app.kubernetes.io/component=probe")
        } == {"node1", "node2"}
        for prober in probers(cluster):
            grows(lambda prober=prober: sent(cluster, prober), f"probes of {prober}")  # type: ignore[misc]
        down = {
            a for a in cluster.alerts() if a[0] in ("VigiaNodeDown", "VigiaUnreachable", "VigiaProbeDown")
        }
        assert down == set(), "a node without work is not a node that is down"
    finally:
        cluster.type(guide("kubernetes uncordon"))


def test_a_node_that_reboots_is_named_and_comes_back(cluster: Cluster) -> None:
    eventually(lambda: cluster.query("up"), "Prometheus", PATIENCE)
    cluster.power_off("node2")
    try:
        eventually(
            lambda: ("VigiaNodeDown", "node2") in cluster.alerts(), lambda: str(cluster.alerts()), PATIENCE
        )
        assert {node for name, node in cluster.alerts() if name == "VigiaNodeDown"} == {"node2"}
    finally:
        cluster.power_on("node2")
    eventually(lambda: whole_matrix(cluster), cluster.state, PATIENCE)
    eventually(
        lambda: ("VigiaNodeDown", "node2") not in cluster.alerts(), lambda: str(cluster.alerts()), PATIENCE
    )


def test_uninstall_leaves_what_the_guide_says_and_nothing_else(cluster: Cluster) -> None:
    cluster.type(guide("kubernetes uninstall"))
    eventually(lambda: not cluster.objects("-n", "vigia", "pods"), cluster.state, PATIENCE)
    kinds = "all,configmap,secret,persistentvolumeclaim,networkpolicy,poddisruptionbudget,serviceaccount,role,rolebinding"
    kept = sorted(f"{o['kind']}/{o['metadata']['name']}" for o in cluster.objects("-n", "vigia", kinds))
    own = [k for k in kept if k not in ("ConfigMap/kube-root-ca.crt", "ServiceAccount/default")]
    assert own == []
    wide = cluster.objects("clusterroles,clusterrolebindings,priorityclasses")
    assert [o["metadata"]["name"] for o in wide if "vigia" in o["metadata"]["name"]] == []
