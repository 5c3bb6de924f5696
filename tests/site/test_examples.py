"""Every block of every page that people may use is run by a test; those that cannot be say why."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commandkit import OURS, accepted
from labkit import ROOT
from pagekit import BESIDE_CODE, blocks, fences

from vigia_config import parse
from vigia_identity.config import Config as Identity

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in BESIDE_CODE)]

ELSEWHERE = {
    "docs/concepts/cost.md": "tests/sitecost/test_sitecost.py",
    "docs/concepts/isolation.md": "vigia/tests/attacks/test_experiment.py",
    "docs/how-to/compose.md": "tests/compose/test_compose.py",
    "docs/how-to/extend.md": "tests/house/test_extend.py",
    "docs/how-to/tls.md": "tests/contract/test_tls.py",
    "docs/reference/topology.md": "vigia/tests/lab/test_reference.py",
    "README.md": "tests/contract/test_readme.py",
    "CONTRIBUTING.md": "tests/contract/test_readme.py",
    "probes/README.md": "tests/contract/test_files.py",
    "exporters/tenant/README.md": "tests/contract/test_files.py",
    "exporters/identity/README.md": "tests/site/test_examples.py",
    "exporters/compare/README.md": "exporters/compare/tests/test_command_line.py",
    "isolation-agent/enforcer/README.md": "tests/contract/test_files.py",
    "dashboards/README.md": "tests/contract/test_readme.py",
    "vigia/README.md": "vigia/tests/cli/test_main.py",
    "internal/py/README.md": "internal/py/tests/service/test_readme.py",
    "internal/py/vigia_statistics/README.md": "internal/py/tests/test_verdict.py",
}
"""Pages whose blocks have no marks, and the test that runs what they show, or the program behind it."""

NOT_RUN = {
    "docs/how-to/kubernetes.md": (1, "docker build and docker push need a container registry"),
    "docs/how-to/openstack.md": (
        2,
        "tests/openstack brings up each cloud so, under a name of its own; a campaign on one takes hours",
    ),
    "docs/how-to/ansible.md": (1, "the playbook is run with an inventory of the test's own"),
    "docs/how-to/kolla-ansible.md": (1, "queries of exporters that are not there"),
    "docs/how-to/tenants.md": (1, "the unit's command is run, without systemd"),
    "docs/how-to/real-nodes.md": (1, "a port of Neutron's needs OpenStack"),
    "docs/reference/isolation-agent.md": (1, "an action, shortened"),
}
"""Blocks without a test, and why."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_by_a_test(page: Path) -> None:
    there, tested = fences(page.read_text())
    untested, _ = NOT_RUN.get(name_of(page), (0, ""))
    if name_of(page) in ELSEWHERE:
        assert there > tested and (ROOT / ELSEWHERE[name_of(page)]).is_file()
        return
    assert there == tested + untested, "write <!-- test: NAME --> above a block, and run it in a test"


def test_the_lists_name_pages_that_are_there() -> None:
    names = {name_of(page) for page in PAGES}
    assert {*ELSEWHERE, *NOT_RUN} <= names
    assert not {*ELSEWHERE} & {*NOT_RUN}


def commands(text: str) -> list[list[str]]:
    """Return the commands of a page's shell blocks that are of programs of ours, as words."""
    found = []
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            command = re.sub(r"(?<!\\)\s#\s.*$| && .*$|;.*$| \| .*$| > \S+$", "", line).strip()
            first = command.split(" ", 1)[0].removeprefix(".venv/bin/").removeprefix("bin/")
            if first in OURS and "$" not in command:
                found.append([first, *shlex.split(command)[1:]])
    return found


COPY = "docs/how-to/extend.md"
"""Its commands are of the tree that the recipes have made."""
SHOWN = sorted(
    {
        (name_of(page), tuple(words))
        for page in PAGES
        if name_of(page) != COPY
        for words in commands(page.read_text())
    }
)


@pytest.mark.parametrize(
    ("page", "words"), SHOWN, ids=lambda x: x if isinstance(x, str) else "-".join(x)[:50]
)
def test_commands_of_ours_exist(page: str, words: tuple[str, ...]) -> None:
    program, *rest = words
    rest = rest[: rest.index("--")] if "--" in rest else rest
    accepted(program, [*plain(rest)])


def plain(words: list[str]) -> list[str]:
    """Return a command's words without values, as far as they can be told from subcommands."""
    found, value = [], False
    for word in words:
        option = word.startswith("-")
        if option:
            found.append(word.partition("=")[0])
        elif not value and re.fullmatch(r"[a-z][a-z-]*", word):
            found.append(word)
        value = option and "=" not in word
    return found


def test_the_search_finds_commands() -> None:
    assert len(SHOWN) > 40
    assert {words[0] for _, words in SHOWN} >= set(OURS) - {"vigia-identity"}
    page = "```sh\n.venv/bin/vigia status   # well?\nx=$(vigia status)\nvigia lab exec a -- ping b\nmake demo\n```\n"
    assert commands(page) == [["vigia", "status"], ["vigia", "lab", "exec", "a", "--", "ping", "b"]]


def test_the_configuration_of_identity_is_accepted() -> None:
    (example,) = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "exporters/identity/README.md").read_text(), re.DOTALL
    )
    config = parse("identity.yaml", example, Identity)
    assert config.openstack and config.kubernetes and config.kubernetes.site


def test_the_list_of_nodes_for_discovery_is_as_prometheus_defines_it() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", (ROOT / "probes/README.md").read_text(), re.DOTALL)
    ((group,),) = [json.loads(example)]
    assert set(group) == {"targets", "labels"}
    assert all(isinstance(value, str) for value in group["labels"].values())


def test_the_plan_of_the_page_about_sizes() -> None:
    command = shlex.split(blocks((ROOT / "docs/sizing.md").read_text())["plan"])
    done = subprocess.run([OURS[command[0]], *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "41" in done.stdout, "series a node at rest, as docs/concepts/mesh.md has them"
