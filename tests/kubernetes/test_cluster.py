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
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from approvalkit import OWNER, OWNS, Alert, annotated, refused, waiting
from isolationkit import LIVES, Agent, Silence, audit, begun, ended, is_kept, limit_of
from kubekit import TOPOLOGY, Cluster, guide
from labkit import VIGIA, Machine, own_topology, run_vigia
from podkit import PEERS, PINGING, Pod, flood, narrow, overlay, steady, tunnelled
from sitekit import (
    actions,
    bought,
    brought,
    carried,
    enforcers,
    limited,
    limits,
    lose_alone,
    move,
    pods_probers,
    port_of,
    probers,
    sells_by_annotations,
    sent,
    whole_matrix,
)

import vigia_config
from vigia.host import commands
from vigia.lab import model
from vigia.lab.kubernetes.places import ClusterPlaces
from vigia.lab.topology import Topology
from vigia_testing import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]

NAME = "kubetest"
PATIENCE = 300.0
LIMIT = {"level": "L2", "seconds": 1800, "reason": "a test of the cluster"}


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


def test_a_cluster_that_was_killed_on_its_way_leaves_nothing(topology: Path) -> None:
    before = Machine.now(NAME)
    with subprocess.Popen(up(topology), stdout=subprocess.PIPE, text=True) as making:
        assert making.stdout is not None
        assert any("answers" in said for said in making.stdout), "it ended before it was killed"
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


HOST_PATHS: tuple[str, ...] = ("host", "host-to-pods", "nodeport", "local-pods", "service")
SECOND = "net-eth1"  # which the lab's CNI gives to every pod
POD_PATHS: tuple[str, ...] = ("pods", "pods-to-host", SECOND)
COMPARED = {"host-to-pods", "nodeport", "service", "pods", SECOND}


def test_paths_are_found_and_each_is_measured_beside_its_twin(cluster: Cluster) -> None:
    probers = [(f"{m.address}:9871", HOST_PATHS) for m in cluster.nodes]
    probers += [(at, POD_PATHS) for at in pods_probers(cluster)]
    for at, paths in probers:
        for path in paths:
            measured = partial(cluster.total, at, "vigia_probe_mesh_rtt_seconds_count", path=path)
            compared = partial(cluster.total, at, "vigia_probe_mesh_overlay_tax_seconds_count", path=path)
            eventually(measured, f"{path} from {at}", PATIENCE)
            if path in COMPARED:
                eventually(compared, f"{path} beside its twin from {at}", PATIENCE)
            else:
                assert compared() == 0
    for node in cluster.nodes:
        infos = cluster.metrics(f"{node.address}:9871", "vigia_path_info")
        found = {dict(i)["path"]: (dict(i)["dataplane"], dict(i)["encap"], dict(i)["mode"]) for i in infos}
        assert found["pods"] == ("linuxbridge", "none", "normal"), found
        assert found["service"] == ("linuxbridge", "none", "service")
        assert found["host"] == ("none", "none", "normal")
    for at in pods_probers(cluster):
        infos = cluster.metrics(at, "vigia_path_info", path=SECOND)
        assert [dict(i)["dataplane"] for i in infos] == ["macvlan"], infos


def test_what_a_second_network_loses_is_lost_there_alone(cluster: Cluster) -> None:
    lose_alone(cluster, SECOND, "fabric2")


