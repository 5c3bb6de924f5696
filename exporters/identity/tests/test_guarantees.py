"""Guarantees as objects, through a server that answers as an API server and an enforcer do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import load
from vigia_identity.config import Config
from vigia_identity.guarantees import nodes
from vigia_identity.guarantees.pods import FIELDS
from vigia_identity.guarantees.quantities import bits, shown
from vigia_identity.looker import Looker
from vigia_testing import DEADLINE

Cloud = Any  # of conftest.py

LISTED = "/apis/vigia.internal/v1alpha1/networkguarantees"
ACTIONS = "/apis/vigia.internal/v1alpha1/isolationactions"
RED_PODS = "/api/v1/namespaces/red/pods"


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("40M", 40_000_000),
        ("1500k", 1_500_000),
        ("1Ki", 1024),
        (2000, 2000),
        ("0.5G", 500_000_000),
        ("1P", 10**15),
    ],
)
def test_rates_are_quantities(quantity: object, value: int) -> None:
    assert bits(quantity) == value


@pytest.mark.parametrize(
    "quantity", ["", "40 Mbit", "-1M", "999", "2P", "1e6", "0", "999999999999999999999M", None]
)
def test_what_is_no_rate_is_refused(quantity: object) -> None:
    with pytest.raises(ValueError, match=r"write (for example 40M|1k to 1P)"):
        bits(quantity)


def test_rates_for_people() -> None:
    assert [shown(v) for v in (40e6, 1.25e9, 999, 2e12)] == [
        "40 Mbit/s",
        "1.25 Gbit/s",
        "999 bit/s",
        "2 Tbit/s",
    ]


def guarantee(name: str, spec: dict[str, Any], created: int = 1, **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "red", "uid": f"uid-{name}", "generation": 3}
    meta["creationTimestamp"] = f"2026-01-0{created}T00:00:00Z"
    return {"metadata": meta, "spec": spec, "status": status}


def pod(name: str, *, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": more.get("namespace", "red"), "uid": f"u-{name}"}
    meta |= {"annotations": annotations, "labels": more.get("labels")}
    return {
        "metadata": meta,
        "spec": more.get("spec", {}),
        "status": more.get("status", {"phase": "Running"}),
    }


@pytest.fixture
def looker(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looker:
    monkeypatch.setattr("vigia_identity.looker.ENFORCER_SECONDS", DEADLINE)
    cloud.namespaces = [{"metadata": {"name": "red", "annotations": None}}]
    cloud.nodes = [{"metadata": {"name": "n1", "labels": {}}}]
    host, _, port = cloud.url.removeprefix("http://").partition(":")
    endpoint = {"addresses": [host], "nodeName": "n1", "conditions": {"ready": True}}
    cloud.slices = {"enforcer": [{"ports": [{"port": int(port)}], "endpoints": [endpoint]}]}
    cloud.objects = {LISTED: [], ACTIONS: [], "/api/v1/pods": [], RED_PODS: []}
    cloud.metrics = ""
    (tmp_path / "token").write_text(cloud.namespace_token)
    site = {
        "namespace": "vigia",
        "services": ["enforcer"],
        "config_map": "vigia-site",
        "guarantees": {"enforcers": "enforcer", "config_map": "vigia-contracts"},
    }
    kubernetes = {"url": cloud.url, "token_file": str(tmp_path / "token"), "ca_file": None, "site": site}
    path = tmp_path / "identity.yaml"
    path.write_text(
        yaml.safe_dump({"tenants_file": str(tmp_path / "tenants.yaml"), "kubernetes": kubernetes})
    )
    return Looker(load(path, Config))


def told(cloud: Cloud) -> list[dict[str, Any]]:
    contracts = yaml.safe_load(cloud.contracts["data"]["contracts.yaml"])
    assert contracts["version"] == 1
    found: list[dict[str, Any]] = contracts["contracts"]
    return found


def has(port: str, send: int, receive: int) -> str:
    name = "vigia_isolation_guarantee_bytes_per_second"
    rows = [("from_tenant", send), ("to_tenant", receive)]
    return "".join(f'{name}{{port="{port}",tenant="red",direction="{d}"}} {v / 8}\n' for d, v in rows)


def conditions(cloud: Cloud) -> dict[str, tuple[str, str, str]]:
    (status,) = [c[2]["status"] for c in cloud.changed if c[0] == "PATCH"]
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}


def test_a_namespaces_guarantee_is_a_contract_and_its_status_says_what_nodes_have(
    looker: Looker, cloud: Cloud
) -> None:
    spec = {
        "send": {"rate": "40M", "ceiling": "200M", "packetsPerSecond": 5000},
        "receive": {"rate": "80M"},
        "newFlowsPerSecond": 7,
    }
    cloud.objects[LISTED] = [guarantee("all", spec)]
    assert looker.once()
    assert told(cloud) == [
        {
            "tenant": "red",
            "guarantee": "40000000bit",
            "ceiling": "200000000bit",
            "packets_per_second": 5000,
            "receive": {"guarantee": "80000000bit", "ceiling": "80000000bit"},
            "new_flows_per_second": 7,
        }
    ]
    assert conditions(cloud)["Applied"][:2] == ("False", "NotInForce")
    cloud.changed.clear()
    cloud.metrics = has("u-web/eth0", 40_000_000, 80_000_000) + has("u-db/eth0", 1, 1)
    assert looker.once()
    assert conditions(cloud) == {
        "Accepted": ("True", "Accepted", "the enforcers are told of it"),
        "Applied": ("True", "InForce", "in force at 1 ports"),
    }
    events = [b for m, p, b in cloud.changed if p.endswith("/events")]
    assert {(e["reason"], e["type"], e["involvedObject"]["name"]) for e in events} == {
        ("Accepted", "Normal", "all"),
        ("InForce", "Normal", "all"),
    }
    # As the API server has it now: nothing is left to be said.
    (cloud.objects[LISTED][0]["status"],) = [c[2]["status"] for c in cloud.changed if c[0] == "PATCH"]
    cloud.changed.clear()
    assert looker.once() and cloud.changed == []


def test_selected_pods_have_contracts_of_their_own(looker: Looker, cloud: Cloud) -> None:
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"},
        {"key": "x", "operator": "NotIn", "values": ["y"]}, {"key": "z", "operator": "Exists"}]}  # fmt: skip
    cloud.objects[LISTED] = [guarantee("web", {"podSelector": selector, "send": {"rate": 8000}})]
    right = {"app": "web", "tier": "b", "z": ""}
    cloud.objects["/api/v1/pods"] = [
        pod("d", labels=right),
        pod("a", labels={**right, "x": "z"}),
        pod("b", labels=right, spec={"hostNetwork": True}),
        pod("c", labels=right, status={"phase": "Failed"}),
        pod("e", labels={**right, "app": "db"}),
        pod("f", labels={**right, "tier": "c"}),
        pod("g", labels={**right, "old": ""}),
        pod("h", labels={**right, "x": "y"}),
        pod("i", labels={"app": "web", "tier": "a"}),
        pod("j", labels=right, namespace="blue"),
        pod("k"),
    ]
    cloud.metrics = has("u-a/eth0", 8000, 8000)
    assert looker.once()
    assert [(c["port"], c["guarantee"], c["receive"]["ceiling"]) for c in told(cloud)] == [
        ("u-a/eth0", "8000bit", "8000bit"),
        ("u-d/eth0", "8000bit", "8000bit"),
    ]
    assert conditions(cloud)["Applied"] == ("False", "NotInForce", "in force at 1 of 2 pods")
    assert {"fieldSelector": [FIELDS]}.items() <= cloud.queries[cloud.asked.index("GET /api/v1/pods")].items()


def test_the_older_of_two_guarantees_holds(looker: Looker, cloud: Cloud) -> None:
    old = guarantee("old", {"send": {"rate": "10M"}}, created=1)
    new = guarantee("new", {"send": {"rate": "90M"}}, created=2)
    cloud.objects[LISTED] = [new, old]
    assert looker.once()
    assert [c["guarantee"] for c in told(cloud)] == ["10000000bit"]
    said = {p: b["status"]["conditions"][0] for m, p, b in cloud.changed if m == "PATCH"}
    (refused,) = [c for p, c in said.items() if "/new/" in p]
    assert (refused["status"], refused["reason"]) == ("False", "Conflict")
    assert "NetworkGuarantee old is older" in refused["message"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"send": {"rate": "fast"}}, "'fast' is not a rate"),
        ({"send": {"rate": "40M", "ceiling": "1M"}}, "the ceiling 1M is below the rate 40M"),
        (
            {"send": {"rate": "1M"}, "podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
            "podSelector has the operator 'Gt'; write In",
        ),
    ],
)
def test_what_the_schema_would_refuse_is_refused_here_as_well(
    looker: Looker, cloud: Cloud, spec: dict[str, Any], said: str
) -> None:
    cloud.objects[LISTED] = [guarantee("bad", spec)]
    assert looker.once()
    assert told(cloud) == []
    status, reason, message = conditions(cloud)["Accepted"]
    assert (status, reason) == ("False", "Invalid") and said in message


EGRESS, INGRESS = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"


def test_a_tenant_buys_nothing_by_annotating_its_pods(looker: Looker, cloud: Cloud) -> None:
    cloud.objects["/api/v1/pods"] = [pod("greedy", annotations={EGRESS: "1P", INGRESS: "1P"})]
    assert looker.once()
    assert told(cloud) == []
    cloud.objects[LISTED] = [guarantee("all", {"send": {"rate": "40M"}})]
    assert looker.once()
    assert [(c.get("port"), c["guarantee"]) for c in told(cloud)] == [(None, "40000000bit")]


def test_annotations_of_pods_are_contracts_where_the_operator_says_so(
    looker: Looker, cloud: Cloud, tmp_path: Path
) -> None:
    path = tmp_path / "identity.yaml"
    said = yaml.safe_load(path.read_text())
    said["kubernetes"]["site"]["guarantees"]["pod_annotations"] = True
    path.write_text(yaml.safe_dump(said))
    looker.prepare(load(path, Config))()
    pods = [
        pod("both", annotations={EGRESS: "10M", INGRESS: "20M"}),
        pod("one", annotations={INGRESS: "30M"}),
        pod("wrong", annotations={EGRESS: "much"}),
        pod("none"),
        pod("host", annotations={EGRESS: "10M"}, spec={"hostNetwork": True}),
    ]
    pods[0]["metadata"]["labels"] = {"a": "b"}
    cloud.objects["/api/v1/pods"] = pods
    cloud.objects[LISTED] = [
        guarantee("web", {"podSelector": {"matchLabels": {"a": "b"}}, "send": {"rate": "50M"}})
    ]
    assert looker.once()
    assert {c["port"]: (c["guarantee"], c["receive"]["guarantee"]) for c in told(cloud)} == {
        "u-both/eth0": ("50000000bit", "50000000bit"),
        "u-one/eth0": ("30000000bit", "30000000bit"),
    }
    cloud.objects[LISTED] = []
    assert looker.once()
    assert [c["ceiling"] for c in told(cloud) if c["port"] == "u-both/eth0"] == ["10000000bit"]


@pytest.mark.parametrize("missing", ["crd", "right"])
def test_without_resource_or_right_the_rest_goes_on_and_contracts_stay(
    looker: Looker, cloud: Cloud, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    cloud.objects[LISTED] = [guarantee("all", {"send": {"rate": "40M"}})]
    assert looker.once()
    before = told(cloud)
    cloud.namespaces.append({"metadata": {"name": "blue", "annotations": None}})
    if missing == "crd":
        del cloud.objects[LISTED]
    else:
        cloud.forbidden.add(f"GET {LISTED}")
    assert not looker.once()
    assert told(cloud) == before
    assert "blue" in cloud.config_map["data"]["tenants.yaml"]
    said = "".join(str(r.__dict__.get("err")) for r in caplog.records)
    assert ("kubectl apply" if missing == "crd" else "may not get or list") in said


@pytest.mark.parametrize("missing", ["crd", "right", "everything"])
def test_what_is_missing_is_an_event_of_the_own_pod_once(
    looker: Looker, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setenv("POD_NAME", "vigia-identity-7df9f8dcb4-j7lf4")
    monkeypatch.setenv("POD_UID", "u-own")
    if missing == "crd":
        del cloud.objects[LISTED]
    else:
        cloud.forbidden.add(f"GET {LISTED}" if missing == "right" else "GET /api/v1/namespaces")
    for _ in range(3):
        assert not looker.once()
    said = [b for m, p, b in cloud.changed if p == "/api/v1/namespaces/vigia/events"]
    assert len(said) == 1, "not again and again"
    assert said[0]["involvedObject"]["uid"] == "u-own" and said[0]["type"] == "Warning"
    assert ("kubectl apply" if missing == "crd" else "grant it in its Role") in said[0]["message"]
    assert cloud.namespace_token not in str(said)


def test_where_it_is_no_pod_it_makes_no_events(looker: Looker, cloud: Cloud) -> None:
    del cloud.objects[LISTED]
    assert not looker.once()
    assert cloud.changed == []


def test_status_is_unknown_while_no_enforcer_answers(looker: Looker, cloud: Cloud) -> None:
    cloud.objects[LISTED] = [guarantee("all", {"send": {"rate": "40M"}})]
    cloud.metrics = None
    assert looker.once()
    assert conditions(cloud)["Applied"] == ("Unknown", "NoEnforcer", "no enforcer answers")


LIMITED = """vigia_isolation_limit_bytes_per_second{port="u-web/eth0",tenant="red",direction="from_tenant",protocol="udp"} 5e+06
vigia_isolation_limit_expires_seconds{port="u-web/eth0",tenant="red"} 30
"""


def test_a_limit_is_an_action_with_events_on_the_pod(looker: Looker, cloud: Cloud) -> None:
    cloud.objects[RED_PODS] = [pod("web"), pod("db")]
    cloud.metrics = LIMITED
    assert looker.once()
    (made,) = [
        b for m, p, b in cloud.changed if m == "POST" and p.endswith("/namespaces/red/isolationactions")
    ]
    assert made["metadata"]["name"] == "web" and made["metadata"]["ownerReferences"][0]["uid"] == "u-web"
    spec = made["spec"]
    assert (spec["node"], spec["protocol"], spec["bitsPerSecond"]) == ("n1", "udp", 40_000_000)
    (event,) = [b for m, p, b in cloud.changed if p.endswith("/events")]
    assert event["involvedObject"]["uid"] == "u-web" and event["type"] == "Warning"
    assert event["message"] == f"udp limited to 40 Mbit/s on n1 by Vigia's isolation until {spec['expires']}"
    # The same limit is no news; another rate is; and its end is.
    cloud.objects[ACTIONS] = [made]
    cloud.changed.clear()
    assert looker.once() and cloud.changed == []
    cloud.metrics = LIMITED.replace("5e+06", "1e+06")
    assert looker.once()
    ((method, path, change),) = cloud.changed
    assert (method, path) == ("PATCH", "/apis/vigia.internal/v1alpha1/namespaces/red/isolationactions/web")
    assert change["spec"]["bitsPerSecond"] == 8_000_000
    cloud.changed.clear()
    cloud.metrics = None
    assert looker.once() and cloud.changed == [], "nobody knows what the node has"
    cloud.metrics = ""
    assert looker.once()
    assert [(m, p.rpartition("/")[2]) for m, p, _ in cloud.changed] == [("DELETE", "web"), ("POST", "events")]
    assert cloud.changed[1][2]["reason"] == "NetworkReleased"


def test_a_limit_of_a_pod_that_is_gone_is_no_action(looker: Looker, cloud: Cloud) -> None:
    cloud.metrics = LIMITED + LIMITED.replace("u-web/eth0", "p-red")
    assert looker.once() and cloud.changed == []


def test_pages_that_are_none_say_nothing() -> None:
    out = nodes.InForce()
    for page in (
        "",
        "vigia_isolation_limit_bytes_per_second 7",
        'vigia_isolation_limit_bytes_per_second{port="a} 1',
        "\x00",
    ):
        nodes._read(out, "n1", page)
    assert (out.guarantees, out.limits) == ({}, [])
