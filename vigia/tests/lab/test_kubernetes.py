"""The parts of a cluster that need no cluster: images, certificates, what is kept and what is removed.

tests/kubernetes has the cluster itself.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID
from labkit import invoke_vigia

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import source_root
from vigia.lab import clouds, model, topology
from vigia.lab.kubernetes import archive, certificates, cluster, images, machines, programs, removal
from vigia.lab.kubernetes.archive import Archive
from vigia.lab.kubernetes.places import FABRIC, PODS, ClusterPlaces, api_address, members
from vigia.lab.kubernetes.programs import ClusterPrograms
from vigia.lab.model import Lab
from vigia.lab.naming import Layout

CLOUD = clouds.load("kubernetes")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = model.resolve(topology.default("kubernetes"))
    monkeypatch.setattr(ClusterPlaces, "data", property(lambda self: tmp_path / "data"))
    return model.Lab(found.topology, Layout("kubernetes", tmp_path), found.nodes, found.links)


def test_pods_nodes_and_the_api_have_addresses_of_their_own(lab: Lab) -> None:
    underlay = lab.nodes[0].underlay.network
    addresses = [m.address for m in members(lab)] + [api_address(lab)]
    assert len(set(addresses)) == 3
    assert all(ipaddress.ip_address(a) in underlay for a in addresses)
    assert all(m.pods.subnet_of(PODS) for m in members(lab))
    assert not members(lab)[0].pods.overlaps(members(lab)[1].pods)
    assert all(m.fabric.subnet_of(FABRIC) for m in members(lab))
    assert not members(lab)[0].fabric.overlaps(members(lab)[1].fabric)
    assert not FABRIC.overlaps(PODS)


# Programs


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/vigia"


def test_programs_are_kept_by_what_they_are_made_from(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(source_root() / "tools", tree / "tools")
    monkeypatch.setattr(programs, "source_root", lambda: tree)
    first = programs.find().folder
    assert first.parent == cache
    assert programs.find().folder == first
    for file in ("kubernetes/main.go", "kubernetes/go.sum", "coredns/go.mod"):
        path = tree / "tools" / file
        path.write_text(path.read_text() + "\n")
        assert programs.find().folder != first, file
        first = programs.find().folder


def test_what_is_there_is_not_built_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = programs.find()
    (there.root / "usr").mkdir(parents=True)
    there.bin.mkdir()
    for name in ("kubernetes", "pause", "coredns"):
        (there.bin / name).touch()
    monkeypatch.setattr(
        commands,
        "run",
        lambda argv, **_: commands.CommandResult(0, "go1\n", "")
        if argv[1:2] == ["env"]
        else pytest.fail(str(argv)),
    )
    said = io.StringIO()
    # What Go says of itself is part of the name: the folder is another one then.
    shutil.move(there.folder, programs.find().folder)
    found = programs.prepare(Steps(said))
    assert said.getvalue() == ""
    assert {n: (found.bin / n).readlink() for n in programs.NAMES} == dict.fromkeys(
        programs.NAMES, Path("kubernetes")
    )


def test_a_build_that_fails_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module x\n\ngo 1.24\n")
    (module / "main.go").write_text("package main\n\nfunc main() { nothing() }\n")
    with pytest.raises(VigiaError, match="undefined: nothing"):
        programs._build(module, ".", tmp_path / "program")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("program")) == []
    (module / "main.go").write_text("package main\n\nfunc main() {}\n")
    programs._build(module, ".", tmp_path / "program")
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 0


def test_the_versions_are_those_of_the_modules() -> None:
    module = (source_root() / "tools/kubernetes/go.mod").read_text()
    assert f"k8s.io/kubernetes v{programs.KUBERNETES}\n" in module
    assert f"-X k8s.io/component-base/version.gitVersion=v{programs.KUBERNETES}" in programs._stamps()
    names = re.findall(r'case "([a-z-]+)":', (source_root() / "tools/kubernetes/main.go").read_text())
    assert names == list(programs.NAMES)


# Images


def blobs(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]


def test_an_archive_is_what_the_specification_says(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__pycache__/x.pyc").write_text("not this")
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o755)
    (folder / "link").symlink_to("program")
    os.link(folder / "program", folder / "twin")
    made = Archive(tmp_path / "a.tar")
    layer = made.layer([(folder, "opt/x")])
    assert made.layer([(folder, "opt/x")]) == layer
    for name in ("one", "two"):
        made.image(f"lab.local/{name}:1", [layer], ["/opt/x/program"], "65534", ["PATH=/bin"])
    made.finish()

    content = blobs(tmp_path / "a.tar")
    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for name, blob in content.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    listed = json.loads(content["index.json"])["manifests"]
    assert [m["annotations"]["io.containerd.image.name"] for m in listed] == [
        "lab.local/one:1",
        "lab.local/two:1",
    ]
    for described in listed:
        manifest: Any = json.loads(content[f"blobs/sha256/{described['digest'][7:]}"])
        config = json.loads(content[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
        assert config["config"] == {"Entrypoint": ["/opt/x/program"], "User": "65534", "Env": ["PATH=/bin"]}
        assert config["rootfs"]["diff_ids"] == [m["digest"] for m in manifest["layers"]] == [layer.digest]
    with tarfile.open(fileobj=io.BytesIO(content[f"blobs/sha256/{layer.digest[7:]}"])) as tar:
        files = {m.name: m for m in tar}
        assert sorted(files) == ["opt", "opt/x", "opt/x/link", "opt/x/program", "opt/x/twin", "tmp"]
        assert files["tmp"].mode == 0o1777
        assert all((m.uid, m.gid, m.mtime) == (0, 0, 0) for m in files.values())
        assert files["opt/x/link"].linkname == "program"
        assert tar.extractfile("opt/x/twin").read() == b"#!/bin/sh\n"  # type: ignore[union-attr]


def test_a_layer_may_give_rights_and_an_archive_be_of_another_processor(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    made = Archive(tmp_path / "a.tar", "arm64")
    layer = made.layer([(tmp_path / "program", "bin/program")], (12, 34))
    made.image("vigia/x:1", [layer], ["program"], "1", [])
    made.finish()
    content = blobs(tmp_path / "a.tar")
    with tarfile.open(fileobj=io.BytesIO(content[f"blobs/sha256/{layer.digest[7:]}"])) as tar:
        rights = {m.name: m.pax_headers.get("SCHILY.xattr.security.capability") for m in tar}
    assert rights.pop("bin/program") == "\x01\0\0\x02" + "\0\x10\0\0" + "\0" * 4 + "\x04\0\0\0" + "\0" * 4
    assert set(rights.values()) == {None}
    (listed,) = json.loads(content["index.json"])["manifests"]
    manifest = json.loads(content[f"blobs/sha256/{listed['digest'][7:]}"])
    config = json.loads(content[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
    assert config["architecture"] == "arm64"


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("a.tar", "b.tar"):
        made = Archive(tmp_path / name)
        made.image("x:1", [made.layer([(tmp_path / "file", "file")])], ["/file"], "0", [])
        made.finish()
        os.utime(tmp_path / "file", (1, 1))
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_images_are_those_that_the_chart_wants(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every image of the chart but Grafana's, which is off, and the privileged prober."""
    named: list[str] = []
    monkeypatch.setattr(Archive, "image", lambda self, name, *rest: named.append(name))
    monkeypatch.setattr(Archive, "layer", lambda self, contents: archive.Layer("", 0))
    monkeypatch.setattr(images, "_libraries", lambda objects: [])
    monkeypatch.setattr(
        images.commands, "run", lambda argv, **_: commands.CommandResult(0, "/usr/lib/python3.11\n", "")
    )
    (lab.layout.root / "data/python/lib/python3.11/site-packages").mkdir(parents=True)
    images.write(lab, ClusterPrograms(lab.layout.root))
    dockerfile = (source_root() / "deploy/docker/Dockerfile").read_text()
    targets = set(
        re.findall(r"^FROM (?:scratch|\$\{PYTHON_IMAGE\}) AS ([a-z-]+)$", dockerfile, re.MULTILINE)
    ) - {"uv", "vigia", "probe", "go-copy"}
    assert {n.partition("/")[2] for n in named if n.endswith(":lab")} == {
        f"{t}:lab" for t in targets | {"prometheus", "alertmanager"}
    }


