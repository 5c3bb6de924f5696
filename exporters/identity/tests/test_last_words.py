"""Why a pod does not run is said in an event of it, through a server that answers as an API server does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import load
from vigia_identity.config import Config
from vigia_identity.guarantees import last_words
from vigia_identity.looker import Looker

Cloud = Any  # of conftest.py

PODS = "/api/v1/namespaces/vigia/pods"
EVENTS = "/api/v1/namespaces/vigia/events"
LINE = "vigia-exporter: bpf.pin_dir /sys/fs/bpf/vigia is not on a bpffs; run: mount -t bpf bpf /sys/fs/bpf"


def endpoint(node: str, pod: str, **conditions: bool) -> dict[str, Any]:
    """Of a service that publishes pods which are not ready."""
    conditions = {"ready": True, "serving": False, "terminating": False, **conditions}
    address = f"10.0.0.{node.removeprefix('n')}"
    return {
        "addresses": [address],
        "nodeName": node,
        "targetRef": {"kind": "Pod", "name": pod},
        "conditions": conditions,
    }


def ended(code: int = 1, message: str | None = LINE, **status: Any) -> dict[str, Any]:
    """The status of a container that ended and waits to be started again."""
    over = {"exitCode": code, "reason": "Error", "message": message}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    return {"name": "exporter", "ready": False, "state": waits, "lastState": {"terminated": over}, **status}


def pod(name: str, *containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "vigia", "uid": f"u-{name}"}
    return {"metadata": meta, "status": {"containerStatuses": list(containers), **status}}


@pytest.fixture
def looker(cloud: Cloud, tmp_path: Path) -> Looker:
    cloud.namespaces = [{"metadata": {"name": "red", "annotations": None}}]
    cloud.nodes = [{"metadata": {"name": f"n{i}", "labels": {}}} for i in range(100)]
    cloud.page = 500
    cloud.slices = {"exporter": [{"ports": [{"port": 9872}], "endpoints": [endpoint("n1", "exporter-a")]}]}
    cloud.objects = {PODS: [pod("exporter-a", ended())]}
    (tmp_path / "token").write_text(cloud.namespace_token)
    site = {"namespace": "vigia", "services": ["exporter"], "config_map": "vigia-site"}
    kubernetes = {"url": cloud.url, "token_file": str(tmp_path / "token"), "ca_file": None, "site": site}
    path = tmp_path / "identity.yaml"
    path.write_text(
        yaml.safe_dump({"tenants_file": str(tmp_path / "tenants.yaml"), "kubernetes": kubernetes})
    )
    return Looker(load(path, Config))


def said(cloud: Cloud) -> list[tuple[str, str, str]]:
    """Events: of which pod, why and what."""
    made = [body for _, path, body in cloud.changed if path == EVENTS]
    return [(e["involvedObject"]["name"], e["reason"], e["message"]) for e in made]


def test_what_a_program_said_before_it_ended_is_an_event_of_its_pod(looker: Looker, cloud: Cloud) -> None:
    assert looker.once()
    assert said(cloud) == [("exporter-a", "CannotRun", f"exporter ended with exit code 1: {LINE}")]
    (event,) = [body for _, path, body in cloud.changed if path == EVENTS]
    assert (event["type"], event["involvedObject"]["uid"]) == ("Warning", "u-exporter-a")
    asked = [q for q in cloud.queries if "fieldSelector" in q]
    assert [q["fieldSelector"] for q in asked] == [["metadata.name=exporter-a"]], "one pod, not all of them"


def test_it_is_said_once_an_hour_and_again_when_it_is_something_else(
    looker: Looker, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        cloud.objects[PODS] = [pod("exporter-a", ended(message=f"time=12:00:0{number} pid={number} {LINE}"))]
        assert looker.once()
    assert len(said(cloud)) == 1
    cloud.objects[PODS] = [
        pod("exporter-a", ended(message="vigia-exporter: not permitted; it needs CAP_BPF"))
    ]
    assert looker.once()
    assert len(said(cloud)) == 2 and "CAP_BPF" in said(cloud)[1][2]
    monkeypatch.setattr(last_words, "AGAIN", 0.0)
    assert looker.once()
    assert len(said(cloud)) == 3


@pytest.mark.parametrize(
    "status",
    [
        ended(ready=True),
        ended(code=0),
        {"name": "exporter", "ready": False, "state": {"running": {}}, "lastState": {}},
        {"name": "exporter", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}},
    ],
    ids=["back", "done", "starting", "no image"],
)
def test_who_did_not_end_in_error_said_nothing(looker: Looker, cloud: Cloud, status: dict[str, Any]) -> None:
    cloud.objects[PODS] = [pod("exporter-a", status)]
    assert looker.once()
    assert said(cloud) == []


@pytest.mark.parametrize("conditions", [{"serving": True}, {"terminating": True}])
def test_pods_that_serve_or_go_are_not_asked_for(
    looker: Looker, cloud: Cloud, conditions: dict[str, bool]
) -> None:
    cloud.slices["exporter"][0]["endpoints"] = [endpoint("n1", "exporter-a", **conditions)]
    assert looker.once()
    assert f"GET {PODS}" not in cloud.asked


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("first\nsecond\n\n", "second"),
        ("x" * 5000, "x" * 900),
        ("a\x1b[31mb\x00", "a[31mb"),
        ("", "it said nothing (OOMKilled)"),
        (None, "it said nothing (OOMKilled)"),
    ],
)
def test_of_what_it_said_the_last_line_is_told(
    looker: Looker, cloud: Cloud, message: str | None, line: str
) -> None:
    one = ended(137, message)
    one["lastState"]["terminated"]["reason"] = "OOMKilled"
    cloud.objects[PODS] = [pod("exporter-a", one)]
    assert looker.once()
    assert [m for _, _, m in said(cloud)] == [f"exporter ended with exit code 137: {line}"]


def test_an_init_container_has_last_words_too(looker: Looker, cloud: Cloud) -> None:
    first = ended(2, "no contracts", name="contracts-brought")
    cloud.objects[PODS] = [pod("exporter-a", initContainerStatuses=[first])]
    assert looker.once()
    assert said(cloud)[0][2] == "contracts-brought ended with exit code 2: no contracts"


def test_of_many_pods_a_few_are_asked_for_at_each_look_and_all_in_the_end(
    looker: Looker, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_words, "AT_ONCE", 4)
    cloud.slices["exporter"][0]["endpoints"] = [endpoint(f"n{i}", f"exporter-{i}") for i in range(10)]
    for looks, asked in ((1, 4), (2, 8), (3, 12)):
        assert looker.once()
        names = [q["fieldSelector"][0] for q in cloud.queries if "fieldSelector" in q]
        assert len(names) == asked, looks
    assert len(set(names)) == 10


def with_parts(looker: Looker, *parts: str) -> Looker:
    """Also tells of pods that nobody finds: one of each part's on a node."""
    kubernetes = looker.config.kubernetes
    assert kubernetes is not None and kubernetes.site is not None
    site = kubernetes.site.model_copy(update={"parts": list(parts)})
    kubernetes = kubernetes.model_copy(update={"site": site})
    looker.config = looker.config.model_copy(update={"kubernetes": kubernetes})
    return looker


