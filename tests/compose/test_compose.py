"""docker-compose.yml, really run: on an engine of the tests' own, with images from Debian packages."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from composekit import SLOW, Engine, Stack, remove
from labkit import Machine, need_root

from vigia.certs.authority import Authority
from vigia.lab import model, topology
from vigia_testing import eventually

pytestmark = pytest.mark.compose

NODES = ("node1", "node2")
AGENTS = ("vigia-probe", "vigia-exporter", "vigia-enforcer")
SITE = ("prometheus", "alertmanager", "node", "isolation-agent", "vigia-compare")
LISTENERS = {("127.0.0.1", port) for port in (9090, 9093, 9100, 9874, 9875)}
LISTENERS |= {
    (f"127.{a}", port) for a in ("0.0.1", *(f"77.0.{i}" for i in range(1, 3))) for port in (9871, 9872, 9873)
}
"""Everything that has to show a certificate, and asks for one, with the profile tls."""

STORE = ("127.0.0.1", 8428)
TLS = "/etc/vigia/prometheus/tls"
PAIRS = {
    (target.path, target.source, target.destination)
    for lab in (model.resolve(topology.default()),)
    for node in lab.nodes
    for target in lab.targets(node)
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
    wanted = {(job, None) for job in (*SITE, "vigia-compare-verdicts")}
    pages = [f"{agent}{page}" for agent in AGENTS for page in ("", "-fast")]
    wanted |= {(job, node) for job in pages for node in (*NODES, "this-machine")}

    def up() -> bool:
        found = {(s["metric"]["job"], s["metric"].get("node"), s["value"][1]) for s in stack.query("up")}
        return found == {(*target, "1") for target in wanted}

    eventually(up, "every target is up, and nothing else is scraped", SLOW)


def test_every_path_and_tenant_has_series(stack: Stack) -> None:
    def measured() -> bool:
        counts = stack.query("histogram_count(vigia_probe_rtt_seconds) > 20")
        labels = [s["metric"] for s in counts]
        pairs = {(m["path"], m["src"], m["dst"]) for m in labels}
        tenants = {(m["path"], m["tenant"]) for m in labels}
        overlays = {n.path for n in topology.default().networks if n.tenant == "red"}
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


def test_images_are_small(stack: Stack) -> None:
    base = stack.size("vigia-offline/debian:local")
    sizes = {
        s: stack.size(stack.container(s)["Image"])
        for s in ("vigia-probe", "vigia-exporter", "vigia-enforcer")
    }
    assert all(size < 32 << 20 for size in sizes.values()), sizes
    added = {s: stack.size(stack.container(s)["Image"]) - base for s in ("isolation-agent", "vigia-compare")}
    assert all(0 < size < 320 << 20 for size in added.values()), added


def test_secrets_are_in_files_alone(stack: Stack) -> None:
    files = "cat /etc/vigia/*/*.token /etc/vigia/*/*.password"
    secrets = set(
        stack.compose("run", "--rm", "-T", "--no-deps", "--entrypoint", "sh", "init", "-c", files).split()
    )
    assert len(secrets) >= 6
    for service in stack.services():
        found = stack.container(service)
        said = json.dumps(found) + stack.engine.docker("logs", found["Id"], stderr=True)
        assert not [s for s in secrets if s in said], service
        layers = stack.engine.docker("history", "--no-trunc", found["Image"])
        assert not [s for s in secrets if s in layers], service


def test_no_part_reads_the_secrets_of_another(stack: Stack) -> None:
    for service in sorted(set(stack.services()) - {"init", "lab"}):
        part = re.sub(r"^node\d-", "vigia-", service)
        mounts = stack.container(service)["Mounts"]
        volumes = {m["Destination"] for m in mounts if "_config" in m.get("Name", "")}
        assert volumes == {f"/etc/vigia/{part}"}, service
    for service in ("prometheus", "alertmanager", "isolation-agent", "vigia-compare"):  # these have a shell
        tried = "for f in /etc/vigia/*/*.token /etc/vigia/*/*.password /etc/vigia/*/*/*.key /etc/vigia/ca/*"
        seen = stack.compose(
            "exec", "-T", service, "sh", "-c", tried + '; do cat "$f" >/dev/null && echo "$f"; done; true'
        )
        assert all(file.startswith(f"/etc/vigia/{service}/") for file in seen.split()), (service, seen)


def test_evidence_outlives_the_container(stack: Stack) -> None:
    """What pairs of paths have shown is in a volume of vigia-compare's own: none begins anew with it."""
    began = (
        "min by (a, b, metric, probe, placement, machines) (vigia_compare_evidence_since_timestamp_seconds)"
    )

    def pairs() -> dict[tuple[str, ...], float]:
        return {tuple(sorted(r["metric"].items())): float(r["value"][1]) for r in stack.query(began)}  # type: ignore[misc]

    eventually(pairs, "evidence on a pair", SLOW)
    before, at = pairs(), time.time()
    stack.compose("up", "-d", "--force-recreate", "--no-deps", "vigia-compare")
    evaluated = "vigia_compare_last_evaluation_timestamp_seconds"
    eventually(
        lambda: [r for r in stack.query(evaluated) if float(r["value"][1]) > at], "an evaluation", SLOW
    )
    since, shown = time.time(), "max(timestamp(vigia_compare_evidence_since_timestamp_seconds))"
    eventually(
        lambda: [r for r in stack.query(shown) if float(r["value"][1]) > since],
        "its page to be scraped",
        SLOW,
    )
    after = pairs()
    assert {k: after[k] for k in before if k in after} == {k: before[k] for k in before if k in after}
    assert set(before) & set(after)


