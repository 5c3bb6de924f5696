"""Enforcers are told of what was bought while it changes, through a server that answers as an API server does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_identity.api_server import MAX_CHANGE, Listing, api_server
from vigia_identity.clouds import CloudError
from vigia_identity.config import Guarantees, Kubernetes, Site
from vigia_identity.guarantees import following, telling
from vigia_identity.guarantees.following import Following
from vigia_identity.guarantees.telling import Telling
from vigia_testing import eventually

Cloud = Any  # of conftest.py

GUARANTEES = "/apis/vigia.internal/v1alpha1/networkguarantees"
PODS = "/api/v1/pods"
PUT = "PATCH /api/v1/namespaces/vigia/configmaps/vigia-contracts"


def guarantee(
    name: str, rate: str, labels: dict[str, str] | None = None, generation: int = 1
) -> dict[str, Any]:
    spec: dict[str, Any] = {"send": {"rate": rate}}
    if labels:
        spec["podSelector"] = {"matchLabels": labels}
    meta = {"name": name, "namespace": "red", "uid": f"uid-{name}", "generation": generation}
    return {"metadata": meta, "spec": spec}


def pod(name: str, **labels: str) -> dict[str, Any]:
    """A pod's metadata, as the API server gives them alone."""
    return {"metadata": {"name": name, "namespace": "red", "uid": f"u-{name}", "labels": labels}}


def happens(cloud: Cloud, path: str, kind: str, item: dict[str, Any]) -> None:
    cloud.watched.setdefault(path, queue.SimpleQueue()).put({"type": kind, "object": item})


def told(cloud: Cloud) -> dict[str, str]:
    """What enforcers read: guarantees by port."""
    text = cloud.contracts.get("data", {}).get("contracts.yaml", "contracts: []")
    return {c.get("port", ""): c["guarantee"] for c in yaml.safe_load(text)["contracts"]}