def test_parts_that_nobody_finds_have_last_words_too(looker: Looker, cloud: Cloud) -> None:
    """What there is one of per site: its pod, in its EndpointSlice, is not ready."""
    cloud.slices["exporter"] = [{"ports": [{"port": 9872}], "endpoints": [endpoint("n1", "x", serving=True)]}]
    for part, number in (("compare", 9875), ("agent", 9874)):
        slices = [{"ports": [{"port": number}], "endpoints": [endpoint("n2", f"{part}-0", ready=False)]}]
        cloud.slices[part] = slices
    line = "vigia-compare: prometheus: nonsense is no URL; write for example http://localhost:9090"
    cloud.objects[PODS] = [pod("compare-0", ended(message=line, name="compare"))]
    assert with_parts(looker, "agent", "compare").once()
    assert said(cloud) == [("compare-0", "CannotRun", f"compare ended with exit code 1: {line}")]
    asked = {q["fieldSelector"][0] for q in cloud.queries if "fieldSelector" in q}
    assert asked == {"metadata.name=compare-0", "metadata.name=agent-0"}
    assert "compare.json" not in cloud.config_map["data"], "nobody has to find it"


def test_parts_that_serve_say_nothing(looker: Looker, cloud: Cloud) -> None:
    cloud.slices["compare"] = [{"ports": [{"port": 1}], "endpoints": [endpoint("n2", "c", serving=True)]}]
    cloud.slices["exporter"] = []
    assert with_parts(looker, "compare").once()
    assert (said(cloud), f"GET {PODS}" in cloud.asked) == ([], False)


def test_a_part_without_a_pod_is_none_that_ended(looker: Looker, cloud: Cloud) -> None:
    cloud.slices["exporter"] = []
    cloud.slices["compare"] = [{"ports": None, "endpoints": None}]
    assert with_parts(looker, "compare", "grafana").once()
    assert said(cloud) == []


def test_names_that_are_none_are_not_asked_for(looker: Looker, cloud: Cloud) -> None:
    cloud.slices["exporter"][0]["endpoints"] = [
        endpoint("n1", "a,metadata.namespace=kube-system"),
        endpoint("n2", ""),
        {**endpoint("n3", ""), "targetRef": None},
    ]
    assert looker.once()
    assert f"GET {PODS}" not in cloud.asked


@pytest.mark.parametrize("right", [f"GET {PODS}", f"POST {EVENTS}"])
def test_without_the_right_the_rest_goes_on(
    looker: Looker, cloud: Cloud, caplog: pytest.LogCaptureFixture, right: str
) -> None:
    cloud.forbidden = {right}
    assert not looker.once()
    assert cloud.config_map["data"]["exporter.json"]
    (record,) = [r for r in caplog.records if r.message == "cannot say why a pod does not run"]
    assert "grant it in its Role" in record.err  # type: ignore[attr-defined]
