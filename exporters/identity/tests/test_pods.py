"""What is kept of a pod, who is selected, and what the own pod is told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vigia_identity.config import Kubernetes, Site
from vigia_identity.guarantees import notices
from vigia_identity.guarantees.notices import Notices
from vigia_identity.guarantees.pods import EGRESS, INGRESS, pod, selector

Cloud = Any  # of conftest.py

EVENTS = "/api/v1/namespaces/vigia/events"


def whole(**more: Any) -> dict[str, Any]:
    meta = {"name": "web", "namespace": "red", "uid": "u", "labels": {"app": "web"}, **more.pop("meta", {})}
    return {"metadata": meta, **more}


def test_of_a_pod_its_labels_and_bandwidths_are_kept_alone() -> None:
    annotations = {
        EGRESS: "10M",
        INGRESS: "20M",
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 9999,
    }
    found = pod(whole(meta={"annotations": annotations, "managedFields": [{"x": "y" * 9999}]}))
    assert found is not None
    assert (found.namespace, found.port, found.labels) == ("red", "u/eth0", {"app": "web"})
    assert found.marks == {EGRESS: "10M", INGRESS: "20M"}


@pytest.mark.parametrize(
    "item",
    [
        whole(spec={"hostNetwork": True}),
        whole(status={"phase": "Succeeded"}),
        whole(spec={}, status={"phase": "Failed"}),
    ],
)
def test_a_pod_without_a_port_of_its_own_is_not_kept(item: dict[str, Any]) -> None:
    assert pod(item) is None


@pytest.mark.parametrize("meta", [{"labels": None, "annotations": None}, {"labels": {}}])
def test_a_pod_without_labels_has_none(meta: dict[str, Any]) -> None:
    found = pod(whole(meta=meta))
    assert found is not None and found.labels == {} and found.marks == {}


@pytest.mark.parametrize("item", [{}, {"metadata": {}}, {"metadata": {"uid": "u"}}])
def test_what_is_no_pod_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(LookupError):
        pod(item)


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({"matchLabels": {"app": "web"}}, "ab"),
        ({"matchLabels": {"app": "web", "tier": "1"}}, "a"),
        (where("tier", "In", "1", "3"), "ac"),
        (where("tier", "NotIn", "1"), "bcd"),
        (where("tier", "Exists"), "abc"),
        (where("tier", "DoesNotExist"), "d"),
        ({"matchLabels": {"app": "web"}, **where("tier", "NotIn", "2")}, "a"),
        ({"matchLabels": {"app": ""}}, ""),
        ({}, "abcd"),
    ],
)
def test_labels_are_selected_as_the_api_server_does(spec: dict[str, Any], chosen: str) -> None:
    pods = {
        "a": {"app": "web", "tier": "1"},
        "b": {"app": "web", "tier": "2"},
        "c": {"app": "db", "tier": "3"},
        "d": {"app": "db"},
    }
    selects = selector(spec)
    assert "".join(name for name, labels in pods.items() if selects(labels)) == chosen


def test_an_unknown_operator_is_named_and_cut() -> None:
    with pytest.raises(ValueError, match=r"has the operator 'GtGt.{36}'; write In, NotIn"):
        selector(where("a", "Gt" * 50))


@pytest.fixture
def config(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubernetes:
    monkeypatch.setenv(notices.NAME, "own")
    (tmp_path / "token").write_text(cloud.namespace_token)
    site = Site(namespace="vigia", services=["probe"], config_map="vigia-site")
    return Kubernetes(url=cloud.url, token_file=tmp_path / "token", ca_file=None, site=site)


def said(cloud: Cloud) -> list[str]:
    return [b["message"] for m, p, b in cloud.changed if (m, p) == ("POST", EVENTS)]


def test_a_problem_is_said_again_after_an_hour(
    cloud: Cloud, config: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    one = Notices()
    for after in (0.0, 1.0, notices.AGAIN - 2.0, 2.0):
        now[0] += after
        one.say(config, "403: it may not", timeout=60.0)
    assert said(cloud) == ["403: it may not"] * 2
    assert "uid" not in cloud.changed[0][2]["involvedObject"], "it was not told its own"


def test_no_more_is_said_than_anybody_reads(cloud: Cloud, config: Kubernetes) -> None:
    one = Notices()
    for i in range(3 * notices.MOST):
        one.say(config, f"{i} " + "x" * 5000, timeout=60.0)
    assert len(said(cloud)) == notices.MOST and all(len(s) == 1000 for s in said(cloud))


def test_what_could_not_be_said_is_tried_again(cloud: Cloud, config: Kubernetes) -> None:
    one = Notices()
    cloud.forbidden.add(f"POST {EVENTS}")
    one.say(config, "a", timeout=60.0)
    cloud.forbidden.clear()
    one.say(config, "a", timeout=60.0)
    one.say(config, "a", timeout=60.0)
    assert said(cloud) == ["a", "a"], "the first was refused, and the third is no news"