@pytest.fixture
def config(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubernetes:
    monkeypatch.setattr(following, "AGAIN", (0.05, 0.2))
    monkeypatch.setattr(telling, "AGAIN", 0.1)
    cloud.objects = {GUARANTEES: [], PODS: []}
    cloud.watched = {GUARANTEES: queue.SimpleQueue(), PODS: queue.SimpleQueue()}
    (tmp_path / "token").write_text(cloud.namespace_token)
    bought = Guarantees(enforcers="enforcer", config_map="vigia-contracts")
    site = Site(namespace="vigia", services=["enforcer"], config_map="vigia-site", guarantees=bought)
    return Kubernetes(url=cloud.url, token_file=tmp_path / "token", ca_file=None, site=site)


class Heard:
    """Counts what it is called for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def running(cloud: Cloud, config: Kubernetes, heard: Heard) -> Iterator[Telling]:
    one = Telling(lambda: config, lambda: 60.0, heard)
    one.start()
    yield one
    one.stop()
    for changes in cloud.watched.values():
        changes.put(None)


def listens(cloud: Cloud) -> None:
    """Wait until both lists were read and their changes are asked for."""
    wanted = [f"GET {p}" for p in (GUARANTEES, PODS)]
    eventually(lambda: all(cloud.asked.count(w) >= 2 for w in wanted), lambda: str(cloud.asked))


def test_what_is_bought_and_who_is_selected_is_told_without_asking(
    cloud: Cloud, running: Telling, heard: Heard
) -> None:
    listens(cloud)
    happens(cloud, GUARANTEES, "ADDED", guarantee("all", "10M"))
    eventually(lambda: told(cloud) == {"": "10000000bit"}, lambda: str(told(cloud)))
    happens(cloud, GUARANTEES, "ADDED", guarantee("web", "40M", {"app": "web"}))
    happens(cloud, PODS, "ADDED", pod("a", app="web"))
    happens(cloud, PODS, "ADDED", pod("b", app="db"))
    both = {"": "10000000bit", "u-a/eth0": "40000000bit"}
    eventually(lambda: told(cloud) == both, lambda: str(told(cloud)))
    happens(cloud, PODS, "MODIFIED", pod("b", app="web"))
    eventually(lambda: set(told(cloud)) == {"", "u-a/eth0", "u-b/eth0"}, lambda: str(told(cloud)))
    happens(cloud, PODS, "DELETED", pod("a", app="web"))
    happens(cloud, GUARANTEES, "DELETED", guarantee("all", "10M"))
    eventually(lambda: set(told(cloud)) == {"u-b/eth0"}, lambda: str(told(cloud)))
    happens(cloud, GUARANTEES, "MODIFIED", guarantee("web", "50M", {"app": "web"}, generation=2))
    eventually(lambda: told(cloud) == {"u-b/eth0": "50000000bit"}, lambda: str(told(cloud)))
    eventually(lambda: heard.count >= 3, "the looker to hear of it")
    assert [cloud.asked.count(f"GET {p}") for p in (GUARANTEES, PODS)] == [2, 2], "a list, and its changes"


def test_nothing_is_written_for_what_changes_nothing(cloud: Cloud, running: Telling) -> None:
    listens(cloud)
    happens(cloud, GUARANTEES, "ADDED", guarantee("web", "40M", {"app": "web"}))
    happens(cloud, PODS, "ADDED", pod("a", app="web"))
    eventually(lambda: told(cloud) == {"u-a/eth0": "40000000bit"}, lambda: str(told(cloud)))
    before = cloud.asked.count(PUT)
    for i in range(50):
        happens(cloud, PODS, "ADDED", pod(f"other-{i}", app="db"))
        happens(
            cloud,
            GUARANTEES,
            "MODIFIED",
            {**guarantee("web", "40M", {"app": "web"}), "status": {"applied": i}},
        )
    happens(cloud, PODS, "ADDED", pod("b", app="web"))
    eventually(lambda: set(told(cloud)) == {"u-a/eth0", "u-b/eth0"}, lambda: str(told(cloud)))
    assert cloud.asked.count(PUT) == before + 1


def test_what_was_missed_is_found_when_an_answer_ends(cloud: Cloud, running: Telling) -> None:
    listens(cloud)
    cloud.objects[GUARANTEES] = [guarantee("all", "10M")]  # and nobody says so
    cloud.watched[GUARANTEES].put(None)
    eventually(lambda: told(cloud) == {"": "10000000bit"}, lambda: str(told(cloud)))
    cloud.objects[GUARANTEES] = []
    happens(cloud, GUARANTEES, "ERROR", {"message": "too old resource version", "code": 410})
    cloud.watched[GUARANTEES].put(None)
    eventually(lambda: cloud.contracts["data"] and told(cloud) == {}, lambda: str(told(cloud)))


def test_while_the_api_server_is_away_everything_stays_as_it_is(
    cloud: Cloud, running: Telling, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.objects[GUARANTEES] = [guarantee("all", "10M")]
    cloud.watched[GUARANTEES].put(None)
    eventually(lambda: told(cloud) == {"": "10000000bit"}, lambda: str(told(cloud)))
    cloud.broken = True
    for changes in cloud.watched.values():
        changes.put(None)

    def said() -> list[tuple[str, str]]:
        return [(vars(r)["list"], vars(r)["err"]) for r in caplog.records if "cannot follow" in r.message]

    eventually(lambda: len({path for path, _ in said()}) == 2, lambda: str(caplog.records))
    # The answer that was under way when the API server went may fail in words of its own.
    eventually(
        lambda: len(found := running.problems()) == 2 and all("503" in p for p in found),
        lambda: str(running.problems()),
    )
    known = running.bought()
    assert known is not None and [g.name for g in known.guarantees] == ["all"]
    before = len(cloud.asked)
    eventually(lambda: len(cloud.asked) > before + 6, "it to be asked again and again")
    assert len(said()) == len(set(said())) <= 4, "said once, not again and again"
    cloud.objects[GUARANTEES] = [guarantee("all", "20M", generation=2)]
    cloud.broken = False
    eventually(lambda: told(cloud) == {"": "20000000bit"}, lambda: str(told(cloud)))
    for changes in cloud.watched.values():
        changes.put(None)
    eventually(lambda: running.problems() == [], lambda: str(running.problems()))


class Pauses(threading.Event):
    """Says how long it was waited for, and lets nobody wait."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.made.append(timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize("ends", ["at once", "after a while"])
def test_answers_that_end_at_once_are_asked_for_less_and_less(
    cloud: Cloud, config: Kubernetes, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(following, "LASTS", 3600.0 if ends == "at once" else 0.0)
    for _ in range(9):
        cloud.watched[PODS].put(None)
    one: Following[Any] = Following(lambda: config, Listing(PODS), 3, dict, lambda: None)
    one._stopped = pauses = Pauses()
    one.start()
    eventually(lambda: cloud.asked.count(f"GET {PODS}") == 20, lambda: str(cloud.asked))
    one.stop()
    cloud.watched[PODS].put(None)
    if ends == "at once":
        assert pauses.made[:5] == [0.05, 0.1, 0.2, 0.2, 0.2]
    else:
        assert pauses.made == [], "what worked is followed by the next answer"


def test_enforcers_are_told_again_where_it_could_not_be_written(
    cloud: Cloud, running: Telling, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    listens(cloud)
    eventually(lambda: heard.count == 1, "the first contracts, which are none")
    cloud.forbidden.add(PUT)
    happens(cloud, GUARANTEES, "ADDED", guarantee("all", "10M"))
    eventually(lambda: "cannot tell enforcers" in caplog.text, lambda: caplog.text)
    assert heard.count == 1 and told(cloud) == {}
    cloud.forbidden.clear()
    eventually(lambda: told(cloud) == {"": "10000000bit"}, lambda: str(told(cloud)))
    eventually(lambda: heard.count == 2, "the looker to hear of it")


def test_a_look_writes_again_what_somebody_else_has_changed(cloud: Cloud, running: Telling) -> None:
    assert Telling(lambda: None, lambda: 60.0, lambda: None).again() is None
    cloud.objects[GUARANTEES] = [guarantee("all", "10M")]
    cloud.watched[GUARANTEES].put(None)
    eventually(lambda: told(cloud) == {"": "10000000bit"}, lambda: str(told(cloud)))
    cloud.contracts["data"]["contracts.yaml"] = "contracts: []"
    cloud.objects[GUARANTEES][0]["status"] = {"applied": 7}
    found = running.again()
    assert told(cloud) == {"": "10000000bit"}
    assert found is not None and found.guarantees[0].item["status"] == {"applied": 7}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"type": "ADDED", "object": {"x": "y" * MAX_CHANGE}}, "larger than|has changed"),
        ({"type": "ADDED", "object": {}}, "not as documented"),
        ({"type": "ERROR", "object": {"message": "gone"}}, "gone"),
        ([], "not as documented"),
    ],
    ids=["large", "no object", "error", "list"],
)
def test_changes_that_are_none_end_the_answer(cloud: Cloud, config: Kubernetes, line: Any, said: str) -> None:
    cloud.watched[GUARANTEES].put(line)
    cloud.watched[GUARANTEES].put(None)
    one: Following[Any] = Following(lambda: config, Listing(GUARANTEES), 10, dict, lambda: None)
    with pytest.raises(CloudError, match=said):
        one.follow(config)
    assert one.all() == []


