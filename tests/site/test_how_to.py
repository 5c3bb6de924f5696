"""The guides about alerts, upgrades and removal: their files are accepted by what reads them, their commands exist."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import promql_parser
import pytest
import yaml
from alertmanagerkit import SHIPPED
from alertmanagerkit import running as alertmanager
from labkit import ROOT
from pagekit import blocks, fences, page

from isolation_agent.policy import load_policies
from vigia_dashboards.expressions import check

ALERTS = page("how-to/alerts.md")
TUNE = blocks(ALERTS)
OTHERS = {name: page(f"how-to/{name}.md") for name in ("upgrade", "remove")}


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_every_block_has_a_test() -> None:
    assert set(TUNE) == {
        *(
            "probe",
            "exporter",
            "policies",
            "rules",
            "check rules",
            "relabel",
            "silence",
            "people",
            "check receivers",
        ),
    }
    for text in (ALERTS, *OTHERS.values()):
        there, tested = fences(text)
        assert there == tested > 0
    assert set(blocks(OTHERS["upgrade"])) == {"install", "copy", "node", "compose"}
    assert set(blocks(OTHERS["remove"])) == {"node", "compose"}


@pytest.mark.parametrize("part", ["probe", "exporter"])
def test_the_agents_accept_what_it_says(part: str, tmp_path: Path) -> None:
    (tmp_path / "ports.yaml").write_text("version: 1\nports: []\n")
    file = tmp_path / f"{part}.yaml"
    file.write_text(TUNE[part].replace("/etc/vigia/ports.yaml", str(tmp_path / "ports.yaml")))
    assert "OK" in run(ROOT / f"bin/vigia-{part}", "check-config", f"--config={file}", cwd=tmp_path)


def test_the_isolation_agent_accepts_the_guard(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(TUNE["policies"])
    found = load_policies(tmp_path / "policies.yaml")
    (entry,) = found.guards.allow
    assert entry.shields_source("media", "any") and not entry.shields_source("red", "any")


def test_the_rule_is_valid_and_asks_for_what_exists(tmp_path: Path) -> None:
    (tmp_path / "site.rules.yml").write_text(TUNE["rules"])
    assert "1 rules found" in run(*shlex.split(TUNE["check rules"]), cwd=tmp_path)
    ((rule,),) = (group["rules"] for group in yaml.safe_load(TUNE["rules"])["groups"])
    promql_parser.parse(rule["expr"])
    check(rule["expr"])
    shipped = [f.read_text() for f in (ROOT / "alert-rules").glob("*.rules.yml")]
    assert not any(f"alert: {rule['alert']}\n" in text for text in shipped)


def test_prometheus_accepts_the_relabelling_and_it_names_alerts_that_exist(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    config["alerting"] |= yaml.safe_load(TUNE["relabel"])
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    run("promtool", "check", "config", "--syntax-only", "prometheus.yml", cwd=tmp_path)
    shipped = "".join(f.read_text() for f in (ROOT / "alert-rules").glob("*.rules.yml"))
    named = [n for r in config["alerting"]["alert_relabel_configs"] for n in r["regex"].split("|")]
    assert len(named) == 3 and all(f"alert: {name}\n" in shipped for name in named)


def test_receivers_are_accepted(tmp_path: Path) -> None:
    config = yaml.safe_load(SHIPPED.read_text())
    (people,) = yaml.safe_load(TUNE["people"])
    config["receivers"] = [people if r["name"] == people["name"] else r for r in config["receivers"]]
    assert people in config["receivers"]
    (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(config))
    assert "SUCCESS" in run(*shlex.split(TUNE["check receivers"]), cwd=tmp_path)


def test_the_silence_keeps_quiet_what_is_for_people_alone(tmp_path: Path) -> None:
    with alertmanager(tmp_path) as server:
        add, query = (
            shlex.split(line.replace("http://127.0.0.1:9093", server.url))
            for line in TUNE["silence"].replace("\\\n", "").splitlines()
        )
        number = run(*add, cwd=tmp_path).strip()
        listed = run(*query, cwd=tmp_path)
    assert number in listed and "new switch" in listed and 'isolate!="auto"' in listed


@pytest.mark.parametrize("name", OTHERS)
def test_compose_has_the_commands(name: str) -> None:
    docker, compose, *words = shlex.split(blocks(OTHERS[name])["compose"])
    assert (docker, compose) == ("docker", "compose")
    program = shutil.which("docker-compose", path="/usr/bin:/usr/local/bin")
    assert program, "docker-compose is missing; run tools/bootstrap.sh test"
    command = next(w for w in words if w in ("up", "down"))
    known = run(program, "--help", cwd=ROOT) + run(program, command, "--help", cwd=ROOT)
    assert [w for w in words if w.startswith("--") and w not in known] == []
