"""Vigia's own pods, found through a server that answers as an API server does, and put into a ConfigMap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import load
from vigia_identity import config_map
from vigia_identity.config import Config
from vigia_identity.looker import Looker

Cloud = Any  # of conftest.py

PATCHED = "PATCH /api/v1/namespaces/vigia/configmaps/vigia-site"


def node(name: str, **labels: str) -> dict[str, Any]:
    shown = {"zone": "topology.kubernetes.io/zone", "rack": "topology.kubernetes.io/rack"}
    return {"metadata": {"name": name, "labels": {shown[k]: v for k, v in labels.items()} or None}}


def endpoint(node: str, address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "nodeName": node, "conditions": {"ready": True, **conditions}}


def part(port: int | None, *endpoints: dict[str, Any]) -> dict[str, Any]:
    return {"addressType": "IPv4", "ports": [{"name": "p", "port": port}], "endpoints": list(endpoints)}


@pytest.fixture
def looker(cloud: Cloud, tmp_path: Path) -> Looker:
    cloud.namespaces = [{"metadata": {"name": "red", "annotations": None}}]
    cloud.nodes = [node("n1", zone="z1", rack="r1"), node("n2", zone="z1"), node("n3")]
    (tmp_path / "token").write_text(cloud.namespace_token)
    path = tmp_path / "identity.yaml"
    site = {"namespace": "vigia", "services": ["probe", "enforcer"], "config_map": "vigia-site"}
    kubernetes = {"url": cloud.url, "token_file": str(tmp_path / "token"), "ca_file": None, "site": site}
    path.write_text(
        yaml.safe_dump({"tenants_file": str(tmp_path / "tenants.yaml"), "kubernetes": kubernetes})
    )
    return Looker(load(path, Config))


def groups(cloud: Cloud, service: str) -> list[Any]:
    found: list[Any] = json.loads(cloud.config_map["data"][f"{service}.json"])
    return found


def test_pods_are_found_by_their_services_and_nodes_by_their_labels(looker: Looker, cloud: Cloud) -> None:
    cloud.slices = {
        "probe": [part(8620, endpoint("n2", "10.0.0.2"), endpoint("n1", "10.0.0.1")), part(8620, endpoint("n3", "10.0.0.3"))],
        "enforcer": [part(9873, endpoint("n1", "10.0.0.1", ready=False))],
    }  # fmt: skip
    assert looker.once()
    assert groups(cloud, "probe") == [
        {"targets": ["10.0.0.1:8620"], "labels": {"node": "n1", "zone": "z1", "rack": "r1"}},
        {"targets": ["10.0.0.2:8620"], "labels": {"node": "n2", "zone": "z1"}},
        {"targets": ["10.0.0.3:8620"], "labels": {"node": "n3"}},
    ]
    assert [g["targets"] for g in groups(cloud, "enforcer")] == [["10.0.0.1:9873"]], (
        "not ready yet, and there"
    )
    assert yaml.safe_load(cloud.config_map["data"]["tenants.yaml"])["tenants"] == [
        {"id": "red", "name": "red"}
    ]
    assert cloud.asked.count("GET /api/v1/nodes") == 2, "page by page"


def test_one_pod_stands_for_its_node(looker: Looker, cloud: Cloud) -> None:
    going, coming = endpoint("n1", "10.0.0.9", terminating=True), endpoint("n1", "10.0.0.1", ready=False)
    twice = endpoint("n2", "10.0.0.5", ready=False), endpoint("n2", "10.0.0.7")
    six, alone = endpoint("n2", "2001:db8::2"), endpoint("n3", "2001:db8::3")
    unknown = endpoint("removed", "10.0.0.8"), endpoint("", "10.0.0.6")
    cloud.slices = {
        "probe": [part(8620, going, coming, *twice), part(8620, six, alone), part(8620, *unknown)]
    }
    assert looker.once()
    found = {g["labels"]["node"]: g["targets"] for g in groups(cloud, "probe")}
    assert found == {"n1": ["10.0.0.1:8620"], "n2": ["10.0.0.7:8620"], "n3": ["[2001:db8::3]:8620"]}


def test_a_node_that_leaves_is_gone_and_what_stays_is_not_written_again(looker: Looker, cloud: Cloud) -> None:
    cloud.slices = {"probe": [part(8620, endpoint("n1", "10.0.0.1"), endpoint("n2", "10.0.0.2"))]}
    assert looker.once() and looker.once()
    assert cloud.asked.count(PATCHED) == 1, "the second look found nothing new"
    cloud.nodes.pop(1)
    assert looker.once()
    assert [g["labels"]["node"] for g in groups(cloud, "probe")] == ["n1"]
    cloud.config_map["data"]["probe.json"] = "[]"
    assert looker.once()
    assert len(groups(cloud, "probe")) == 1, "what somebody else wrote is put right"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("GET /api/v1/nodes", "may not get or list /api/v1/nodes; grant it"),
        (
            "GET /apis/discovery.k8s.io/v1/namespaces/vigia/endpointslices",
            "may not get or list /apis/discovery",
        ),
        (PATCHED, "may not patch /api/v1/namespaces/vigia/configmaps/vigia-site; grant it"),
    ],
)
def test_a_missing_right_is_named_and_what_was_known_stays(
    looker: Looker, cloud: Cloud, caplog: pytest.LogCaptureFixture, request_: str, said: str
) -> None:
    cloud.slices = {"probe": [part(8620, endpoint("n1", "10.0.0.1"))]}
    assert looker.once()
    before = dict(cloud.config_map["data"])
    cloud.slices = {}
    cloud.forbidden.add(request_)
    assert not looker.once()
    assert said in "".join(str(r.__dict__.get("err")) for r in caplog.records)
    assert before["tenants.yaml"] == cloud.config_map["data"]["tenants.yaml"]
    assert groups(cloud, "probe") == json.loads(before["probe.json"])


def with_others(looker: Looker) -> Looker:
    assert looker.config.kubernetes is not None and looker.config.kubernetes.site is not None
    others = {"probe": {"agent": "enforcer"}, "enforcer": {"host": "probe"}}
    site = looker.config.kubernetes.site.model_copy(
        update={"addresses": others, "cluster_addresses": {"probe": "local"}}
    )
    kubernetes = looker.config.kubernetes.model_copy(update={"site": site})
    looker.config = looker.config.model_copy(update={"kubernetes": kubernetes})
    return looker


def test_nodes_have_further_addresses(looker: Looker, cloud: Cloud) -> None:
    cloud.slices = {
        "probe": [part(8620, endpoint("n1", "10.0.0.1"), endpoint("n2", "2001:db8::2"))],
        "enforcer": [part(9873, endpoint("n1", "10.244.1.5"))],
    }
    cloud.cluster_services = {
        "local": {"clusterIP": "10.96.0.9", "ports": [{"port": 8620, "nodePort": 30001}]}
    }
    assert with_others(looker).once()
    assert [g["labels"] for g in groups(cloud, "probe")] == [
        {
            "node": "n1",
            "zone": "z1",
            "rack": "r1",
            "at_agent": "10.244.1.5:9873",
            "at_nodeport": "10.0.0.1:30001",
            "at_service": "10.96.0.9:8620",
        },
        {"node": "n2", "zone": "z1", "at_nodeport": "[2001:db8::2]:30001", "at_service": "10.96.0.9:8620"},
    ]
    assert [g["labels"].get("at_host") for g in groups(cloud, "enforcer")] == ["10.0.0.1:8620"]


@pytest.mark.parametrize(
    "spec", [{"clusterIP": "None"}, {"type": "ExternalName"}, {"clusterIP": "", "ports": []}]
)
def test_a_service_without_an_address_gives_none(looker: Looker, cloud: Cloud, spec: dict[str, Any]) -> None:
    cloud.slices = {"probe": [part(8620, endpoint("n1", "10.0.0.1"))]}
    cloud.cluster_services = {"local": spec}
    assert with_others(looker).once()
    assert groups(cloud, "probe")[0]["labels"] == {"node": "n1", "zone": "z1", "rack": "r1"}


@pytest.mark.parametrize(
    "spec", [None, {"clusterIP": "evil", "ports": [{"port": 1}]}, {"clusterIP": "10.96.0.9", "ports": [{}]}]
)
def test_a_service_that_cannot_be_read_changes_nothing(looker: Looker, cloud: Cloud, spec: Any) -> None:
    cloud.slices = {"probe": [part(8620, endpoint("n1", "10.0.0.1"))]}
    cloud.cluster_services = {"local": spec}
    assert not with_others(looker).once()
    assert "data" not in cloud.config_map


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ({"addresses": {"other": {"host": "a"}}}, "kubernetes.site.addresses.other: is not one of services"),
        ({"addresses": {"a": {"host": "other"}}}, "names other, which is not one of services"),
        ({"addresses": {"a": {"No": "a"}}}, "kubernetes.site.addresses"),
        (
            {"cluster_addresses": {"other": "x"}},
            "kubernetes.site.cluster_addresses.other: is not one of services",
        ),
        ({"cluster_addresses": {"a": "X/y"}}, "kubernetes.site.cluster_addresses"),
        (
            {"parts": ["b", "a"]},
            "kubernetes.site.parts[1]: names a, which is one of services; remove it here",
        ),
        ({"parts": ["X/y"]}, "kubernetes.site.parts[0]"),
    ],
)
def test_further_addresses_are_of_services_that_are_asked_for(
    tmp_path: Path, site: dict[str, Any], said: str
) -> None:
    path = tmp_path / "identity.yaml"
    whole = {"namespace": "vigia", "services": ["a"], "config_map": "m", **site}
    path.write_text(yaml.safe_dump({"tenants_file": "/x/tenants.yaml", "kubernetes": {"site": whole}}))
    with pytest.raises(Exception, match="kubernetes") as e:
        load(path, Config)
    assert said in str(e.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"addresses": ["10.0.0.1; drop"], "nodeName": "n1"},
        {"addresses": [], "nodeName": "n1"},
        {"addresses": ["evil.example.org"], "nodeName": "n1"},
        {"addresses": "10.0.0.1", "nodeName": ["n1"]},
    ],
)
def test_an_answer_that_is_none_changes_nothing(looker: Looker, cloud: Cloud, wrong: dict[str, Any]) -> None:
    cloud.slices = {"probe": [part(8620, wrong)]}
    assert not looker.once()
    assert "data" not in cloud.config_map


def test_labels_that_are_no_names_are_left_out(looker: Looker, cloud: Cloud) -> None:
    cloud.nodes = [node("n1", zone="a\nb", rack="")]
    cloud.slices = {"probe": [part(8620, endpoint("n1", "10.0.0.1"))]}
    assert looker.once()
    assert groups(cloud, "probe") == [{"targets": ["10.0.0.1:8620"], "labels": {"node": "n1"}}]


def test_what_does_not_fit_is_refused_whole(
    looker: Looker, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_map, "MOST", 100)
    cloud.slices = {"probe": [part(8620, endpoint("n1", "10.0.0.1"), endpoint("n2", "10.0.0.2"))]}
    assert not looker.once()
    assert PATCHED not in cloud.asked


@pytest.mark.parametrize(
    ("site", "problem"),
    [
        ({"namespace": "../kube-system", "services": ["a"], "config_map": "m"}, "kubernetes.site.namespace"),
        ({"namespace": "vigia", "services": [], "config_map": "m"}, "kubernetes.site.services"),
        ({"namespace": "vigia", "services": ["a/b"], "config_map": "m"}, "kubernetes.site.services[0]"),
        ({"namespace": "vigia", "services": ["a"], "config_map": "A"}, "kubernetes.site.config_map"),
    ],
)
def test_names_of_objects_are_checked(tmp_path: Path, site: dict[str, Any], problem: str) -> None:
    path = tmp_path / "identity.yaml"
    path.write_text(yaml.safe_dump({"tenants_file": "/x/tenants.yaml", "kubernetes": {"site": site}}))
    with pytest.raises(Exception, match="kubernetes") as e:
        load(path, Config)
    assert problem in str(e.value)