def test_libraries_are_those_of_the_loader() -> None:
    found = dict((name, path) for path, name in images._libraries([Path(shutil.which("bash") or "")]))
    assert any("libc.so" in name for name in found)
    assert all(path.is_file() and not path.is_symlink() for path in found.values())


# Certificates


def test_roles_are_in_the_certificates(lab: Lab) -> None:
    ClusterPlaces(lab.layout).directory.mkdir(parents=True)
    assert certificates.write(lab) == 10
    folder = ClusterPlaces(lab.layout).certificates
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = authority.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    subjects = {}
    for file in folder.glob("*.crt"):
        c = x509.load_pem_x509_certificate(file.read_bytes())
        c.verify_directly_issued_by(authority)
        subjects[file.stem] = c.subject.rfc4514_string()
        assert file.with_suffix(".key").stat().st_mode & 0o77 == 0, file
    assert subjects["admin"] == "CN=admin,O=system:masters"
    assert subjects["node2"] == "CN=system:node:node2,O=system:nodes"
    assert subjects["scheduler"] == "CN=system:kube-scheduler"
    served = x509.load_pem_x509_certificate((folder / "apiserver.crt").read_bytes())
    names = served.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    addresses = {str(a) for a in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {api_address(lab), "127.0.0.1", "10.96.0.1"}


# Scripts and objects


def test_scripts_are_sound(lab: Lab) -> None:
    machines.prepare(lab)
    folder = ClusterPlaces(lab.layout).directory
    for script in folder.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)
    assert len(list(folder.glob("*.sh"))) == 3
    node = (folder / "node.sh").read_text()
    assert f"lab-volumes/{{1..{cluster.VOLUMES}}}" in node
    mounted = re.search(r"for c in ([a-z ]+); do\n  mkdir", node)
    assert mounted is not None
    assert tuple(mounted[1].split()) == machines.CONTROLLERS
    network = json.loads((folder / "node1/10-lab.conflist").read_text())
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": str(members(lab)[0].pods)}]]
    assert "max_conf_num = 2" in node
    for member in members(lab):
        second = json.loads((folder / member.name / "20-fabric.conflist").read_text())
        (plugin,) = second["plugins"]
        assert (plugin["type"], plugin["master"], second["name"] != network["name"]) == (
            "macvlan",
            "eth1",
            True,
        )
        ((given,),) = plugin["ipam"]["ranges"]
        assert ipaddress.ip_network(given["subnet"]) == FABRIC
        for end in (given["rangeStart"], given["rangeEnd"]):
            assert ipaddress.ip_address(end) in member.fabric


