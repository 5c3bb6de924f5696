"""deploy/kolla and `make kolla`, as kolla-ansible reads them: made by Ansible's own templates, merged, and checked by promtool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from labkit import ROOT
from pagekit import blocks, page

GUIDE = blocks(page("how-to/kolla-ansible.md"))

FILTERS = """
import ipaddress
def put_address_in_context(address, context):
    return f"[{address}]" if ":" in address else address
class FilterModule:
    def filters(self):
        given = {"compute1": "10.0.0.11", "compute2": "fd00::12", "control1": "10.0.0.1"}
        return {"kolla_address": lambda network, host: given[host], "put_address_in_context": put_address_in_context}
"""
"""What kolla-ansible has as filters, for the hosts of these tests."""

THEIRS: dict[str, Any] = {
    "global": {"scrape_interval": "60s", "scrape_timeout": "10s", "evaluation_interval": "15s"},
    "scrape_configs": [
        {"job_name": "prometheus_server", "static_configs": [{"targets": ["10.0.0.1:9091"]}]},
        {"job_name": "node", "static_configs": [{"targets": ["10.0.0.11:9100"]}]},
        {"job_name": "openstack_network_exporter", "static_configs": [{"targets": ["10.0.0.11:1981"]}]},
    ],
}
"""The form of what kolla-ansible has itself."""


def put(folder: Path, *options: str) -> Path:
    """Do what the guide says, with a folder of the test's own."""
    command = GUIDE["put"].replace("/etc/kolla/config", str(folder)).split()
    subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True)
    return folder / "prometheus"


