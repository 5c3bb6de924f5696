"""kubectl vigia: what it asks of kubectl, and what it makes of the answers."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vigia.cli import kubectl
from vigia.errors import VigiaError
from vigia.kubectl import paths
from vigia.kubectl.release import Release

Cluster = Any  # of conftest.py


def run(*words: str) -> Result:
    return CliRunner().invoke(kubectl.command, list(words))


def workload(kind: str, name: str, ready: int, wanted: int) -> dict[str, Any]:
    status = (
        {"numberReady": ready, "desiredNumberScheduled": wanted}
        if kind == "DaemonSet"
        else {"readyReplicas": ready}
    )
    return {"kind": kind, "metadata": {"name": name}, "spec": {"replicas": wanted}, "status": status}


WORKLOADS = "daemonsets,deployments,statefulsets"


@pytest.fixture
def well(cluster: Cluster) -> Cluster:
    cluster.get = {
        WORKLOADS: [
            workload("DaemonSet", "vigia-probe", 2, 2),
            workload("Deployment", "vigia-compare", 1, 1),
        ],
        "networkguarantees.vigia.internal": [],
        "isolationactions.vigia.internal": [],
    }
    cluster.save()
    return cluster


def test_a_release_that_is_well(well: Cluster) -> None:
    done = run("status")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == ["vigia-compare: 1 of 1 ready", "vigia-probe: 2 of 2 ready"]
    asked = well.asked[0]
    assert asked[asked.index("--namespace") + 1] == "vigia" and "app.kubernetes.io/name=vigia" in asked


def test_what_is_wrong_is_said(well: Cluster) -> None:
    well.get[WORKLOADS][0]["status"]["numberReady"] = 1
    condition = {"type": "Applied", "status": "False", "message": "in force at 1 of 2 pods"}
    met = {
        "metadata": {"name": "a", "namespace": "red"},
        "status": {"conditions": [{**condition, "status": "True"}]},
    }
    unmet = {"metadata": {"name": "web", "namespace": "red"}, "status": {"conditions": [condition]}}
    well.get["networkguarantees.vigia.internal"] = [met, unmet]
    spec = {
        "pod": "web",
        "node": "n1",
        "protocol": "udp",
        "bitsPerSecond": 40_000_000,
        "expires": "2026-01-01T00:00:30Z",
    }
    well.get["isolationactions.vigia.internal"] = [{"metadata": {"namespace": "red"}, "spec": spec}]
    well.alerts = [{"alertname": "VigiaNodeDown", "node": "n2"}]
    well.save()
    done = run("status")
    assert done.exit_code == 1
    assert done.output.splitlines()[1:] == [
        "vigia-probe: 1 of 2 ready",
        "not in force: red/web: in force at 1 of 2 pods",
        "limited: red/web on n1: udp to 40 Mbit/s until 2026-01-01T00:00:30Z",
        "firing: VigiaNodeDown node=n2",
    ]
    assert json.loads(run("status", "--json").output)["well"] is False


def test_what_cannot_be_asked_is_said_and_the_rest_is_there(well: Cluster) -> None:
    well.ports = {}
    del well.get["isolationactions.vigia.internal"]
    well.save()
    done = run("status")
    assert done.exit_code == 0
    said = done.output
    assert "not known: isolationactions.vigia.internal: " in said and "doesn't have a resource type" in said
    assert (
        "not known: alerts: kubectl cannot reach port 9090 of service/vigia-prometheus: error: services"
        in said
    )


def test_another_cluster_and_namespace_are_passed_on(well: Cluster) -> None:
    assert run("--context", "far", "-n", "watch", "--release", "eyes-vigia", "status").exit_code == 0
    assert all(a[:2] == ["--context", "far"] for a in well.asked)
    assert "service/eyes-vigia-prometheus" in well.asked[-1] and "watch" in well.asked[-1]


def test_without_a_release_it_says_so(well: Cluster) -> None:
    well.get[WORKLOADS] = []
    well.save()
    done = run("status")
    assert isinstance(done.exception, VigiaError) or done.exit_code == 1
    assert "there is no release of the chart vigia in namespace vigia" in f"{done.exception}{done.output}"


def test_paths(well: Cluster) -> None:
    host, pods = {"path": "host"}, {"path": "host-to-pods"}
    well.queries = {
        "histogram_quantile(0.5, sum by (path) (rate(vigia_probe_mesh_overlay": [(pods, 41e-6)],
        "histogram_quantile(0.5": [(host, 15e-6), (pods, 0.0021)],
        "histogram_quantile(0.99": [(host, 1.5), (pods, math.nan)],
        "lost_total": [(host, 0.0), (pods, 0.125)],
        "count by (path)": [(host, 2)],
        "group by": [({**pods, "dataplane": "linuxbridge", "encap": "vxlan", "mode": "normal"}, 1)],
    }
    done = run("paths")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert lines[0] == " ".join(paths.HEADER)
    assert lines[-2:] == ["host 2 15 µs 1.5 s 0.00%", "host-to-pods linuxbridge, vxlan 2.1 ms 12.50% 41 µs"]
    found = {p["name"]: p for p in json.loads(run("paths", "--json").output)}
    assert found["host"]["tax"] is None and found["host-to-pods"]["tax"] == 41e-6


def test_a_prometheus_without_paths_says_so(well: Cluster) -> None:
    done = run("paths")
    assert done.exit_code == 1 and "knows no path yet" in f"{done.exception}{done.output}"


def prober(name: str, node: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}}


def test_explain_asks_probers_of_a_node(well: Cluster) -> None:
    label = "app.kubernetes.io/name=vigia,app.kubernetes.io/component="
    well.get |= {
        "secret": base64.b64encode(b"a token of the agent").decode(),
        f"pods {label}probe": [prober("probe-a", "n1"), prober("probe-b", "n2")],
        f"pods {label}probe-pods": [prober("pods-a", "n1")],
    }
    (port,) = set(well.ports.values())
    well.ports |= {"pod/probe-a": port, "pod/pods-a": port}
    well.pages = {"/v1/moments": {"node": "n1", "moments": [], "good": []}}
    well.save()
    done = run("explain", "host", "--src", "n1")
    assert "has a record of host" in f"{done.exception}{done.output}"
    forwarded = [a[-2] for a in well.asked if "port-forward" in a]
    assert forwarded[2:] == ["pod/probe-a", "pod/pods-a"] and "pod/probe-b" not in forwarded
    done = run("explain", "host", "--src", "n9")
    assert "there is no prober on node n9" in f"{done.exception}{done.output}"


@pytest.mark.parametrize("said", ["nonsense", "[]", "{}"])
def test_answers_of_kubectl_that_are_none(well: Cluster, said: str) -> None:
    well.get[WORKLOADS] = said
    well.save()
    with pytest.raises(VigiaError, match="does not answer with a list"):
        Release().own(WORKLOADS)


def test_a_secret_without_a_token(well: Cluster) -> None:
    well.get["secret"] = "%%%"
    well.save()
    with pytest.raises(VigiaError, match="Secret vigia-api-token has no token"):
        Release().token("api-token")