def test_cluster_dns_and_the_api_server_are_probed(cluster: Cluster) -> None:
    for at in probers(cluster):
        for probe, past in (("cluster-dns", "dns"), ("api-server", "api-server")):
            for to in ("service", past):
                eventually(
                    lambda at=at, probe=probe, to=to: [  # type: ignore[misc]
                        labels
                        for labels, n in cluster.metrics(
                            at, "vigia_probe_received_total", probe=probe
                        ).items()
                        if n and dict(labels)["path"].endswith(f"-to-{to}")
                    ],
                    f"{probe} from {at}, path to {to}",
                    PATIENCE,
                )
        source = "pods" if at in pods_probers(cluster) else "host"
        for past in ("service", "dns"):
            path = f"{source}-to-{past}"
            assert cluster.total(at, "vigia_probe_dns_answer_records", path=path) == 1, path
        for past in ("service", "api-server"):
            path = f"{source}-to-{past}"
            assert cluster.total(at, "vigia_probe_http_status_code", path=path) == 200, path
        for phase in ("connect", "tls", "processing", "transfer"):
            assert cluster.total(at, "vigia_probe_http_phase_seconds_total", phase=phase) > 0
        for probe in ("cluster-dns", "api-server"):  # what the Service costs, beside the way past it
            eventually(
                lambda at=at, probe=probe: cluster.total(  # type: ignore[misc]
                    at, "vigia_probe_overlay_tax_seconds_count", probe=probe
                ),
                f"{probe} beside its twin from {at}",
                PATIENCE,
            )
            for past in ("dns", "api-server"):
                path = f"{source}-to-{past}"
                assert cluster.total(at, "vigia_probe_overlay_tax_seconds_count", path=path) == 0, path


def test_a_pods_namespace_is_its_tenant(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "red")
    to = cluster.nodes[1].address
    pods = [{"name": "web", "host": "false"}, {"name": "agent", "host": "true"}]
    for pod in pods:
        cluster.kubectl("apply", "-f", "-", stdin=PINGING % {**pod, "node": "node1", "to": to})
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