@pytest.mark.parametrize("by", ["list", "change"])
def test_more_than_can_be_kept_is_refused(cloud: Cloud, config: Kubernetes, by: str) -> None:
    items = [pod(str(i)) for i in range(5)]
    cloud.objects[PODS] = items if by == "list" else items[:3]
    for item in items[3:]:
        happens(cloud, PODS, "ADDED", item)
    cloud.watched[PODS].put(None)
    one: Following[Any] = Following(lambda: config, Listing(PODS), 3, dict, lambda: None)
    with pytest.raises(CloudError, match="more than 3 of /api/v1/pods"):
        one.follow(config)


def test_pods_are_asked_for_their_metadata_alone_and_from_the_lists_version_on(
    cloud: Cloud, config: Kubernetes
) -> None:
    cloud.objects[PODS] = [pod("a"), pod("b"), pod("c")]
    cloud.watched[PODS].put(None)
    with api_server(config, 60.0) as server:
        listing = Listing(PODS, {"fieldSelector": "x=y"}, metadata=True)
        pages = list(server.pages(listing))
        assert [len(items) for _, items in pages] == [2, 1]
        assert list(server.changes(listing, pages[-1][0], 9)) == []
    query = cloud.queries[-1]
    assert (query["resourceVersion"], query["timeoutSeconds"]) == (["7"], ["9"])
    assert query["fieldSelector"] == ["x=y"]
    accepts = [a for a in cloud.accepted if "PartialObjectMetadata" in a]
    assert [a.partition(";g=")[0].rpartition("=")[2] for a in accepts] == [
        "PartialObjectMetadataList",
        "PartialObjectMetadataList",
        "PartialObjectMetadata",
    ]


def test_stopped_it_asks_nobody_any_more(cloud: Cloud, config: Kubernetes, heard: Heard) -> None:
    before = set(threading.enumerate())
    one = Telling(lambda: config, lambda: 60.0, heard)
    one.start()
    listens(cloud)
    one.stop()
    for changes in cloud.watched.values():
        changes.put(None)
    own = ("follow", "tell")
    eventually(
        lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith(own)],
        lambda: str(threading.enumerate()),
    )