def test_a_flood_is_limited_and_released(stack: Stack) -> None:
    flood(stack)


def flood(stack: Stack) -> None:
    """Flood, and see the limit and its release: all the way from the kernel to the agent and back.

    A machine so busy that the agent cannot look for twenty seconds lets the limit end by its TTL, as it
    should; then the flood comes again, since a release on evidence has to be seen.
    """
    causes: list[str] = []
    while "evidence" not in causes:
        assert len(causes) < 3, causes
        causes.append(flood_once(stack))
        assert causes[-1] in ("evidence", "ttl")
    eventually(lambda: not stack.query("vigia_isolation_limit_bytes_per_second"), "no limit is left", SLOW)


def flood_once(stack: Stack) -> str:
    """Flood, see the limit, and return why it ended."""
    known = {a["id"] for a in stack.actions()}
    began = time.time()
    words = "vigia flood --tenant red --path linuxbridge-vxlan --from node1 --rate 400Mbit --seconds 12"
    stack.compose("exec", "-T", "lab", *words.split())

    def ended() -> list[dict[str, Any]]:
        new = [a for a in stack.actions() if a["id"] not in known and a["level"] == "L2"]
        return [a for a in new if a["ended_at"]]

    eventually(ended, "the flood is limited, and released", SLOW)
    (action,) = ended()
    assert action["port"] == "node1-red-110"
    limit = 'vigia_isolation_limit_bytes_per_second{port="node1-red-110"}'
    limited = stack.query(f"min_over_time({limit}[{time.time() - began:.0f}s])")
    assert {float(s["value"][1]) for s in limited} == {5e6}  # the 40 Mbit/s that red bought
    return str(action["cause"])


def test_all_containers_can_be_restarted(stack: Stack) -> None:
    """One of each kind, and the lab with its agents, which live in its namespaces."""
    actions = {a["id"] for a in stack.actions()}
    moment = time.time()
    before = stack.query("count(vigia_probe_sent_total)", moment)
    stack.compose("restart")
    eventually(lambda: not stack.unwell(), "every container works again", SLOW)
    assert {a["id"] for a in stack.actions()} == actions
    assert stack.query("count(vigia_probe_sent_total)", moment) == before
    test_every_target_is_up(stack)
    answered = "rate(vigia_probe_received_total[1m]) > 0"

    def measured() -> bool:
        labels = [s["metric"] for s in stack.query(answered)]
        return {(m["path"], m["src"], m["dst"]) for m in labels} == PAIRS

    eventually(measured, "probes are answered on every path again", SLOW)


def test_the_long_term_store_takes_series_from_prometheus(stack: Stack) -> None:
    url = f"http://{STORE[0]}:{STORE[1]}/api/v1/query"
    moment = time.time() - 45  # it answers with what it took some time ago
    query = {"query": "count(last_over_time(vigia_probe_sent_total[5m]))", "time": str(moment)}
    eventually(lambda: stack.get(url, params=query).json()["data"]["result"], "it has series", SLOW)


