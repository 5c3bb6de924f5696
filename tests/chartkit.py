"""Helm, built from the module that tools/helm.mod pins, and what the chart renders."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHART", "VALUES", "documents", "helm", "masked", "render", "values_files"]

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy/helm/vigia"
VALUES = ROOT / "tests/chart/values"
GOLDEN = ROOT / "tests/chart/golden"

KUBERNETES = "1.34.1"
"""Version that templates are rendered for: without one, Helm takes that of its own library."""


@cache
def program() -> Path:
    """Build Helm unless it is built; Go keeps what it has compiled."""
    subprocess.run(["make", "--no-print-directory", "helm"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return ROOT / "bin/helm"


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm without a cluster; its warnings about links are left out of stderr."""
    home = ROOT / ".build/helm"
    places = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": "/dev/null", **places}
    argv = [str(program()), *map(str, arguments)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    said = [line for line in done.stderr.splitlines() if not line.startswith("walk.go:")]
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout, "\n".join(said))


def template(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Render the chart as release vigia in namespace vigia."""
    fixed = ("template", "vigia", CHART, "--namespace", "vigia", "--kube-version", KUBERNETES)
    return helm(*fixed, *arguments)


def values_files() -> list[Path]:
    """Return the values files with goldens; default comes first."""
    return sorted(VALUES.glob("*.yaml"), key=lambda p: (p.stem != "default", p.stem))


@cache
def render(name: str) -> str:
    """Return all that the chart renders with a values file."""
    done = template("--values", VALUES / f"{name}.yaml")
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a rendered text."""
    return [d for d in yaml.load_all(text, Loader=yaml.CSafeLoader) if d]


def masked(text: str) -> dict[str, str]:
    """Return objects by kind and name as YAML, without what is random, and what is a copy of another file."""
    out = {}
    for d in documents(text):
        content = d.get("data") or {}
        for key in content:
            if d["kind"] == "Secret":
                content[key] = "<made at random>"
            elif key.endswith((".json", ".rules.yml")) or key == "policies.yaml":
                content[key] = f"<{key}>"
        if d["kind"] == "PrometheusRule":
            d["spec"]["groups"] = "<rules>"
        if d.get("stringData"):
            d["stringData"] = dict.fromkeys(d["stringData"], "<made of deploy/alertmanager>")
        text = yaml.dump(d, Dumper=yaml.CSafeDumper, sort_keys=True, width=120)
        # A rule or a policy that changes is no change of the chart.
        text = re.sub(r"(checksum/config: )[0-9a-f]{64}", r"\1<sha256>", text)
        out[f"{d['kind']} {d['metadata']['name']}"] = text
    return out


def golden(name: str) -> str:
    """Return what the golden file of a values file has to be: the whole for default, what differs for others."""
    this, default = masked(render(name)), {} if name == "default" else masked(render("default"))
    differs = [this[k] for k in sorted(this) if this[k] != default.get(k)]
    gone = [f"# not there: {k}\n" for k in sorted(default) if k not in this]
    return "---\n".join(
        [f"# helm template with values/{name}.yaml\n", *differs, *(["".join(gone)] if gone else [])]
    )


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for path in values_files():
        (GOLDEN / path.name).write_text(golden(path.stem))
