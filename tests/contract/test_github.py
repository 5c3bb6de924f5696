"""What GitHub does with the repository is what the repository itself says: .ci/run, make release, its modules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from housekit import tracked

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github"
WORKFLOWS = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((FOLDER / "workflows").glob("*.yml"))}
FORMS = sorted((FOLDER / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
PINNED = re.compile(r"actions/[a-z-]+@[0-9a-f]{40}")


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def triggers(workflow: dict[Any, Any]) -> Any:
    return workflow[True]  # YAML 1.1 reads the key `on` so


def test_the_test_workflow_is_the_gate_and_nothing_beside_it() -> None:
    (job,) = WORKFLOWS["test"]["jobs"].values()
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1] == ".ci/run"
    assert all(c.startswith(("apt-get ", "git config ")) for c in commands[:-1])
    assert job["container"]["image"] == "debian:bookworm" and "--privileged" in job["container"]["options"]
    assert set(triggers(WORKFLOWS["test"])) == {"push", "pull_request"}


def test_the_release_workflow_is_make_release() -> None:
    workflow = WORKFLOWS["release"]
    assert triggers(workflow) == {"push": {"tags": ["v*"]}}
    (command,) = [s["run"] for s in steps(workflow) if s.get("name") == "Release"]
    assert command == 'make release KEY="$RUNNER_TEMP/key"'
    assert re.search(r"^release:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert workflow["jobs"]["build"]["container"]["image"] == "debian:bookworm"
    assert any(s.get("with", {}).get("fetch-depth") == 0 for s in steps(workflow)), "tags are looked at"
    removed = [s for s in steps(workflow) if s.get("if") == "always()"]
    assert [s["run"] for s in removed] == ['rm -f "$RUNNER_TEMP/key"']
    assert "--draft" in workflow["jobs"]["draft"]["steps"][-1]["run"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_and_runs_no_more_than_it_has_to(name: str) -> None:
    text = (FOLDER / "workflows" / f"{name}.yml").read_text()
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    used = [s["uses"] for s in steps(WORKFLOWS[name]) if "uses" in s]
    assert used and all(PINNED.fullmatch(u) for u in used)
    assert len(re.findall(r"uses: \S+ # v\d+\.\d+\.\d+$", text, re.MULTILINE)) == len(used)
    # What others write (titles, branches) gets into no script.
    assert not [s["run"] for s in steps(WORKFLOWS[name]) if "${{" in s.get("run", "")]
    assert "pull_request_target" not in text


@pytest.mark.parametrize("name", WORKFLOWS)
def test_go_is_the_one_of_go_mod(name: str) -> None:
    setups = [s for s in steps(WORKFLOWS[name]) if s.get("uses", "").startswith("actions/setup-go@")]
    assert [s["with"] for s in setups] == [{"go-version-file": "go.mod"}]


def test_every_module_is_kept_up_to_date() -> None:
    updates = yaml.safe_load((FOLDER / "dependabot.yml").read_text())["updates"]
    by_kind = {u["package-ecosystem"]: u for u in updates}
    assert set(by_kind) == {"gomod", "uv", "docker", "docker-compose", "github-actions"}
    modules = {Path(name).parent for name in tracked("*go.mod") if Path(name).name == "go.mod"}
    assert {f"/{m}".removesuffix(".") for m in modules} == set(by_kind["gomod"]["directories"])
    for update in updates:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.lstrip("/")).is_dir()
    assert (ROOT / "uv.lock").exists() and (ROOT / "docker-compose.yml").exists()


@pytest.mark.parametrize("form", FORMS, ids=lambda p: p.stem)
def test_a_form_asks_what_helps(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(content)
    fields = [f for f in content["body"] if f["type"] != "markdown"]
    assert all(f["type"] in {"input", "textarea", "dropdown", "checkboxes"} for f in fields)
    assert len({f["id"] for f in fields}) == len(fields)
    assert any(f.get("validations", {}).get("required") for f in fields)
    assert all(f["attributes"]["label"] for f in fields)


def test_the_form_of_a_bug_asks_for_the_version_and_names_the_way_for_vulnerabilities() -> None:
    text = (FOLDER / "ISSUE_TEMPLATE/bug.yml").read_text()
    assert "--version" in text and "vigia doctor" in text and "SECURITY.md" in text
    assert (ROOT / "SECURITY.md").exists()


def test_the_template_of_pull_requests_names_commands_that_exist() -> None:
    text = (FOLDER / "PULL_REQUEST_TEMPLATE.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", text))
    assert named and named <= targets
