"""Second networks of pods in the chart: what Multus is asked for, what is probed there, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from chartkit import documents, template

MULTUS = "k8s.v1.cni.cncf.io/networks"


def rendered(tmp_path: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = template("--values", tmp_path / "values.yaml")
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def refusal(tmp_path: Path, values: dict[str, Any]) -> str:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = template("--values", tmp_path / "values.yaml")
    assert done.returncode != 0
    return done.stderr


def further(**values: Any) -> dict[str, Any]:
    return {"probe": {"networks": {"further": values}}}


def daemon_set(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [d for d in objects if d["kind"] == "DaemonSet" and d["metadata"]["name"] == name]
    template: dict[str, Any] = found["spec"]["template"]
    return template


def configuration(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [d for d in objects if d["kind"] == "ConfigMap" and d["metadata"]["name"] == name]
    content: dict[str, Any] = yaml.safe_load(found["data"]["probe.yaml"])
    return content


def test_second_networks_are_probed_beside_the_way_to_the_node(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {})
    content = configuration(objects, "vigia-probe-pods")
    (path,) = [p for p in content["paths"] if p.get("further")]
    assert (path["name"], path["dataplane"], path["encap"]) == ("net", "auto", "unknown")
    (discovery,) = content["discovery"]
    (target,) = [t for t in discovery["targets"] if t["path"] == "net"]
    assert (target["twin"], target["port"], "at" in target) == ("pods-to-host", 8620, False)
    assert not any(p.get("further") for p in configuration(objects, "vigia-probe")["paths"])
    for name in ("vigia-probe", "vigia-probe-pods"):
        assert MULTUS not in daemon_set(objects, name)["metadata"]["annotations"]


@pytest.mark.parametrize(
    "values",
    [
        further(enabled=False, attachments=["storage/fast"], resources={"example.org/vf": 1}),
        {"probe": {"networks": {"pods": {"enabled": False}, "further": {"attachments": ["storage/fast"]}}}},
    ],
)
def test_what_is_switched_off_asks_for_nothing(values: dict[str, Any], tmp_path: Path) -> None:
    objects = rendered(tmp_path, values)
    text = yaml.safe_dump_all(objects)
    assert MULTUS not in text
    assert "example.org/vf" not in text
    settings = [d["data"]["probe.yaml"] for d in objects if "probe.yaml" in (d.get("data") or {})]
    assert settings
    assert not any("further" in one for one in settings)


def test_without_twins_they_are_probed_alone(tmp_path: Path) -> None:
    content = configuration(rendered(tmp_path, {"probe": {"twins": {"enabled": False}}}), "vigia-probe-pods")
    (target,) = [t for t in content["discovery"][0]["targets"] if t["path"] == "net"]
    assert "twin" not in target


def test_every_class_that_goes_by_packets_goes_there(tmp_path: Path) -> None:
    classes = [
        {"name": "a", "protocol": "stamp", "size": 84, "interval": "1s"},
        {"name": "b", "protocol": "icmp", "size": 56, "interval": "1s"},
        {"name": "c", "protocol": "tcp-connect", "interval": "1s"},
    ]
    content = configuration(rendered(tmp_path, {"probe": {"classes": classes}}), "vigia-probe-pods")
    there = {t["probe"]: t for t in content["discovery"][0]["targets"] if t["path"] == "net"}
    assert set(there) == {"a", "b"}
    assert "port" not in there["b"]


@pytest.mark.parametrize(
    ("attachments", "asked"),
    [
        (["storage/fast"], "storage/fast@fast"),
        (["storage/fast", "other/fast"], "storage/fast@fast,other/fast@net2"),
        (["storage/sixteen-characters"], "storage/sixteen-characters@net1"),
        (["storage/fast@net7", "b/c@fast"], "storage/fast@net7,b/c@fast"),
        (["b/fast", "storage/x@fast"], "b/fast@net1,storage/x@fast"),
        (["storage/eth0"], "storage/eth0@net1"),
    ],
)
def test_interfaces_are_called_as_their_networks(attachments: list[str], asked: str, tmp_path: Path) -> None:
    objects = rendered(tmp_path, further(attachments=attachments, resources={"example.org/vf": 2}))
    pods = daemon_set(objects, "vigia-probe-pods")
    assert pods["metadata"]["annotations"][MULTUS] == asked
    resources = pods["spec"]["containers"][0]["resources"]
    assert resources["requests"]["example.org/vf"] == resources["limits"]["example.org/vf"] == 2
    assert resources["limits"]["memory"] == "256Mi"
    host = daemon_set(objects, "vigia-probe")
    assert MULTUS not in host["metadata"]["annotations"]
    assert "example.org/vf" not in host["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (further(attachments=["fast"]), "/probe/networks/further/attachments/0"),
        (further(attachments=["a/b@an-interface-name"]), "/probe/networks/further/attachments/0"),
        (further(attachments=["a/b\", \"c/d"]), "/probe/networks/further/attachments/0"),
        (further(attachments=["a/b,c/d"]), "/probe/networks/further/attachments/0"),
        (further(attachments=["a/b", "a/b"]), "/probe/networks/further/attachments"),
        (further(attachments=[f"a/n{i}" for i in range(9)]), "/probe/networks/further/attachments"),
        (further(resources={"vf": 1}), "/probe/networks/further/resources"),
        (further(resources={"example.org/vf": 9}), "/probe/networks/further/resources/example.org~1vf"),
        (further(path={"encap": "auto"}), "/probe/networks/further/path/encap"),
        (further(path={"name": "n" * 113}), "/probe/networks/further/path/name"),
        (further(attachments=["a/b@x", "a/c@x"]), '"a/c@x": the interface x is taken; write another after @'),
        (further(attachments=["a/b@eth0"]), "the interface eth0 is taken; write another after @"),
        (further(attachments=["a/c@net2", "a/eth0"]), '"a/eth0": the interface net2 is taken'),
        (
            {"probe": {"networks": {
                "pods": {"podAnnotations": {MULTUS: "a/b"}}, "further": {"attachments": ["a/b"]},
            }}},
            f"probe.networks.pods.podAnnotations: has {MULTUS}, and so does probe.networks.further.attachments",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_their_path(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, values)


def test_annotations_of_ones_own_are_kept(tmp_path: Path) -> None:
    own = {"probe": {"networks": {"pods": {"podAnnotations": {MULTUS: "a/b@x"}}}}}
    pods = daemon_set(rendered(tmp_path, own), "vigia-probe-pods")
    assert pods["metadata"]["annotations"][MULTUS] == "a/b@x"
