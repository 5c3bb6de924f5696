"""What a tenant can ask of Prometheus through the proxy that is shipped: its own, and nothing of others."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator

import httpx
import pytest
import yaml
from labkit import need_root
from pagekit import blocks, page
from portkit import free_port
from tenantcloudkit import BLUE, RED, ROOT, Asked, Capture, capture, nothing_comes_out, relabelling, serving
from tenantkit import CUT, Question, ask, questions, telling

from vigia_catalog import load

GUIDE = blocks(page("how-to/tenants.md"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    need_root()
    subprocess.run(["sh", "-euc", GUIDE["build"]], cwd=ROOT, check=True)
    return capture(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module", params=["project", "namespace"])
def cloud(
    request: pytest.FixtureRequest, pages: Capture, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    with serving(tmp_path_factory.mktemp("cloud"), pages, request.param) as found:
        yield found


def test_nothing_of_others_comes_out(cloud: Asked) -> None:
    asking = questions(cloud.label, RED, BLUE, cloud.at)
    assert len(asking) >= 500
    assert nothing_comes_out(cloud, asking) >= 200, "most of what is asked is answered with the tenant's own"


def test_without_the_proxy_the_same_questions_tell(cloud: Asked) -> None:
    asking = questions(cloud.label, RED, BLUE, cloud.at)
    assert len(telling(cloud.prometheus, cloud.prometheus_alone, asking)) >= 200


def test_a_tenant_gets_its_own(cloud: Asked) -> None:
    """Throughput, drops, round trips, losses, limits and its name, by what the guide asks."""
    asked_for = [line for line in GUIDE["questions"].splitlines() if line and not line.startswith("#")]
    assert len(asked_for) >= 5
    for expression in asked_for:
        answer = httpx.get(
            f"{cloud.proxy}/api/v1/query",
            params={"query": expression, "time": cloud.at},
            trust_env=False,
            timeout=60,
        ).json()
        found = answer["data"]["result"]
        assert found, expression
        assert {r["metric"].get("tenant", RED) for r in found} == {RED}, expression


def test_the_plain_label_would_name_other_tenants(
    pages: Capture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is left out by the relabelling that is shipped, and why it is not just a copy of the label tenant."""
    plain = [{"source_labels": ["tenant"], "target_label": "project", "regex": "(.+)"}]
    with serving(tmp_path_factory.mktemp("plain"), pages, "project", plain) as cloud:
        told = telling(cloud.proxy, cloud.alone, questions("project", RED, BLUE, cloud.at))
    assert any("taker" in q for q in told) and any("offender" in q for q in told)


def test_the_label_costs_no_series(cloud: Asked) -> None:
    """A tenant has one project: as many series, whatever has the label."""
    params = {
        "query": f'count({{{cloud.label}!=""}}) by (__name__) unless count by (__name__) ({{tenant=~"[^_].*"}})'
    }
    found = httpx.get(f"{cloud.prometheus}/api/v1/query", params=params, trust_env=False, timeout=60).json()
    assert found["data"]["result"] == []


def test_labels_that_name_other_tenants_are_left_out() -> None:
    """A label of the catalogue whose value is a tenant is in the relabelling, and the guide has the same."""
    described: dict[str, str] = yaml.safe_load((ROOT / "internal/catalog/metrics/labels.yaml").read_text())[
        "open"
    ]
    of_tenants = {name for name, what in described.items() if "tenant" in what or name == "tenant"}
    (rule,) = relabelling()
    assert of_tenants - {"tenant_name", "network", "resource"} == set(rule["source_labels"])
    assert all(
        set(rule["source_labels"]) & set(m.labels) for m in load().values() if "offender_node" in m.labels
    )
    assert yaml.safe_load(GUIDE["relabelling"]) == [rule]


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    """And one that always is has no answer; who does not listen at all is no answer, but a failure."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n" + b'{"a": 1}'
    with socket.create_server(("127.0.0.1", free_port())) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answering(*answers: bytes) -> threading.Thread:
            def serve() -> None:
                for answer in answers:
                    peer, _ = server.accept()
                    with peer:
                        peer.recv(1 << 16)
                        peer.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            return thread

        for answers, status in (((whole[:-3], b"", whole), 200), ((whole[:-3],) * CUT, 0)):
            thread = answering(*answers)
            assert ask(url, Question("/")).status == status
            thread.join(60)
            assert not thread.is_alive(), "every answer was asked for"
    with pytest.raises(ConnectionRefusedError):
        ask(url, Question("/"))


def test_the_guide_says_how_many_questions_there_are() -> None:
    assert f"{len(questions('project', RED, BLUE, 0.0))} questions" in " ".join(
        page("how-to/tenants.md").split()
    )
