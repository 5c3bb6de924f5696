"""Files that one part writes and another reads."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from isolation_agent.config import load_settings
from vigia.lab import files as lab_files
from vigia.lab import model, topology
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.stack import files, places
from vigia.stack.places import Places

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def written(tmp_path: Path) -> tuple[Lab, Places]:
    """The demo's lab and stack, as files in a folder of the test's own."""
    demo = model.resolve(topology.default())
    layout = Layout(demo.name, root=tmp_path / "run")
    lab = replace(demo, layout=layout)
    layout.bpffs.mkdir(parents=True)
    lab_files.write(lab, "userspace")
    where = Places(layout, data_root=tmp_path / "data")
    where.directory.mkdir()
    files.write(lab, where)
    return lab, where


def test_the_isolation_agent_accepts_what_the_stack_writes(written: tuple[Lab, Places]) -> None:
    lab, where = written
    settings = load_settings(where.directory / "isolation-agent.yaml")
    assert [h.node for h in settings.config.hosts] == [n.name for n in lab.nodes]
    assert settings.policies.named("udp-flood") is not None


@pytest.mark.parametrize("program", ["probe", "exporter", "enforcer"])
def test_the_agents_accept_what_the_lab_writes(written: tuple[Lab, Places], program: str) -> None:
    lab, _ = written
    for node in lab.nodes:
        config = lab.layout.node(node.name) / f"{program}.yaml"
        done = subprocess.run(
            [ROOT / "bin" / f"vigia-{program}", "check-config", "--config", config],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "OK" in done.stdout


def test_alertmanager_and_prometheus_accept_what_the_stack_writes(written: tuple[Lab, Places]) -> None:
    _, where = written
    for command in (
        ["promtool", "check", "config", "prometheus.yml"],
        ["amtool", "check-config", "alertmanager.yml"],
    ):
        done = subprocess.run(command, cwd=where.directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_configurations_of_the_readmes_are_accepted(tmp_path: Path) -> None:
    """Each yaml block of the programs' READMEs that starts with node: is a whole configuration."""
    (tmp_path / "ports.yaml").write_text("version: 1\nports: []\n")
    (tmp_path / "contracts.yaml").write_text("version: 1\ncontracts: []\n")
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("a-token-of-the-tests-0123456789\n")
    keys = tmp_path / "notice.keys"
    keys.touch(mode=0o600)
    keys.write_text(f"1 compute2 {'ab' * 32}\n")
    blocks = (ROOT / "isolation-agent/enforcer/README.md").read_text().split("```yaml\n")[1:]
    (site,) = [b.split("```")[0] for b in blocks if b.startswith("version:")]
    (tmp_path / "site.yaml").write_text(site)
    checked = 0
    for readme, program in (
        ("exporters/tenant/README.md", "vigia-exporter"),
        ("isolation-agent/enforcer/README.md", "vigia-enforcer"),
        ("probes/README.md", "vigia-probe"),
    ):
        for block in (ROOT / readme).read_text().split("```yaml\n")[1:]:
            example = block.split("```")[0]
            if not example.startswith("node:"):
                continue
            example = example.replace("/etc/vigia/ports.yaml", str(tmp_path / "ports.yaml"))
            example = example.replace("/etc/vigia/contracts.yaml", str(tmp_path / "contracts.yaml"))
            example = example.replace("/etc/vigia/enforcer.token", str(token))
            example = example.replace("/etc/vigia/site.yaml", str(tmp_path / "site.yaml"))
            example = example.replace("/etc/vigia/notice.keys", str(keys))
            config = tmp_path / "example.yaml"
            config.write_text(example)
            done = subprocess.run(
                [ROOT / "bin" / program, "check-config", "--config", config],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{readme}: {done.stderr}"
            checked += 1
    assert checked >= 3


def test_the_readmes_ports_file_is_accepted(tmp_path: Path) -> None:
    blocks = (ROOT / "exporters/tenant/README.md").read_text().split("```yaml\n")[1:]
    (ports,) = [b.split("```")[0] for b in blocks if b.startswith("version:")]
    (tmp_path / "ports.yaml").write_text(ports)
    config = tmp_path / "exporter.yaml"
    config.write_text(f"node: n\nports_file: {tmp_path / 'ports.yaml'}\nbpf: {{pin_dir: /sys/fs/bpf/x}}\n")
    done = subprocess.run(
        [ROOT / "bin/vigia-exporter", "check-config", "--config", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_places_find_the_source_tree() -> None:
    assert places.source_root() == ROOT
    assert Path(sys.executable).is_relative_to(ROOT)
