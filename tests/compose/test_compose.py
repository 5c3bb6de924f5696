"""docker-compose.yml, really run: on an engine of the tests' own, with images from Debian packages."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from composekit import SLOW, Engine, Stack, remove
from labkit import Machine, eventually, need_root

pytestmark = pytest.mark.compose

NODES = ("lb1", "lb2", "ovs1", "ovs2")
AGENTS = ("vigia-probe", "vigia-exporter", "vigia-enforcer")
SITE = ("prometheus", "alertmanager", "node", "isolation-agent", "vigia-compare")
PAIRS = {
    (path, src, dst)
    for path, ends in {
        "direct": ("lb1 lb2", "ovs1 ovs2"),
        "linuxbridge-vxlan": ("lb1 lb2",),
        "ovs-vxlan": ("ovs1 ovs2",),
        "ovs-gre": ("ovs1 ovs2",),
    }.items()
    for pair in ends
    for src, dst in (pair.split(), pair.split()[::-1])
}
RIGHTS = {
    "init": {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
    "probe": {"NET_BIND_SERVICE", "NET_RAW", "NET_ADMIN", "SYS_ADMIN"},
    "exporter": {"NET_ADMIN", "SYS_ADMIN"},
    "enforcer": {"NET_ADMIN", "SYS_ADMIN"},
}


@pytest.fixture(scope="module")
def before() -> Machine:
    need_root()
    return Machine.now("demo")


@pytest.fixture(scope="module")
def stack(before: Machine) -> Iterator[Stack]:
    scratch = Path(tempfile.mkdtemp(prefix="vigia-compose-"))
    engine = Engine(scratch)
    found = Stack(engine)
    try:
        engine.start(apart=False)
        found.down("--volumes")  # what a run that was killed left
        found.images()
        engine.stop()
        engine.start(apart=True)
        found.up()
        yield found
    finally:
        if engine.members():
            found.down("--volumes")
        engine.stop()
        if scratch.exists():
            shutil.copy(scratch / "engine.log", tempfile.gettempdir() + "/vigia-compose-engine.log")
            remove(scratch)


def test_every_target_is_up(stack: Stack) -> None:
    wanted = {(job, None) for job in SITE}
    wanted |= {(agent, node) for agent in AGENTS for node in (*NODES, "this-machine")}
    up = "up == 1"
    eventually(
        lambda: {(s["metric"]["job"], s["metric"].get("node")) for s in stack.query(up)} == wanted,
        "every target is up",
        SLOW,
    )
    assert stack.query("up == 0") == []


def test_every_path_and_tenant_has_series(stack: Stack) -> None:
    def measured() -> bool:
        counts = stack.query("histogram_count(vigia_probe_rtt_seconds) > 20")
        labels = [s["metric"] for s in counts]
        pairs = {(m["path"], m["src"], m["dst"]) for m in labels}
        tenants = {(m["path"], m["tenant"]) for m in labels}
        overlays = {path for path, _, _ in PAIRS} - {"direct"}
        return pairs == PAIRS and tenants >= {(p, t) for p in overlays for t in ("red", "blue", "_infra")}

    eventually(measured, "every path and tenant has round trips", SLOW)
    ports = {s["metric"]["tenant"] for s in stack.query("vigia_port_packets_total > 0")}
    assert ports >= {"red", "blue"}


def test_containers_have_the_rights_that_are_documented_and_no_others(stack: Stack) -> None:
    for service in stack.services():
        found = stack.container(service)
        host = found["HostConfig"]
        kind = service.rpartition("-")[2] if service != "isolation-agent" else service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["Privileged"], service
        if service != "lab":
            assert set(host["CapAdd"] or ()) == RIGHTS.get(kind, set()), service
        assert host["ReadonlyRootfs"], service
        assert host["Memory"] > 0 and host["NanoCpus"] > 0 and host["PidsLimit"] > 0, service
        assert host["RestartPolicy"]["Name"] == ("no" if service == "init" else "unless-stopped"), service
        root = found["Config"]["User"].split(":")[0] == "0"
        assert root == (kind in ("init", "exporter", "enforcer", "lab")), service
        assert all("docker.sock" not in mount["Source"] for mount in found["Mounts"]), service


def test_a_flood_is_limited_and_released(stack: Stack) -> None:
    known = {a["id"] for a in stack.actions()}
    flood = "vigia flood --tenant red --path linuxbridge-vxlan --from lb1 --rate 400Mbit --seconds 12"
    stack.compose("exec", "-T", "lab", *flood.split())

    def released() -> dict[str, Any] | None:
        new = [a for a in stack.actions() if a["id"] not in known and a["level"] == "L2"]
        return next((a for a in new if a["ended_at"]), None)

    eventually(released, "the flood is limited, and released", SLOW)
    action = released()
    assert action is not None
    assert action["port"] == "lb1-red-110"
    assert action["cause"] in ("evidence", "ttl")  # ttl: the machine was too busy to extend the limit in time
    limited = stack.query('min_over_time(vigia_isolation_limit_bytes_per_second{port="lb1-red-110"}[5m])')
    assert {float(s["value"][1]) for s in limited} == {5e6}  # the 40 Mbit/s that red bought
    eventually(lambda: not stack.query("vigia_isolation_limit_bytes_per_second"), "no limit is left", SLOW)


def test_a_container_of_each_kind_can_be_restarted(stack: Stack) -> None:
    kinds = ("prometheus", "alertmanager", "node_exporter", *AGENTS, "vigia-compare", "isolation-agent")
    lab = ("lb1-probe", "lb1-exporter", "lb1-enforcer", "ovs1-probe", "ovs1-exporter", "ovs1-enforcer")
    actions = {a["id"] for a in stack.actions()}
    moment = time.time()
    before = stack.query("count(vigia_probe_sent_total)", moment)
    stack.compose("restart", *kinds, *lab)
    eventually(lambda: not stack.unwell(), "every container works again", SLOW)
    assert {a["id"] for a in stack.actions()} == actions
    assert stack.query("count(vigia_probe_sent_total)", moment) == before
    test_every_target_is_up(stack)
    eventually(
        lambda: len(stack.query("rate(vigia_probe_received_total[10s]) > 0")) >= len(PAIRS),
        "probes are answered again",
        SLOW,
    )


def test_the_long_term_store_takes_series_from_prometheus(stack: Stack) -> None:
    stack.up("victoria-metrics")
    url = "http://127.0.0.1:8428/api/v1/query"
    wanted = {"query": "count(last_over_time(vigia_probe_sent_total[5m]))"}
    eventually(lambda: stack.get(url, params=wanted).json()["data"]["result"], "the store has series", SLOW)
    stack.compose("rm", "--stop", "--force", "victoria-metrics")


def test_volumes_outlive_the_containers_and_stopping_leaves_nothing(stack: Stack, before: Machine) -> None:
    actions = {a["id"] for a in stack.actions()}
    moment = time.time()
    series = stack.query("count(vigia_probe_sent_total)", moment)
    stack.down()
    stack.up()
    assert {a["id"] for a in stack.actions()} == actions
    assert stack.query("count(vigia_probe_sent_total)", moment) == series
    stack.down("--volumes")
    assert stack.engine.docker("ps", "--all", "--quiet") == ""
    assert stack.engine.docker("volume", "ls", "--quiet") == ""
    assert [p for p in (stack.engine.scratch / "run/lab").rglob("*") if p.is_file()] == []
    stack.engine.stop()
    assert stack.engine.members() == []
    left = Machine.now("demo")  # others may have removed what was theirs meanwhile
    for kind in ("namespaces", "links", "rules", "mounts", "processes", "pins", "run"):
        assert set(getattr(left, kind)) <= set(getattr(before, kind)), kind
