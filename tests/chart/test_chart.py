"""The chart without a cluster: what it renders, what the programs say to it, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import chartkit
import pytest
import yaml
from chartkit import CHART, ROOT, documents, helm, render, template

from vigia.certs.authority import Authority

NAMES = [p.stem for p in chartkit.values_files()]
BIN = Path(sys.executable).parent


def test_lint() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_goldens_for_at_least_eight_values_files() -> None:
    assert len(NAMES) >= 8
    assert {p.name for p in chartkit.GOLDEN.glob("*")} == {f"{n}.yaml" for n in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_rendered_is_what_was_seen(name: str) -> None:
    seen = (chartkit.GOLDEN / f"{name}.yaml").read_text()
    assert chartkit.golden(name) == seen, "if it is meant: make chart, and look at what git diff shows"


def test_kubernetes_takes_the_objects(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.yaml").write_text(render(name))
    done = subprocess.run(
        ["go", "test", "-count=1", "./..."],
        cwd=ROOT / "tests/chart/objects",
        env={**os.environ, "VIGIA_RENDERED": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_has_rules_and_dashboards_and_no_tests(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        ["tar", "-tzf", *tmp_path.glob("vigia-*.tgz")], capture_output=True, text=True, check=True
    ).stdout.split()
    for folder, here in (("alert-rules", "alert-rules"), ("dashboards", "dashboards/json")):
        packed = {Path(f).name for f in listed if f.startswith(f"vigia/files/{folder}/")}
        assert packed == {p.name for p in (ROOT / here).iterdir() if p.is_file()}
    assert next(tmp_path.glob("*.tgz")).stat().st_size < 500_000, (
        "a release has to fit into a Secret of 1 MiB"
    )


def config_maps(name: str) -> dict[str, dict[str, str]]:
    return {
        d["metadata"]["name"]: d.get("data", {}) for d in documents(render(name)) if d["kind"] == "ConfigMap"
    }


# The programs read what is rendered


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a pod finds in its volumes."""
    for folder in ("etc/vigia", "etc/vigia-secret", "run/vigia/site", "run/vigia/ports-on-node", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for token in ("token", "webhook.token", "api.token", "approver.token", "enforcer.token", "password"):
        path = tmp_path / "etc/vigia-secret" / token
        path.write_text(f"{token}-of-sixteen-characters-or-more")
        path.chmod(0o400)
    Authority.open(tmp_path / "etc/vigia-cluster")  # the cluster's, which is called ca.crt as well
    (tmp_path / "run/vigia/ports-on-node/node-ports.yaml").write_text("version: 1\nports: []\n")
    monkeypatch.setenv("NODE_NAME", "n1")
    monkeypatch.setenv("HOST_IP", "10.0.0.1")
    monkeypatch.setenv("POD_IP", "10.244.1.7")
    return tmp_path


def unpack(node: Path, content: dict[str, str]) -> Path:
    """Write a ConfigMap's files, with the paths of a pod moved below the folder."""
    for name, text in content.items():
        moved = re.sub(r"(?<![A-Za-z0-9])/(etc/vigia|run/vigia)", rf"{node}/\1", text)
        (node / "etc/vigia" / name).write_text(moved)
    return node / "etc/vigia"


PROGRAMS = {
    "probe": (ROOT / "bin/vigia-probe", "probe.yaml"),
    "probe-pods": (ROOT / "bin/vigia-probe", "probe.yaml"),
    "exporter": (ROOT / "bin/vigia-exporter", "exporter.yaml"),
    "enforcer": (ROOT / "bin/vigia-enforcer", "enforcer.yaml"),
    "isolation-agent": (BIN / "isolation-agent", "isolation-agent.yaml"),
    "compare": (BIN / "vigia-compare", "compare.yaml"),
    "identity": (BIN / "vigia-identity", "identity.yaml"),
}


@pytest.mark.parametrize("name", NAMES)
def test_programs_take_their_configuration(name: str, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "ipv6":
        monkeypatch.setenv("HOST_IP", "2001:db8::1")
        monkeypatch.setenv("POD_IP", "2001:db8:1::7")
    rendered = config_maps(name)
    checked = 0
    for component, (program, file) in PROGRAMS.items():
        content = rendered.get(f"vigia-{component}")
        if content is None:
            continue
        path = unpack(node, content) / file
        argv = [program, "check-config", "--config", path]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{component}: {done.stdout}{done.stderr}"
        checked += 1
    assert checked == len([c for c in PROGRAMS if f"vigia-{c}" in rendered]) >= 3


@pytest.mark.parametrize("name", [n for n in NAMES if n != "operator"])
def test_prometheus_and_alertmanager_take_their_configuration(name: str, node: Path) -> None:
    folder = unpack(node, config_maps(name)["vigia-prometheus"])
    done = subprocess.run(
        ["promtool", "check", "config", folder / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (secret,) = [
        d
        for d in documents(render(name))
        if d["kind"] == "Secret" and d["metadata"]["name"] == "vigia-alertmanager"
    ]
    unpack(node, secret["stringData"])
    done = subprocess.run(
        ["amtool", "check-config", folder / "alertmanager.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    receivers = {r["name"] for r in yaml.safe_load((folder / "alertmanager.yml").read_text())["receivers"]}
    assert ("isolation-agent" in receivers) == (name != "probes-alone")


def groups(text: str) -> Any:
    return yaml.safe_load(text)["groups"]


def test_rules_are_those_of_alert_rules() -> None:
    files = sorted((ROOT / "alert-rules").glob("*.rules.yml"))
    found = {
        d["metadata"]["name"]: d["spec"]["groups"]
        for d in documents(render("operator"))
        if d["kind"] == "PrometheusRule"
    }
    assert found == {
        f"vigia-{p.name.removesuffix('.rules.yml')}": groups(p.read_text().replace('job="node"', 'job="node-exporter"')) for p in files
    }  # fmt: skip
    own = config_maps("default")["vigia-prometheus"]
    for p in files:
        wanted = groups(p.read_text())
        for group in wanted:
            group["rules"] = [r for r in group["rules"] if r.get("alert") != "VigiaNodeExporterDown"]
        assert groups(own[p.name]) == wanted


def test_dashboards_are_those_of_dashboards() -> None:
    files = {p.name: json.loads(p.read_text()) for p in (ROOT / "dashboards/json").glob("*.json")}
    maps = [
        d
        for d in documents(render("operator"))
        if d["kind"] == "ConfigMap" and "grafana_dashboard" in d["metadata"]["labels"]
    ]
    assert {k: json.loads(v) for d in maps for k, v in d["data"].items()} == files
    resources = [
        d["spec"]["configMapRef"] for d in documents(render("operator")) if d["kind"] == "GrafanaDashboard"
    ]
    assert {(r["name"], r["key"]) for r in resources} == {(d["metadata"]["name"], *d["data"]) for d in maps}


def scraped_jobs(name: str) -> set[str]:
    """The values of the label job that rules and panels select by."""
    if name == "operator":
        found = [d["spec"] for d in documents(render(name)) if d["kind"] in ("PodMonitor", "ServiceMonitor")]
        ends = [e for spec in found for e in spec.get("podMetricsEndpoints", spec.get("endpoints", []))]
        return {r["replacement"] for e in ends for r in e["relabelings"] if r["targetLabel"] == "job"}
    config = yaml.safe_load(config_maps(name)["vigia-prometheus"]["prometheus.yml"])
    return {
        next(
            (r["replacement"] for r in s.get("relabel_configs", ()) if r.get("target_label") == "job"),
            s["job_name"],
        )
        for s in config["scrape_configs"]
    }


@pytest.mark.parametrize("name", ["default", "operator"])
def test_jobs_are_called_as_rules_call_them(name: str) -> None:
    text = "".join(p.read_text() for p in (ROOT / "alert-rules").glob("*.rules.yml"))
    wanted = set(re.findall(r'job="([^"]+)"', text)) - {"node"}
    assert wanted <= scraped_jobs(name)


# Secrets


def test_no_secret_is_in_the_values_or_twice_the_same() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(map(str, values["secrets"].values())) == {"{'existingSecret': ''}"}
    first, second = (
        {d["metadata"]["name"]: d["data"] for d in documents(text) if d["kind"] == "Secret" and "data" in d}
        for text in (render("default"), template("--values", chartkit.VALUES / "default.yaml").stdout)
    )
    assert set(first) == {
        f"vigia-{n}"
        for n in ("enforcer-token", "webhook-token", "api-token", "approver-token", "alertmanager-password")
    }
    values_ = [v for d in (*first.values(), *second.values()) for v in d.values()]
    assert len(set(values_)) == len(values_), "each is made at random, each time"
    assert all(
        d["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        for d in documents(render("default"))
        if d["kind"] == "Secret" and "data" in d
    )


def test_given_secrets_are_taken_and_none_is_made() -> None:
    kinds = [d["metadata"]["name"] for d in documents(render("given")) if d["kind"] == "Secret"]
    assert kinds == ["vigia-alertmanager"], "its configuration, which has no password of the chart"
    for name in ("enforcer", "webhook", "api", "approver", "alertmanager", "grafana"):
        assert f"given-{name}" in render("given")


# What is refused


def set_at(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "value", "at"),
    [
        ("prob", {}, "prob"),
        ("probe.network", {}, "/probe"),
        ("probe.networks.host.port", "862", "/probe/networks/host/port"),
        ("probe.networks.host.port", 70000, "/probe/networks/host/port"),
        ("probe.networks.host.path", {"name": "a b"}, "/probe/networks/host/path/name"),
        ("probe.classes", [], "/probe/classes"),
        ("probe.classes", [{"name": "a", "protocol": "ntp", "interval": "1s"}], "/probe/classes/0/protocol"),
        ("probe.twins", {"enabled": "on"}, "/probe/twins/enabled"),
        ("probe.services.nodePort", 30001, "/probe/services/nodePort"),
        ("probe.dns.server", "10.96.0.10", "/probe/dns/server"),
        ("probe.dns.query", "a b", "/probe/dns/query"),
        ("probe.dns.endpoints.port", 0, "/probe/dns/endpoints/port"),
        ("probe.dns.endpoints.selector", "kube-dns", "/probe/dns/endpoints/selector"),
        ("probe.dns.endpoints.namespace", "a.b", "/probe/dns/endpoints/namespace"),
        ("probe.apiServer.endpoint", "10.0.0.1", "/probe/apiServer/endpoint"),
        ("probe.apiServer.path", "readyz", "/probe/apiServer/path"),
        ("probe.apiServer.interval", "10", "/probe/apiServer/interval"),
        ("probe.allow", ["10.0.0.1"], "/probe/allow/0"),
        ("probe.mesh.within", "site", "/probe/mesh/within"),
        ("probe.extraArgs", ["rm -rf"], "/probe/extraArgs/0"),
        ("image.pullPolicy", "Sometimes", "/image/pullPolicy"),
        ("image.tag", "a b", "/image/tag"),
        ("nodes.updateStrategy.type", "Recreate", "/nodes/updateStrategy/type"),
        ("nodes.tolerations", [{"operator": "Any"}], "/nodes/tolerations/0/operator"),
        ("priorityClass.value", 2000000000, "/priorityClass/value"),
        ("networkPolicy.monitoring", [{}], "/networkPolicy/monitoring/0"),
        ("secrets.apiToken.existingSecret", "A_B", "/secrets/apiToken/existingSecret"),
        ("secrets.apiToken.value", "s3cret", "/secrets/apiToken"),
        ("ports.list", [{"device": "tap0"}], "/ports/list/0"),
        ("ports.pinDir", "/run/vigia", "/ports/pinDir"),
        ("ports.hostFile", "ports.yaml", "/ports/hostFile"),
        ("ports.maxPorts", 0, "/ports/maxPorts"),
        ("enforcer.contracts", [{"tenant": "red"}], "/enforcer/contracts/0"),
        ("enforcer.contracts", [{"tenant": "red", "guarantee": "fast"}], "/enforcer/contracts/0/guarantee"),
        ("enforcer.links", [{"device": "eth0", "rate": 10}], "/enforcer/links/0/rate"),
        ("exporter.resources", {"limits": {"memory": "much"}}, "/exporter/resources/limits/memory"),
        ("isolationAgent.dryRun", "yes", "/isolationAgent/dryRun"),
        ("isolationAgent.hosts", [{"node": "n1", "url": "n1:9873"}], "/isolationAgent/hosts/0/url"),
        ("isolationAgent.persistence.size", "2 GB", "/isolationAgent/persistence/size"),
        ("compare.replicas", 2, "/compare"),
        ("identity.every", "15", "/identity/every"),
        ("identity.guarantees", {"enabled": 1}, "/identity/guarantees/enabled"),
        ("identity.guarantees", {"podAnnotations": "yes"}, "/identity/guarantees/podAnnotations"),
        ("identity.approvals", {"enabled": 1}, "/identity/approvals/enabled"),
        ("prometheus.url", "prometheus:9090", "/prometheus/url"),
        ("prometheus.retention.size", "8Gi", "/prometheus/retention/size"),
        ("rules.disabled", ["NodeDown"], "/rules/disabled/0"),
        ("dashboards.sidecarLabels", {"a": 1}, "/dashboards/sidecarLabels/a"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(path: str, value: Any, at: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(set_at(path, value)))
    done = template("--values", tmp_path / "values.yaml")
    assert done.returncode != 0
    assert at in done.stderr, done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"prometheus": {"enabled": False}}, "prometheus.url: is missing and prometheus.enabled is false; write"),
        ({"identity": {"enabled": False}}, "isolationAgent.hosts: is missing and identity.enabled is false"),
        ({"grafana": {"enabled": True}, "dashboards": {"enabled": False}}, "grafana.enabled: has nothing to show"),
        (
            {"exporter": {"enabled": False}, "enforcer": {"enabled": False},
             "probe": {"networks": {"host": {"enabled": False}, "pods": {"enabled": False}}}},
            "identity.enabled: there is no pod of a node to be found",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_the_fix(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = template("--values", tmp_path / "values.yaml")
    assert done.returncode != 0
    assert says in done.stderr, done.stderr


def test_an_old_cluster_is_refused() -> None:
    done = helm("template", "vigia", CHART, "--kube-version", "1.28.0")
    assert done.returncode != 0 and "kubeVersion" in done.stderr


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(value: Any, known: dict[str, Any], at: str) -> None:
        if not isinstance(value, dict) or known.get("additionalProperties", True) is not False:
            return
        ours = set(known["properties"])
        missing = (
            ours - set(value) - {"claims", "global", "limits", "localhostProfile", "maxSurge", "requests"}
        )
        assert not missing and set(value) <= ours, f"{at}: {missing or set(value) - ours}"
        for key, inner in value.items():
            compare(inner, known["properties"][key], f"{at}.{key}")

    compare(values, schema, "values")


def targets(*arguments: str) -> dict[str, dict[str, Any]]:
    """What is probed that is no node, by path, of both probers."""
    done = template(*arguments)
    assert done.returncode == 0, done.stderr
    found = {}
    for d in documents(done.stdout):
        text = (d.get("data") or {}).get("probe.yaml") if d["kind"] == "ConfigMap" else None
        for target in (yaml.safe_load(text)["targets"] or []) if text else []:
            found[f"{target['probe']} {target['path']}"] = target
    return found


def dns_services(*arguments: str) -> list[dict[str, Any]]:
    """The Services without address by which pods of the DNS are found."""
    services = [d for d in documents(template(*arguments).stdout) if d["kind"] == "Service"]
    return [s for s in services if s["metadata"]["namespace"] != "vigia"]


@pytest.mark.parametrize("source", ["host", "pods"])
def test_what_a_cluster_lives_by_is_asked_past_its_services_at_the_same_moment(source: str) -> None:
    found = targets("--set", "probe.apiServer.endpoint=10.0.0.1:6443")
    (service,) = dns_services()
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert (service["spec"]["clusterIP"], service["spec"]["selector"]) == ("None", {"k8s-app": "kube-dns"})
    for probe, past, address in (
        ("cluster-dns", "dns", f"{name}.{namespace}.svc:53"),
        ("api-server", "api-server", "10.0.0.1:6443"),
    ):
        assert found[f"{probe} {source}-to-service"]["twin"] == f"{source}-to-{past}"
        twin = found[f"{probe} {source}-to-{past}"]
        assert (twin["address"], twin["dst"], "twin" in twin) == (address, probe, False)


@pytest.mark.parametrize(
    ("arguments", "past"),
    [
        ((), {"dns"}),
        (("--set", "probe.dns.endpoints.enabled=false"), set()),
        (("--set", "probe.dns.enabled=false"), set()),
        (("--set", "probe.twins.enabled=false,probe.apiServer.endpoint=10.0.0.1:6443"), set()),
        (("--set", "probe.dns.enabled=false,probe.apiServer.endpoint=10.0.0.1:6443"), {"api-server"}),
        (("--set", "probe.apiServer.enabled=false,probe.apiServer.endpoint=10.0.0.1:6443"), {"dns"}),
    ],
)
def test_only_what_is_known_is_asked_past_its_service(arguments: tuple[str, ...], past: set[str]) -> None:
    found = targets(*arguments)
    ways = {t["path"].partition("-to-")[2] for t in found.values()} - {"service"}
    assert ways == past
    assert {t["twin"].partition("-to-")[2] for t in found.values() if "twin" in t} == past
    assert len(dns_services(*arguments)) == ("dns" in past)


def test_services_of_releases_do_not_meet_in_the_namespace_of_the_dns() -> None:
    names = set()
    for namespace in ("one", "two"):
        done = helm("template", "vigia", CHART, "--kube-version", chartkit.KUBERNETES, "-n", namespace)
        services = [d for d in documents(done.stdout) if d["kind"] == "Service"]
        names |= {s["metadata"]["name"] for s in services if s["metadata"]["namespace"] == "kube-system"}
    assert len(names) == 2


def test_names_are_short_enough_for_long_releases() -> None:
    done = helm("template", "r" * 53, CHART, "--kube-version", chartkit.KUBERNETES, "--namespace", "n" * 63)
    assert done.returncode == 0, done.stderr
    names = [d["metadata"]["name"] for d in documents(done.stdout) if d["kind"] == "Service"]
    assert names and all(len(n) <= 63 for n in names)


def test_notes_say_what_to_open(tmp_path: Path) -> None:
    """Helm shows notes of a release alone; a copy of the chart has them in an object."""
    copy = shutil.copytree(CHART, tmp_path / "vigia")
    text = (copy / "templates/NOTES.txt").read_text()
    wrapped = (
        '{{- define "test.notes" -}}'
        + text
        + '{{- end }}{{ dict "notes" (include "test.notes" .) | toYaml }}'
    )
    (copy / "templates/notes.yaml").write_text(wrapped)
    fixed = (
        "--namespace",
        "vigia",
        "--kube-version",
        chartkit.KUBERNETES,
        "--show-only",
        "templates/notes.yaml",
    )
    for name, wanted, unwanted in (
        ("default", "vigia-isolation-agent 9874|vigia-compare 9875|vigia-prometheus 9090|helm -n vigia test vigia|enforcer.contracts is empty", "No source of tenants"),
        ("operator", "Your Alertmanager has to send|vigia-webhook-token|native-histograms|kube-prometheus-stack", "prometheus 9090"),
        ("small", "vigia-grafana 3000|vigia-grafana-password|persistence is off", "native-histograms"),
        ("open-vswitch", "vigia-compare 9875", "No source of tenants"),
    ):  # fmt: skip
        done = helm("template", "vigia", copy, *fixed, "--values", chartkit.VALUES / f"{name}.yaml")
        assert done.returncode == 0, done.stderr
        (notes,) = (d["notes"] for d in documents(done.stdout))
        assert all(said in notes for said in wanted.split("|")), notes
        assert unwanted not in notes
    without = ("--values", chartkit.VALUES / "default.yaml", "--set", "ports.cni.enabled=false")
    done = helm("template", "vigia", copy, *fixed, *without)
    assert "No source of tenants" in documents(done.stdout)[0]["notes"], done.stderr


def test_another_name_and_labels_are_everywhere() -> None:
    done = template("--set", "fullnameOverride=lookout,commonLabels.team=network")
    assert done.returncode == 0, done.stderr
    for d in documents(done.stdout):
        assert "lookout" in d["metadata"]["name"], d["metadata"]
        assert d["metadata"]["labels"]["team"] == "network", d["metadata"]
    assert "vigia-probe.json" not in done.stdout


GUIDE = (ROOT / "docs/how-to/kubernetes.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"<!-- test: values -->\n```yaml\n(.*?)```", GUIDE, re.DOTALL))
def test_examples_of_the_guide_render(example: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(example)
    done = template("--values", tmp_path / "values.yaml")
    assert done.returncode == 0, done.stderr


def test_the_guide_builds_every_image_that_is_used() -> None:
    (listed,) = re.findall(r"for image in (.+); do", GUIDE)
    used = set(re.findall(r"image: vigia/([a-z-]+):", "".join(render(n) for n in NAMES)))
    targets = set(
        re.findall(r" AS ([a-z-]+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    )
    assert used == set(listed.split()) <= targets


def test_the_guide_names_the_rights_of_every_pod() -> None:
    rows = re.findall(
        r"^\| ([a-zA-Z, -]+) \| [^|]+ \| ([0-9a-z, ]+) \| ([A-Z_, a-z]+) \|", GUIDE, re.MULTILINE
    )
    said = {
        part.strip().lower(): (users.split(", ")[min(i, users.count(","))], rights)
        for parts, users, rights in rows
        if "user" not in users
        for i, part in enumerate(parts.split(","))
    }
    for name in ("default", "small"):
        for d in documents(render(name)):
            if d["kind"] not in ("DaemonSet", "Deployment", "StatefulSet"):
                continue
            pod = d["spec"]["template"]["spec"]
            component = d["metadata"]["labels"]["app.kubernetes.io/component"]
            user = pod["securityContext"]["runAsUser"]
            added = pod["containers"][0]["securityContext"]["capabilities"].get("add", [])
            assert said[component] == (str(user) if user else "root", ", ".join(added) or "none")