def test_what_cannot_be_a_guarantee_is_refused_with_its_path(cluster: Cluster) -> None:
    for spec, said in (
        ({}, "spec.send: Required value"),
        ({"send": {"rate": "fast"}}, "is not a rate; write for example 40M"),
        ({"send": {"rate": "40M", "ceiling": "1M"}}, "spec.send.ceiling"),
        ({"send": {"rate": "40M", "packetsPerSecond": 0}}, "spec.send.packetsPerSecond"),
        ({"send": {"rate": "40M"}, "receive": {"rate": 10}}, "spec.receive.rate"),
        ({"send": {"rate": "40M"}, "podSelector": {}}, "leave podSelector out for all pods"),
        (
            {"send": {"rate": "40M"}, "podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "In and NotIn need values",
        ),
    ):
        meta = {"name": "wrong", "namespace": "red"}
        item = {
            "apiVersion": "vigia.internal/v1alpha1",
            "kind": "NetworkGuarantee",
            "metadata": meta,
            "spec": spec,
        }
        argv = [str(cluster.places.bin / "kubectl"), "apply", "-f", "-"]
        done = commands.run(argv, stdin=json.dumps(item), check=False, timeout=60)
        assert done.status != 0 and said in done.stderr, done.stderr


def test_a_guarantee_is_in_force_at_the_pods_that_it_selects(cluster: Cluster) -> None:
    cluster.kubectl("-n", "red", "label", "pod", "web", "app=web")
    port = port_of(cluster, 0, "web")["port"]
    assert bought(cluster, port) == (5_000_000, 25_000_000, None), "its namespace's contract, of the values"
    cluster.type(guide("kubernetes guarantee"))
    assert bought(cluster, port) == (5_000_000, 25_000_000, 50_000)
    (item,) = cluster.objects("-n", "red", "networkguarantees")
    assert (item["status"]["selected"], item["status"]["applied"]) == (1, 1)
    reasons = {
        e["reason"]
        for e in cluster.objects("-n", "red", "events")
        if e["involvedObject"]["kind"] == "NetworkGuarantee"
    }
    assert {"Accepted", "InForce"} <= reasons


def test_a_change_is_in_force_before_the_kubelet_has_brought_it(cluster: Cluster) -> None:
    port, token = port_of(cluster, 0, "web")["port"], cluster.secret("vigia-enforcer-token")
    took, sooner = [], 0
    for i in range(1, 21):
        change = {"spec": {"send": {"rate": f"{40 + 8 * i}k", "ceiling": "200M"}}}
        cluster.kubectl(
            "-n", "red", "patch", "networkguarantee", "web", "--type=merge", "-p", json.dumps(change)
        )
        changed = time.monotonic()
        eventually(
            lambda i=i: bought(cluster, port, token)[:1] == (5000 + 1000 * i,),  # type: ignore[misc]
            lambda: str(bought(cluster, port, token)),
            PATIENCE,
        )
        took.append(time.monotonic() - changed)
        sooner += f"{40 + 8 * i}000bit" not in brought(cluster, "node1")
    sys.stderr.write(
        f"a change was in force after {sorted(took)[10]:.2f} s (median), {max(took):.2f} s (most)\n"
    )
    assert sooner >= 5, f"the kubelet was first {20 - sooner} times of 20: nothing follows the ConfigMap"


def test_a_missing_right_is_an_event_of_the_pod_with_its_fix(cluster: Cluster) -> None:
    """Guarantees that are known stay in force meanwhile."""
    port, token = port_of(cluster, 0, "web")["port"], cluster.secret("vigia-enforcer-token")
    role = "clusterrole/vigia-vigia-identity"
    rules = json.loads(cluster.kubectl("get", role, "-o", "json"))["rules"]
    fewer = [r for r in rules if "networkguarantees" not in r["resources"]]
    own, before = ["-n", "vigia", "events"], bought(cluster, port, token)

    def change(to: list[Any]) -> None:
        cluster.kubectl("patch", role, "--type=merge", "-p", json.dumps({"rules": to}))

    change(fewer)
    try:
        cluster.kubectl("-n", "vigia", "rollout", "restart", "deployment/vigia-identity")
        eventually(
            lambda: any(
                "/networkguarantees; grant it in its Role" in e["message"] for e in cluster.objects(*own)
            ),
            cluster.state,
            PATIENCE,
        )
        assert bought(cluster, port, token) == before
    finally:
        change(rules)


def test_what_is_missing_is_an_event_of_the_pod_with_its_fix(cluster: Cluster) -> None:
    """On a node, and of the site's programs, which have no token of the API server's; the others go on."""
    port = port_of(cluster, 0, "web")["port"]
    cluster.type(
        "helm upgrade vigia deploy/helm/vigia --namespace vigia --reuse-values "
        """--set-json 'exporter.config={"bpf": {"pin_dir": "/run/vigia/pins"}}' """
        """--set-json 'compare.config={"state": "nowhere.json"}' """
        """--set-json 'isolationAgent.config={"controller": {"tick": "soon"}}' """
        """--set-json 'alertmanager.people={"webhook_configs": [{"url": "nonsense"}]}'"""
    )
    wanted = {
        "vigia-exporter-": "bpf.pin_dir /run/vigia/pins is not on a bpffs; run: mount -t bpf bpf",
        "vigia-compare-": "state: ",
        "vigia-isolation-agent-": "controller.tick: ",
        "vigia-alertmanager-": "unsupported scheme",
    }
    try:
        for pod, said in wanted.items():
            eventually(
                lambda pod=pod, said=said: [  # type: ignore[misc]
                    e
                    for e in cluster.objects("-n", "vigia", "events", "--field-selector=reason=CannotRun")
                    if e["involvedObject"]["name"].startswith(pod) and said in e["message"]
                ],
                cluster.state,
                PATIENCE,
            )
        for prober in probers(cluster):
            grows(lambda prober=prober: sent(cluster, prober), f"probes of {prober}")  # type: ignore[misc]
        assert bought(cluster, port), "the enforcer goes on"
    finally:
        cluster.type("helm rollback vigia --namespace vigia --wait --timeout 10m")
    eventually(lambda: port_of(cluster, 0, "web"), "the exporter to be back", PATIENCE)


def test_annotations_and_values_are_contracts_where_nothing_else_was_bought(cluster: Cluster) -> None:
    """Annotations only once the operator has said so: a tenant may write its own pods."""
    port = port_of(cluster, 0, "web")["port"]
    cluster.kubectl("-n", "red", "annotate", "pod", "web", "kubernetes.io/egress-bandwidth=10M")
    cluster.kubectl("-n", "red", "delete", "networkguarantee", "web")
    values = (5_000_000, 25_000_000, None)
    eventually(lambda: bought(cluster, port) == values, lambda: str(bought(cluster, port)), PATIENCE)
    sells_by_annotations(cluster, True)
    marked = (1_250_000, 1_250_000, None)
    eventually(lambda: bought(cluster, port) == marked, lambda: str(bought(cluster, port)), PATIENCE)
    cluster.kubectl("-n", "red", "annotate", "pod", "web", "kubernetes.io/egress-bandwidth-")
    eventually(lambda: bought(cluster, port) == values, lambda: str(bought(cluster, port)), PATIENCE)
    sells_by_annotations(cluster, False)


def test_who_decides_by_an_annotation_and_who_does_not(cluster: Cluster) -> None:
    """Nobody from a tenant's own namespace, nobody in another's name, and nobody twice."""
    cluster.kubectl("apply", "-f", "-", stdin=OWNS)
    cluster.kubectl(
        "-n", "vigia", "create", "rolebinding", "approvers", "--role=vigia-approvals", "--user=alice"
    )
    agent, port = Agent(cluster), port_of(cluster, 0, "web")["port"]
    alert = Alert(cluster, port, alertgroup="first")
    eventually(lambda: alert.post("firing"), "the agent to take an alert", PATIENCE)
    (item,) = eventually(lambda: waiting(cluster), cluster.state, PATIENCE)
    name, spec = item["metadata"]["name"], item["spec"]
    assert (spec["tenant"], spec["pod"], spec["node"], spec["level"]) == ("red", "web", "node1", "L2")
    annotate = ["-n", "vigia", "annotate", "isolationaction", name]
    assert "forbidden" in refused(cluster, f"--as={OWNER}", *annotate, *annotated("approve", OWNER))
    forged = {**item, "metadata": {"name": name, "namespace": "red", "labels": item["metadata"]["labels"]}}
    forged["metadata"]["annotations"] = dict(a.split("=") for a in annotated("approve", OWNER))
    assert not refused(cluster, f"--as={OWNER}", "create", "-f", "-", stdin=json.dumps(forged)), "in its own"
    for verdict, by, said in (
        ("approve", "bob", "verdict-by is not who you are; write vigia.internal/verdict-by=alice"),
        ("perhaps", "alice", "neither approve nor reject"),
    ):
        assert said in refused(cluster, "--as=alice", *annotate, *annotated(verdict, by))
    other = [
        "-n",
        "vigia",
        "patch",
        "isolationaction",
        name,
        "--type=merge",
        "-p",
        '{"spec": {"node": "node2"}}',
    ]
    assert "vigia-identity alone makes" in refused(cluster, "--as=alice", *other)
    assert agent.ask(f"/v1/actions/{name}")["state"] == "pending_approval"
    cluster.kubectl("--as=alice", *annotate, *annotated("reject", "alice"))
    over = eventually(lambda: ended(agent, {"id": name}), "the verdict to be taken", PATIENCE)
    assert over["cause"] == "rejected" and over["approvals"][0]["who"].startswith("alice by kubernetes@")
    eventually(lambda: not waiting(cluster), "it to wait no more", PATIENCE)
    cluster.kubectl("-n", "red", "delete", "isolationaction", name)
    cluster.kubectl("-n", "vigia", "delete", "rolebinding", "approvers")


def test_what_is_approved_by_an_annotation_is_in_force(cluster: Cluster) -> None:
    agent, port = Agent(cluster), port_of(cluster, 0, "web")["port"]
    alert = Alert(cluster, port, alertgroup="second")
    eventually(lambda: alert.post("firing"), "the agent to take an alert", PATIENCE)
    (item,) = eventually(lambda: waiting(cluster), cluster.state, PATIENCE)
    action = {"id": item["metadata"]["name"]}
    cluster.type(guide("kubernetes approve"))

    def applied() -> dict[str, Any]:
        found: dict[str, Any] = agent.ask(f"/v1/actions/{action['id']}") or {}
        return found if found.get("applied_at") else {}

    done = eventually(applied, lambda: str(agent.ask(f"/v1/actions/{action['id']}")), PATIENCE)
    assert done["approved_by"].startswith("admin by kubernetes@")
    assert "seen in the console (annotation of IsolationAction vigia/" in done["approvals"][0]["comment"]
    assert alert.post("resolved")
    eventually(lambda: ended(agent, action), "the limit to end", PATIENCE)
    eventually(lambda: not waiting(cluster), "it to wait no more", PATIENCE)
    said = {
        e["reason"]
        for e in cluster.objects(
            "-n", "vigia", "events", "--field-selector=involvedObject.kind=IsolationAction"
        )
    }
    assert {"Approved", "Rejected"} <= said
    assert agent.ask("/v1/audit:verify")["ok"] is True


# Floods. The wire between the nodes is narrow meanwhile, so that a flood harms others.

WIRE, FLOOD, VICTIM = 40_000_000, 60_000_000, 1500


def scores(cluster: Cluster) -> str:
    """What there is to be known of floods, for messages."""
    seen = [cluster.metrics(f"{n.address}:9872", "vigia_port_flood_score") for n in cluster.nodes]
    return f"{seen} {cluster.alerts()} {[limits(cluster, i) for i in range(2)]}"


@pytest.fixture(scope="module")
def peers(cluster: Cluster) -> tuple[Pod, Pod]:
    """A victim's two pods, one on each node, and beside them a StatefulSet that has bought something."""
    cluster.kubectl("apply", "-f", "-", stdin=PEERS)
    for name, node in (("client", "node1"), ("server", "node2")):
        made = PINGING % {"name": name, "node": node, "host": "false", "to": "127.0.0.1"}
        cluster.kubectl("apply", "-f", "-", stdin=made.replace("namespace: red", "namespace: blue"))
    return Pod.find(cluster, "blue", "client"), Pod.find(cluster, "blue", "server")


def test_a_flood_across_nodes_is_limited_at_its_source_and_the_victim_goes_on(
    cluster: Cluster, peers: tuple[Pod, Pod]
) -> None:
    source = Pod.find(cluster, "red", "db-0")
    eventually(lambda: bought(cluster, source.port)[:1] == (1_000_000,), "its guarantee", PATIENCE)
    for network in ("routes", "vxlan"):
        with ExitStack() as until:
            until.enter_context(narrow(cluster, WIRE))
            if network == "vxlan":
                until.enter_context(overlay(cluster))
            with flood(source, peers[1].address, FLOOD, 240):
                eventually(lambda: limited(cluster, source), lambda: scores(cluster), PATIENCE)
                eventually(
                    lambda: actions(cluster) == {source.port: "node1"}, "its IsolationAction", PATIENCE
                )
                arrived = steady(*peers, VICTIM)
                assert limited(cluster, source), "it lasts as long as the flood"
            if network == "vxlan":
                assert tunnelled(cluster, "node1") > VICTIM
            sys.stderr.write(
                f"{network}: {arrived} of the victim's {VICTIM} packets arrived under the limit\n"
            )
            assert arrived >= 0.95 * VICTIM, network
            eventually(lambda: limits(cluster, 0) == {}, "the limit to end without evidence", PATIENCE)
            eventually(lambda: actions(cluster) == {}, "its IsolationAction to end", PATIENCE)
    said = {
        e["reason"]
        for e in cluster.objects("-n", "red", "events")
        if e["involvedObject"]["uid"] == source.uid
    }
    assert {"NetworkLimited", "NetworkReleased"} <= said


def test_a_limit_follows_a_statefulsets_pod_to_another_node(cluster: Cluster, peers: tuple[Pod, Pod]) -> None:
    """One that a person ordered for a while, so that no slow machine is late for it."""
    agent, first = Agent(cluster), Pod.find(cluster, "red", "db-0")
    eventually(lambda: bought(cluster, first.port)[:1] == (1_000_000,), "its guarantee", PATIENCE)
    order = {"node": first.node, "port": first.port, "tenant": "red", **LIMIT}
    action = eventually(lambda: agent.ask("/v1/actions", "POST", order), "an action", PATIENCE)
    eventually(lambda: limited(cluster, first), lambda: str(limits(cluster, 0)), PATIENCE)
    second = move(cluster, first, "node2")
    assert second.node == "node2"
    eventually(lambda: limited(cluster, second), lambda: scores(cluster), PATIENCE)
    eventually(lambda: actions(cluster) == {second.port: "node2"}, lambda: str(actions(cluster)), PATIENCE)
    old = agent.ask(f"/v1/actions/{action['id']}")
    assert (old["cause"], old["timeline"][-1]["event"]) == ("gone", "followed")
    new = agent.ask(f"/v1/actions/{old['timeline'][-1]['detail']['action']}")
    assert (new["node"], new["port"], new["ended_at"]) == ("node2", second.port, None)
    assert new["timeline"][0]["detail"]["port"] == first.port
    assert {"action.followed", "action.intent"} <= {r["event"] for r in audit(agent)}
    assert agent.ask("/v1/audit:verify")["ok"] is True
    assert limits(cluster, 0) == {}, "nothing is left where it was"
    eventually(lambda: agent.ask(f"/v1/actions/{new['id']}:revert", "POST"), "the order", PATIENCE)
    eventually(lambda: limits(cluster, 1) == {}, "the limit to end", PATIENCE)
    assert move(cluster, second, "node1").node == "node1"


def test_a_pod_that_floods_on_another_node_is_limited_there_and_leaves_nothing(
    cluster: Cluster, peers: tuple[Pod, Pod]
) -> None:
    first = Pod.find(cluster, "red", "db-0")
    with flood(first, peers[1].address, FLOOD, 240):
        eventually(lambda: limited(cluster, first), lambda: scores(cluster), PATIENCE)
        second = move(cluster, first, "node2")
    assert second.node == "node2"
    eventually(lambda: limits(cluster, 0) == {}, "the limit to go with the pod", PATIENCE)
    eventually(lambda: port_of(cluster, 0, "db-0") == {}, "the port to go with the pod", PATIENCE)
    with flood(second, peers[0].address, FLOOD, 240):
        eventually(lambda: limited(cluster, second), lambda: scores(cluster), PATIENCE)
        eventually(
            lambda: actions(cluster) == {second.port: "node2"}, lambda: str(actions(cluster)), PATIENCE
        )
        cluster.kubectl("-n", "red", "delete", "statefulset", "db", "--wait=true")
    eventually(lambda: limits(cluster, 1) == {}, "the limit to go with the pod", PATIENCE)
    eventually(lambda: actions(cluster) == {}, "its IsolationAction to go with the pod", PATIENCE)
    for node in range(2):
        eventually(lambda node=node: port_of(cluster, node, "db-0") == {}, "its port to go", PATIENCE)  # type: ignore[misc]


def test_upgrade_and_rollback_keep_counters_limits_and_audit(cluster: Cluster) -> None:
    agent = Agent(cluster)
    port = port_of(cluster, 0, "web")["port"]
    order = {"node": "node1", "port": port, "tenant": "red", **LIMIT}
    action, limit = begun(cluster, agent, order)
    records = audit(agent)
    assert any(action["id"] in json.dumps(r) for r in records)
    secrets = {
        s["metadata"]["name"]: s["data"]
        for s in cluster.objects("-n", "vigia", "secrets")
        if s["type"] == "Opaque"
    }
    counted = carried(cluster, 0, port)
    for step in ("kubernetes upgrade", "kubernetes rollback"):
        with Silence(agent) as silence:
            cluster.type(guide(step))
        again = eventually(lambda: carried(cluster, 0, port), "the exporter", PATIENCE)
        assert again >= counted > 0, step
        counted = again
        if silence.longest < LIVES * 2 / 3:
            eventually(
                lambda limit=limit: limit_of(cluster, port).get("id") == limit["id"],  # type: ignore[misc]
                lambda action=action: str(agent.ask(f"/v1/actions/{action['id']}")),  # type: ignore[misc]
                PATIENCE,
            )
        elif not limit_of(cluster, port):  # no machine for it: the kernel ended the limit, as it has to
            over = eventually(lambda action=action: ended(agent, action), "the action's end", PATIENCE)  # type: ignore[misc]
            assert over["cause"] == "ttl", step
            action, limit = begun(cluster, agent, order)
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


def test_a_limit_is_an_action_of_the_cluster_and_an_event_on_the_pod(cluster: Cluster) -> None:
    (action,) = eventually(
        lambda: cluster.objects("-n", "red", "isolationactions"), "an IsolationAction", PATIENCE
    )
    spec, limit = action["spec"], limit_of(cluster, port_of(cluster, 0, "web")["port"])
    assert (spec["pod"], spec["node"]) == ("web", "node1")
    assert spec["bitsPerSecond"] == limit["rate_bytes_per_second"] * 8
    said = [
        e["message"]
        for e in cluster.objects("-n", "red", "events")
        if e["involvedObject"]["name"] == "web" and e["reason"] == "NetworkLimited"
    ]
    assert said and all("limited to" in s and "on node1" in s for s in said)


def test_kubectl_says_how_all_is(cluster: Cluster) -> None:
    said = cluster.type(guide("kubernetes look"))
    for words in (
        "vigia-probe: 2 of 2 ready",
        "limited: red/web on node1",
        "host-to-pods",
        "linuxbridge",
        "µs",
    ):
        assert words in said, said
    paths = {p["name"]: p for p in json.loads(cluster.type("kubectl vigia paths --json"))}
    assert set(HOST_PATHS + POD_PATHS) | {"host-to-service", "pods-to-service"} <= set(paths)
    assert all(paths[p]["tax"] is not None for p in COMPARED | {"host-to-service", "pods-to-service"})
    assert json.loads(cluster.type("kubectl vigia top --json"))


def grows(read: Callable[[], float], what: str) -> None:
    before = read()
    eventually(lambda: read() > before, what, PATIENCE)


def test_without_the_api_server_probing_exporting_and_limits_go_on(cluster: Cluster) -> None:
    port = port_of(cluster, 0, "web")["port"]
    token, at = cluster.secret("vigia-enforcer-token"), probers(cluster)
    cluster.type(guide("kubernetes guarantee"))
    own = (5_000_000, 25_000_000, 50_000)
    assert bought(cluster, port, token) == own
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
        before = enforcers(cluster, 0)
        assert len(before) == 2, "the enforcer, and what follows the ConfigMap"
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: bought(cluster, port, token) == own, lambda: str(bought(cluster, port, token)), PATIENCE
        )
        eventually(lambda: len(enforcers(cluster, 0) - before) == 2, "both to be there again", PATIENCE)
        is_kept(cluster, port, token)
        assert not cluster.kubectl("get", "--raw", "/readyz", check=False)
    finally:
        (cluster.places.hold / "control-kube-apiserver").unlink()
    eventually(
        lambda: cluster.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API server", PATIENCE
    )
    # Kubelets that have missed it try again after half a minute, or when they start: no pod is the worse for that.
    for node in cluster.nodes:
        for pid in cluster.processes("kubelet", node):
            os.kill(pid, signal.SIGKILL)
    is_kept(cluster, port, token)


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
    kinds = "clusterroles,clusterrolebindings,priorityclasses,customresourcedefinitions"
    wide = cluster.objects(f"{kinds},validatingadmissionpolicies,validatingadmissionpolicybindings")
    assert [o["metadata"]["name"] for o in wide if "vigia" in o["metadata"]["name"]] == []