def templated(file: Path, folder: Path, **variables: Any) -> dict[str, Any]:
    """Have Ansible make a template, with an inventory as kolla-ansible has it."""
    (folder / "filters").mkdir(exist_ok=True)
    (folder / "filters/kolla.py").write_text(FILTERS)
    made = folder / "made.yml"
    names = ("compute1", "compute2", "control1")
    inventory = {
        "all": {
            "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
            "children": {
                "compute": {"hosts": dict.fromkeys(names[:2])},
                "prometheus": {"hosts": {names[2]: None}},
            },
        }
    }
    (folder / "inventory.json").write_text(json.dumps(inventory))
    # kolla-ansible gathers facts of every host.
    known = {
        "ansible_hostname": "{{ inventory_hostname }}",
        "ansible_nodename": "{{ inventory_hostname }}.example.org",
    }
    facts = {"ansible.builtin.set_fact": {**known, "cacheable": True}}
    task = {"ansible.builtin.template": {"src": str(file), "dest": str(made), "mode": "0644"}}
    plays = [
        {"hosts": "all", "gather_facts": False, "tasks": [facts]},
        {"hosts": "control1", "gather_facts": False, "vars": variables, "tasks": [task]},
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = {
        "ANSIBLE_HOME": f"{folder}/home",
        "ANSIBLE_FILTER_PLUGINS": f"{folder}/filters",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "LC_ALL": "C.UTF-8",
    }
    argv = [str(program), "--inventory", str(folder / "inventory.json"), str(folder / "play.yml")]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = yaml.safe_load(made.read_text())
    return found


def merged(*documents: dict[str, Any]) -> dict[str, Any]:
    """Merge as kolla-ansible does with prometheus.yml: lists are extended."""
    out: dict[str, Any] = {}
    for document in documents:
        for key, value in document.items():
            out[key] = (
                [*out.get(key, []), *value] if isinstance(value, list) else {**out.get(key, {}), **value}
            )
    return out


def checked(config: dict[str, Any], folder: Path) -> str:
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    argv = ["promtool", "check", "config", "--syntax-only", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_put_is_what_is_shipped(tmp_path: Path) -> None:
    """One copy of rules and dashboards, under the names that kolla-ansible picks up; a second time changes nothing."""
    folder = put(tmp_path / "config")
    shipped = {
        f.name.removesuffix(".rules.yml"): f.read_text() for f in (ROOT / "alert-rules").glob("*.rules.yml")
    }
    found = {
        f.name.removeprefix("vigia-").removesuffix(".rules"): f.read_text() for f in folder.glob("*.rules")
    }
    assert found == shipped and len(found) >= 8
    assert {f.name for f in folder.iterdir()} == {"prometheus.yml.d", *(f"vigia-{n}.rules" for n in shipped)}
    grafana = folder.parent / "grafana/dashboards/vigia"
    assert {f.name: f.read_text() for f in grafana.iterdir()} == {
        f.name: f.read_text() for f in (ROOT / "dashboards/json").glob("*.json")
    }
    argv = ["promtool", "check", "rules", *map(str, sorted(folder.glob("*.rules")))]
    subprocess.run(argv, check=True, capture_output=True)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    put(tmp_path / "config")
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    folder = put(tmp_path / "config")
    found = merged(THEIRS, templated(folder / "prometheus.yml.d/10-vigia.yml", tmp_path))
    found["rule_files"] = [str(f) for f in sorted(folder.glob("*.rules"))]
    return found


def test_prometheus_takes_what_kolla_merges(config: dict[str, Any], tmp_path: Path) -> None:
    assert "SUCCESS" in checked(config, tmp_path)


def test_the_jobs_are_those_of_the_shipped_configuration(config: dict[str, Any]) -> None:
    """The same names, pages and intervals: rules and dashboards ask for them, and rates of a minute need four scrapes."""
    shipped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    wanted = {
        j["job_name"]: (
            j.get("metrics_path", "/metrics"),
            j.get("scrape_interval", shipped["global"]["scrape_interval"]),
        )
        for j in shipped["scrape_configs"]
        if j["job_name"] not in ("node", "prometheus", "alertmanager")
    }
    ours = [j for j in config["scrape_configs"] if j not in THEIRS["scrape_configs"]]
    assert {j["job_name"]: (j["metrics_path"], j["scrape_interval"]) for j in ours} == wanted
    assert config["global"]["scrape_interval"] == "60s", "kolla-ansible's own jobs keep theirs"
    relabelling = yaml.safe_load((ROOT / "deploy/tenants/relabel.yml").read_text())
    assert all(j["metric_relabel_configs"] == relabelling for j in ours)


def test_targets_are_the_inventorys_with_node_and_fqdn(config: dict[str, Any]) -> None:
    jobs = {j["job_name"]: j for j in config["scrape_configs"]}
    label = {n: {"node": n, "fqdn": f"{n}.example.org"} for n in ("compute1", "compute2", "control1")}
    assert jobs["vigia-exporter-fast"]["static_configs"] == [
        {"targets": ["10.0.0.11:9872"], "labels": label["compute1"]},
        {"targets": ["[fd00::12]:9872"], "labels": label["compute2"]},
    ]
    assert jobs["vigia-compare"]["static_configs"] == [
        {"targets": ["10.0.0.1:9875"], "labels": label["control1"]}
    ]
    assert jobs["vigia-probe"]["scheme"] == "https"
    assert jobs["vigia-probe"]["tls_config"]["key_file"] == "/etc/prometheus/extras/vigia/prometheus.key"


def test_groups_and_tls_are_the_operators_choice(tmp_path: Path) -> None:
    found = templated(
        ROOT / "deploy/kolla/10-vigia.yml",
        tmp_path,
        vigia_nodes="prometheus",
        vigia_site="compute",
        vigia_tls=False,
    )
    jobs = {j["job_name"]: j for j in found["scrape_configs"]}
    assert [s["targets"] for s in jobs["vigia-probe"]["static_configs"]] == [["10.0.0.1:9871"]]
    assert len(jobs["isolation-agent"]["static_configs"]) == 2
    assert all("scheme" not in j and "tls_config" not in j for j in jobs.values())


def test_ovs_exporter_is_scraped_beside_it(tmp_path: Path) -> None:
    """As a job of its own, whose interfaces have the name of the device as vigia_port_info has it; gone when not wanted."""
    folder = put(tmp_path / "config", "OVS_EXPORTER=yes") / "prometheus.yml.d"
    documents = [templated(f, tmp_path) for f in sorted(folder.glob("*.yml"))]
    assert "SUCCESS" in checked(merged(THEIRS, *documents), tmp_path)
    (job,) = [j for j in documents[1]["scrape_configs"] if j["job_name"] == "ovs_exporter"]
    assert [s["targets"] for s in job["static_configs"]] == [["10.0.0.11:9475"], ["[fd00::12]:9475"]]
    assert job["metric_relabel_configs"][0]["target_label"] == "device"
    put(tmp_path / "config")
    assert [f.name for f in folder.iterdir()] == ["10-vigia.yml"]


def test_the_settings_of_the_guide_are_kollas() -> None:
    found = yaml.safe_load(GUIDE["globals.yml"])
    assert found["enable_prometheus"] == "yes"
    assert "--enable-feature=native-histograms" in found["prometheus_cmdline_extras"]