def test_a_program_on_hold_is_not_started(tmp_path: Path) -> None:
    """supervise.sh starts a program again however it ends, also in a script that stops at failures."""
    for folder in ("hold", "log"):
        (tmp_path / folder).mkdir()
    shutil.copy(Path(machines.__file__).with_name("supervise.sh"), tmp_path)
    counter = tmp_path / "counted"
    counter.write_text(f"#!/bin/sh\necho x >> {tmp_path}/times\nexit 1\n")
    counter.chmod(0o755)
    script = f'set -eu; LAB={tmp_path}; MACHINE=m; . {tmp_path}/supervise.sh; supervise {counter}; until [ "$(wc -l < {tmp_path}/times)" -ge 2 ]; do sleep 0.1; done 2>/dev/null; kill %1'
    subprocess.run(["bash", "-c", script], check=True, timeout=60)
    (tmp_path / "times").write_text("")
    (tmp_path / "hold/m-counted").touch()
    subprocess.run(
        [
            "bash",
            "-c",
            f"set -eu; LAB={tmp_path}; MACHINE=m; . {tmp_path}/supervise.sh; supervise {counter}; sleep 1.5; kill %1",
        ],
        check=True,
    )
    assert (tmp_path / "times").read_text() == ""


# Removing


def test_control_groups_and_data_go(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = tmp_path / "cgroup"
    monkeypatch.setattr(removal, "GROUPS", groups)
    places = ClusterPlaces(lab.layout)
    assert removal.remove(lab.layout) == []
    for controller in ("cpu", "memory"):
        (groups / controller / places.group / "node1/kubepods/burstable").mkdir(parents=True)
        (groups / controller / "vigia-kubernetes2").mkdir()
    (places.data / "etcd/member").mkdir(parents=True)
    assert removal.remove(lab.layout) == ["2 control groups", "the cluster's data"]
    assert sorted(str(p.relative_to(groups)) for p in groups.rglob("*")) == [
        "cpu",
        "cpu/vigia-kubernetes2",
        "memory",
        "memory/vigia-kubernetes2",
    ]
    assert not places.data.exists()
    assert removal.remove in clouds.removers(), "lab down knows of it"


# What is refused


def refusal(lab: Lab) -> str:
    with pytest.raises(VigiaError) as e:
        CLOUD.check(lab, "userspace")
    return str(e.value)


def test_a_topology_that_is_no_clusters_is_refused(root: None) -> None:
    assert "a cluster's nodes have no path linuxbridge-vxlan; leave out --topology" in refusal(
        model.resolve(topology.default())
    )


def test_a_machine_without_the_control_groups_is_refused(
    root: None, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "GROUPS", tmp_path)
    assert "the machine has no hierarchy of control groups for cpu: the nodes use version 1" in refusal(lab)


def test_the_stack_of_a_cluster_is_the_charts() -> None:
    """Nothing is made before that is said."""
    done = invoke_vigia("up", "--cloud", "kubernetes")
    assert done.status == 1
    assert (
        "lab kubernetes is the cloud kubernetes, which has its stack by another way: helm install"
        in done.stderr
    )
    assert not Layout("kubernetes").directory.exists()
