"""What clouds say is bounded and made harmless, and files are replaced as a whole."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from vigia_identity import looker
from vigia_identity.clouds import CloudError, Identity, Port, bounded, printable
from vigia_identity.config import Config
from vigia_identity.files import write
from vigia_identity.looker import CLOUDS, Looker

PORT = Port("tap1", "p1", "t1", "net", "vm")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("acme", "acme"),
        ("  acme \n", "acme"),
        ("a\x1b[31mb\u202ec", "a[31mbc"),
        (None, ""),
        (7, "7"),
        ("é" * 100, "é" * 64),
        ("x" * 127 + "é", "x" * 127),
    ],
)
def test_names_are_printable_and_short(value: object, shown: str) -> None:
    assert printable(value) == shown
    assert len(printable(value).encode()) <= 128


def test_lists_are_bounded() -> None:
    assert list(bounded(range(3), 3, "things")) == [0, 1, 2]
    with pytest.raises(CloudError, match="there are more than 3 things"):
        list(bounded(range(4), 3, "things"))


def test_every_cloud_of_the_configuration_is_one_that_is_asked() -> None:
    fields = {
        n
        for n, f in Config.model_fields.items()
        if hasattr(f.annotation, "__args__") and "Path" not in str(f.annotation)
    }
    assert set(CLOUDS) == fields


class Answers:
    """Two clouds that answer, or do not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.openstack: Identity | CloudError = Identity({"t1": "stack", "t2": "only stack"}, {"h1": [PORT]})
        self.kubernetes: Identity | CloudError = Identity({"t1": "pod", "t3": "only pod"})
        table = {name: lambda _, name=name: self.answer(name) for name in ("openstack", "kubernetes")}
        monkeypatch.setattr(looker, "CLOUDS", table)
        self.out, self.hosts = tmp_path / "tenants.yaml", tmp_path / "hosts"
        self.hosts.mkdir()
        self.config = Config.model_validate(
            {
                "tenants_file": self.out,
                "ports_dir": self.hosts,
                "openstack": {"cloud": "x"},
                "kubernetes": {},
            }
        )

    def answer(self, name: str) -> Identity:
        found = getattr(self, name)
        if isinstance(found, CloudError):
            raise found
        return found  # type: ignore[no-any-return]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answers:
    return Answers(monkeypatch, tmp_path)


def test_two_clouds_together_the_first_goes_before(answers: Answers) -> None:
    seen = Looker(answers.config)
    assert seen.once()
    found = seen.identity()
    assert found is not None
    assert found.names == {"t1": "stack", "t2": "only stack", "t3": "only pod"}
    assert found.ports == {"h1": [PORT]}


def test_nothing_is_written_before_each_cloud_has_answered_once(answers: Answers) -> None:
    seen = Looker(answers.config)
    pods, answers.kubernetes = answers.kubernetes, CloudError("Kubernetes, x: away")
    assert not seen.once()
    assert seen.identity() is None and not answers.out.exists()
    answers.kubernetes = pods
    assert seen.once() and answers.out.exists()
    answers.openstack = CloudError("OpenStack, x: away")
    answers.kubernetes = Identity({"t4": "new pod"})
    assert not seen.once(), "one of them failed"
    names = {t["id"]: t["name"] for t in yaml.safe_load(answers.out.read_text())["tenants"]}
    assert names == {"t1": "stack", "t2": "only stack", "t4": "new pod"}, "what one said last stays"


def test_a_folder_that_cannot_be_written_is_a_failure_and_no_end(
    answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers.config = answers.config.model_copy(update={"tenants_file": answers.out / "below" / "a-file"})
    answers.out.write_text("a file where a folder should be")
    assert not Looker(answers.config).once()
    assert "cannot write" in caplog.text


def test_files_are_sorted_and_for_the_group_to_read(tmp_path: Path) -> None:
    out = tmp_path / "tenants.yaml"
    changed = write(Identity({"b": "2", "a": "1"}), Config.model_construct(tenants_file=out))
    assert changed == [out]
    assert [t["id"] for t in yaml.safe_load(out.read_text())["tenants"]] == ["a", "b"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert write(Identity({"a": "1", "b": "2"}), Config.model_construct(tenants_file=out)) == [], (
        "the same in another order"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["tenants.yaml"]


def test_a_name_that_two_ports_share_names_neither(tmp_path: Path) -> None:
    ports = [PORT, Port("tap1", "p2", "t2", "", ""), Port("tap2", "p3", "t3", "", "")]
    write(
        Identity({}, {"h": ports}),
        Config.model_construct(tenants_file=tmp_path / "tenants.yaml", ports_dir=tmp_path),
    )
    entries = yaml.safe_load((tmp_path / "h.yaml").read_text())["ports"]
    assert entries == [{"device": "tap2", "port": "p3", "tenant": "t3"}], "and what is empty is left out"