def test_volumes_outlive_the_containers(stack: Stack) -> None:
    """The second start is one with certificates: that what is there is kept holds for it, too."""
    actions = {a["id"] for a in stack.actions()}
    moment = time.time()
    series = stack.query("count(vigia_probe_sent_total)", moment)
    stack.down()
    stack.profiles = "lab,metrics,tls"
    stack.up()
    stack.client = {"verify": client(stack, "prometheus")}
    assert {a["id"] for a in stack.actions()} == actions
    assert stack.query("count(vigia_probe_sent_total)", moment) == series


def client(stack: Stack, part: str | None) -> ssl.SSLContext:
    """A client that trusts the site's authority, and shows a part's certificate or none."""
    context = ssl.create_default_context(cadata=stack.read("prometheus", f"{TLS}/ca.crt"))
    if part is not None:
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"{part}.crt", f"{part}.key"):
                Path(folder, name).write_text(stack.read(part, f"/etc/vigia/{part}/tls/{name}"))
            context.load_cert_chain(Path(folder, f"{part}.crt"), Path(folder, f"{part}.key"))
    return context


def test_with_certificates_every_target_is_up(stack: Stack) -> None:
    test_every_target_is_up(stack)
    targets = stack.get("https://127.0.0.1:9090/api/v1/targets").json()["data"]["activeTargets"]
    assert {t["scrapeUrl"].split(":")[0] for t in targets} == {"https"}


def test_with_certificates_nothing_else_listens(stack: Stack) -> None:
    assert stack.listeners() == LISTENERS | {STORE}


def test_who_is_not_of_the_site_is_refused(stack: Stack, tmp_path: Path) -> None:
    stranger = Authority.open(tmp_path).issue("prometheus", ())
    nobody, wrong = client(stack, None), client(stack, None)
    wrong.load_cert_chain(stranger.certificate, stranger.key)
    for address, port in sorted(LISTENERS):
        where = f"{address}:{port}/metrics"
        # Alertmanager asks whoever has a certificate for the password as well.
        assert stack.get(f"https://{where}").status_code == (401 if port == 9093 else 200), where
        for context in (nobody, wrong):
            with pytest.raises(httpx.TransportError):
                ask(stack, f"https://{where}", context)
        assert not answers_plain(stack, where), where


def answers_plain(stack: Stack, where: str) -> bool:
    """Whether a listener serves clients without TLS; Go tells them what they did wrong, with 400."""
    try:
        return ask(stack, f"http://{where}", ssl.create_default_context()).status_code != 400
    except httpx.TransportError:
        return False


def ask(stack: Stack, url: str, context: ssl.SSLContext) -> httpx.Response:
    """Ask as somebody else."""

    def call() -> httpx.Response:
        return httpx.get(url, verify=context, trust_env=False, timeout=90)

    return stack.engine.inside(call)


def test_the_store_shows_a_certificate_and_asks_prometheus_with_its_own(stack: Stack) -> None:
    where = f"{STORE[0]}:{STORE[1]}"
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(stack, f"https://{where}/health", ssl.create_default_context())
    assert not answers_plain(stack, f"{where}/health")

    def targets() -> list[tuple[str, str]]:
        found = ask(stack, f"https://{where}/api/v1/targets", client(stack, None)).json()
        return [(t["scrapeUrl"].split("?")[0], t["health"]) for t in found["data"]["activeTargets"]]

    eventually(lambda: targets() == [("https://127.0.0.1:9090/federate", "up")], "the store asks", SLOW)


def test_with_certificates_a_flood_is_limited_and_released(stack: Stack) -> None:
    """Prometheus, Alertmanager, agent and enforcer ask each other with certificates and tokens."""
    flood(stack)
    for url in ("https://127.0.0.1:9874/v1/actions", "https://127.77.0.1:9873/v1/state"):
        assert stack.get(url).status_code == 401  # a certificate alone is not enough


def test_stopping_leaves_nothing(stack: Stack, before: Machine) -> None:
    stack.down("--volumes")
    assert stack.engine.docker("ps", "--all", "--quiet") == ""
    assert stack.engine.docker("volume", "ls", "--quiet") == ""
    assert [p for p in (stack.engine.scratch / "run/lab").rglob("*") if p.is_file()] == []
    stack.engine.stop()
    assert stack.engine.members() == []
    left = Machine.now("demo")  # others may have removed what was theirs meanwhile
    for kind in ("namespaces", "links", "rules", "mounts", "processes", "pins", "run"):
        assert set(getattr(left, kind)) <= set(getattr(before, kind)), kind
