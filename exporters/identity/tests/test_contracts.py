"""What Neutron's policies of QoS become: contracts of the enforcers, and at once when they change."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import ConfigError, parse
from vigia_identity.clouds import contracts, neutron, openstack
from vigia_identity.clouds.contracts import Bandwidth, Terms
from vigia_identity.config import Config, PortTerms
from vigia_identity.looker import Looker, _signal

# The SDK warns of what it will drop.
pytestmark = pytest.mark.filterwarnings("ignore")

Cloud = Any  # of conftest.py

DEFAULT = PortTerms.model_validate({"guarantee": "10Mbit", "ceiling": "1Gbit"})
MAC = "fa:16:3e:00:00:01"


def limit(kbps: Any, direction: str | None = "egress") -> dict[str, Any]:
    return {"type": "bandwidth_limit", "max_kbps": kbps, "max_burst_kbps": 0, "direction": direction}


def least(kbps: Any, direction: str = "egress") -> dict[str, Any]:
    return {"type": "minimum_bandwidth", "min_kbps": kbps, "direction": direction}


def rate(kpps: int, direction: str) -> dict[str, Any]:
    return {"type": "packet_rate_limit", "max_kpps": kpps, "max_burst_kpps": 0, "direction": direction}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([], Terms()),
        (None, Terms()),
        ([limit(5000), least(2000)], Terms(send=Bandwidth(2_000_000, 5_000_000))),
        ([limit(5000, "ingress")], Terms(receive=Bandwidth(None, 5_000_000))),
        (
            [rate(10, "egress"), rate(20, "ingress")],
            Terms(Bandwidth(packets=10_000), Bandwidth(packets=20_000)),
        ),
        ([limit(7000, None)], Terms(send=Bandwidth(None, 7_000_000))),
        ([{"type": "dscp_marking", "dscp_mark": 26}, "text", {}], Terms()),
        ([limit("5000"), limit(-1), limit(True), limit(2**31 - 1), limit(5000, "sideways")], Terms()),
        ([{"type": "minimum_packet_rate", "min_kpps": 5, "direction": "any"}], Terms()),
    ],
)
def test_rules_say_what_they_say(rules: Any, said: Terms) -> None:
    assert contracts.terms(rules) == said


@pytest.mark.parametrize(
    ("said", "rates"),
    [
        (Terms(), {"guarantee": "10000000bit", "ceiling": "1000000000bit"}),
        # A limit below what is promised by default lowers that.
        (
            Terms(send=Bandwidth(None, 5_000_000)),
            {
                "guarantee": "5000000bit",
                "ceiling": "5000000bit",
                "receive": {"guarantee": "10000000bit", "ceiling": "1000000000bit"},
            },
        ),
        # A minimum above a limit is the tenant's all the same.
        (
            Terms(*[Bandwidth(8_000_000, 2_000_000, 3000)] * 2),
            {"guarantee": "8000000bit", "ceiling": "8000000bit", "packets_per_second": 3000},
        ),
        (
            Terms(receive=Bandwidth(packets=4000)),
            {
                "guarantee": "10000000bit",
                "ceiling": "1000000000bit",
                "receive": {
                    "guarantee": "10000000bit",
                    "ceiling": "1000000000bit",
                    "packets_per_second": 4000,
                },
            },
        ),
    ],
)
def test_what_a_policy_does_not_say_is_as_by_default(said: Terms, rates: dict[str, Any]) -> None:
    made = contracts.contract("p", "t", said, DEFAULT, {})
    assert made == {"tenant": "t", "port": "p", **rates}


@pytest.mark.parametrize(
    ("kind", "number", "mac", "found"),
    [
        ("vxlan", 7, MAC, {"vxlan": 7, "mac": MAC}),
        ("gre", 2**32 - 1, MAC, {"gre": 2**32 - 1, "mac": MAC}),
        ("geneve", 7, MAC, {}),
        ("vlan", 5000, MAC, {}),
        ("vxlan", None, MAC, {}),
        (None, None, MAC, {}),
        ("vxlan", 7, None, {}),
    ],
)
def test_frames_are_told_where_their_number_is_known(
    kind: Any, number: Any, mac: Any, found: dict[str, Any]
) -> None:
    assert contracts.match(kind, number, mac) == found


def port(number: int, policy: str | None = None, network: str = "net-1") -> dict[str, Any]:
    return {
        "id": f"{number:08x}-5a0e-4a5f-8c0d-0f1e2d3c4b5a",
        "project_id": f"{1:032x}",
        "network_id": network,
        "device_id": f"vm-{number}",
        "device_owner": "compute:nova",
        "binding:host_id": "c1",
        "mac_address": f"fa:16:3e:00:00:{number:02x}",
        "qos_policy_id": policy,
    }


@pytest.fixture
def looker(cloud: Cloud, clouds_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looker:
    monkeypatch.setattr(neutron, "PAGE", cloud.page)
    monkeypatch.setattr(openstack, "SHARE", 0)
    for folder in ("hosts", "contracts"):
        (tmp_path / folder).mkdir()
    vxlan = {"provider:network_type": "vxlan", "provider:segmentation_id": 77}
    cloud.networks = [{"id": "net-1", **vxlan}, {"id": "net-2", "qos_policy_id": "small", **vxlan}]
    cloud.policies = [
        {"id": "gold", "rules": [least(40_000), limit(200_000)], "revision_number": 3},
        {"id": "small", "rules": [limit(5000), limit(6000, "ingress")], "revision_number": 1},
    ]
    cloud.ports = [port(1, "gold", "net-2"), port(2, None, "net-2"), port(3), port(4, "gone")]
    stack = {
        "cloud": "lab",
        "clouds_file": clouds_file,
        "default": {"guarantee": "10Mbit", "ceiling": "1Gbit"},
    }
    config = {
        "tenants_file": tmp_path / "tenants.yaml",
        "ports_dir": tmp_path / "hosts",
        "contracts_dir": tmp_path / "contracts",
        "openstack": stack,
    }
    return Looker(Config.model_validate(config))


def written(looker: Looker) -> list[dict[str, Any]]:
    folder = looker.config.contracts_dir
    assert folder is not None
    found = yaml.safe_load((folder / "c1.yaml").read_text())
    assert found["version"] == 1
    return list(found["contracts"])


def test_a_ports_policy_goes_before_its_networks(looker: Looker) -> None:
    assert looker.once()
    found = written(looker)
    assert [c["guarantee"] for c in found] == ["40000000bit", "5000000bit", "10000000bit", "10000000bit"]
    assert found[1]["receive"] == {"guarantee": "6000000bit", "ceiling": "6000000bit"}
    assert found[0]["match"] == [{"vxlan": 77, "mac": MAC}]


def test_the_operators_own_ports_are_infras_and_buy_nothing(looker: Looker, cloud: Cloud) -> None:
    config = looker.config
    assert config.openstack is not None and config.ports_dir is not None
    stack = config.openstack.model_copy(update={"operator": f"{9:032x}"})
    looker.config = config.model_copy(update={"openstack": stack})
    cloud.ports[0]["project_id"] = f"{9:032x}"
    assert looker.once()
    ports = yaml.safe_load((config.ports_dir / "c1.yaml").read_text())["ports"]
    assert [p["tenant"] for p in ports] == ["_infra", *[f"{1:032x}"] * 3]
    assert len(written(looker)) == 3


def test_the_enforcer_takes_what_is_written(looker: Looker, tmp_path: Path) -> None:
    assert looker.once()
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    config = tmp_path / "enforcer.yaml"
    config.write_text(
        f"node: c1\nports_file: {tmp_path}/hosts/c1.yaml\ntoken_file: {token}\nbpf: {{pin_dir: /sys/fs/bpf/vigia}}\n"
        f"contracts_file: {tmp_path}/contracts/c1.yaml\nlinks: [{{device: eth0, rate: 1Gbit}}]\n"
    )
    enforcer = Path(__file__).parents[3] / "bin" / "vigia-enforcer"
    done = subprocess.run(
        [enforcer, "check-config", "--config", config], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


CHANGES = {f"GET /network/v2.0/{kind}" for kind in ("networks", "qos/policies", "ports")}


def test_a_change_is_taken_up_at_once_and_alone(looker: Looker, cloud: Cloud) -> None:
    assert not looker.follow(), "nobody has been asked yet"
    assert looker.once()
    assert not looker.follow()
    cloud.asked.clear(), cloud.queries.clear()
    assert not looker.follow()
    assert set(cloud.asked) == CHANGES, "nor for a token"
    assert all(q["fields"] == ["id", "revision_number"] for q in cloud.queries)
    cloud.policies[0].update(revision_number=4, rules=[least(50_000)])
    assert looker.follow() and not looker.follow()
    assert written(looker)[0]["guarantee"] == "50000000bit"
    cloud.networks[1].update({"revision_number": 9, "provider:segmentation_id": 78})
    assert looker.follow() and not looker.follow()
    assert written(looker)[0]["match"] == [{"vxlan": 78, "mac": MAC}]
    del cloud.policies[1]
    assert looker.follow() and not looker.follow()
    assert written(looker)[1]["guarantee"] == "10000000bit"


def test_a_port_that_buys_comes_or_goes_is_asked_for_by_its_id(looker: Looker, cloud: Cloud) -> None:
    assert looker.once()
    cloud.ports[2].update(qos_policy_id="gold", revision_number=1)
    cloud.queries.clear()
    assert looker.follow() and not looker.follow()
    assert [q["id"] for q in cloud.queries if "id" in q] == [[cloud.ports[2]["id"]]]
    assert [c["guarantee"] for c in written(looker)][2] == "40000000bit"
    cloud.ports.append(port(5, "small"))
    del cloud.ports[0]
    assert looker.follow() and not looker.follow()
    assert [c["port"] for c in written(looker)] == [p["id"] for p in cloud.ports]
    assert looker.config.ports_dir is not None
    owners = yaml.safe_load((looker.config.ports_dir / "c1.yaml").read_text())["ports"]
    assert [p["port"] for p in owners] == [p["id"] for p in cloud.ports]


def test_a_network_that_gets_a_policy_sells_it_to_its_ports(looker: Looker, cloud: Cloud) -> None:
    assert looker.once()
    cloud.networks[0].update(qos_policy_id="small", revision_number=1)  # and no revision of a port
    assert looker.follow() and not looker.follow()
    assert [c["guarantee"] for c in written(looker)] == ["40000000bit", *["5000000bit"] * 2, "10000000bit"]
    cloud.networks[0].update(qos_policy_id=None, revision_number=2)
    assert looker.follow() and not looker.follow()
    assert [c["guarantee"] for c in written(looker)][2] == "10000000bit"


def test_many_ports_that_change_are_listed(looker: Looker, cloud: Cloud) -> None:
    assert looker.once()
    for p in cloud.ports:
        p.update(qos_policy_id="gold", revision_number=1)
    cloud.queries.clear()
    assert looker.follow() and not looker.follow()
    assert not [q for q in cloud.queries if "id" in q], "but not one by one"
    assert {c["guarantee"] for c in written(looker)} == {"40000000bit"}


def test_what_answers_slowly_is_asked_more_seldom(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    clock = [1000.0]

    def slow(_: Any, kind: str, *known: Any) -> Any:
        asked.append(kind)
        clock[0] += {"qos/policies": 0.01, "networks": 0.1, "ports": 2.0}[kind]

    monkeypatch.setattr(openstack, "SHARE", 20)
    monkeypatch.setattr(neutron, "read_changed", slow)
    assert looker.once() and looker.config.openstack is not None
    watch = openstack.ChangeWatch(looker.config.openstack, 5.0, neutron.Wanted(bought=True), lambda: clock[0])
    begun = clock[0]
    try:
        while clock[0] < begun + 200:
            assert watch.changed(looker.known["openstack"]) is None
            clock[0] += 1.0
    finally:
        watch.close()
    for kind, took in (("qos/policies", 0.01), ("networks", 0.1), ("ports", 2.0)):
        assert 0 < asked.count(kind) * took <= 200 / 20 + took, kind


def test_what_cannot_be_written_is_taken_up_later(looker: Looker, cloud: Cloud) -> None:
    assert looker.once()
    config = looker.config
    looker.config = config.model_copy(update={"contracts_dir": Path("/nonexistent")})
    cloud.policies[0].update(revision_number=4, rules=[least(50_000)])
    assert not looker.follow()
    looker.config = config
    assert looker.follow()
    assert written(looker)[0]["guarantee"] == "50000000bit"


def test_a_cloud_that_is_away_is_left_alone_for_a_while(
    looker: Looker, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looker.once()
    cloud.broken = True
    cloud.policies[0].update(revision_number=4, rules=[least(50_000)])
    assert not looker.follow()
    cloud.asked.clear()
    cloud.broken = False
    assert not looker.follow() and cloud.asked == []
    looker.prepare(looker.config)()  # as a reload does
    assert looker.follow()


def test_without_a_keystone_there_are_no_names(looker: Looker, cloud: Cloud, clouds_file: Path) -> None:
    alone = {
        "auth_type": "none",
        "auth": {"endpoint": cloud.url},
        "network_endpoint_override": f"{cloud.url}/network",
    }
    clouds_file.write_text(json.dumps({"clouds": {"lab": alone}}))
    assert looker.config.openstack is not None
    stack = looker.config.openstack.model_copy(update={"names": False})
    looker.config = looker.config.model_copy(update={"openstack": stack})
    cloud.noauth = True
    assert looker.once() and not looker.follow()
    assert len(written(looker)) == 4
    assert yaml.safe_load(looker.config.tenants_file.read_text())["tenants"] == []
    assert not [path for path in cloud.asked if "/v3" in path]


def test_without_contracts_nothing_is_asked_between_looks(looker: Looker, cloud: Cloud) -> None:
    looker.config = looker.config.model_copy(update={"contracts_dir": None})
    assert looker.once() and looker.wait() == looker.config.every
    cloud.asked.clear()
    assert not looker.follow() and cloud.asked == []


@pytest.mark.parametrize("answer", [b"[]", b'{"ports": 7}', b"<html>", b""])
def test_answers_that_are_none_change_nothing(looker: Looker, cloud: Cloud, answer: bytes) -> None:
    assert looker.once()
    before = written(looker)
    assert not looker.follow()
    cloud.raw = answer
    assert not looker.follow()
    looker.once()
    assert written(looker) == before


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"openstack": {"cloud": "x"}, "contracts_dir": "/c"},
            "contracts_dir: needs to know what a port has bought",
        ),
        (
            {"openstack": {"cloud": "x", "default": {"guarantee": "2Mbit", "ceiling": "1Mbit"}}},
            "openstack.default.ceiling: is below the guarantee",
        ),
        (
            {"openstack": {"cloud": "x", "changes": "10ms"}},
            "openstack.changes: is shorter than 1s; write 1s or more",
        ),
        (
            {
                "openstack": {"cloud": "x", "default": {"guarantee": "1Mbit", "ceiling": "1Mbit"}},
                "contracts_dir": "/c",
                "ports_dir": "/c",
            },
            "contracts_dir: is ports_dir; give each a folder of its own",
        ),
    ],
)
def test_mistakes_are_named(config: dict[str, Any], said: str) -> None:
    raw = yaml.safe_dump({"tenants_file": "/t.yaml", **config}).encode()
    with pytest.raises(ConfigError, match=said):
        parse("identity.yaml", raw, Config)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "not an id!"},
        {"project_id": None},
        {"project_id": 7},
        {"project_id": "two\nlines"},
        {"device_owner": None},
        {"device_owner": ["compute:nova"]},
        {"device_owner": "network:dhcp"},
        {"binding:host_id": "../../etc/passwd"},
        {"binding:host_id": ["c1"]},
        {"binding:host_id": ""},
    ],
)
def test_a_port_of_which_neutron_says_nonsense_is_nobodys(
    looker: Looker, cloud: Cloud, wrong: dict[str, Any]
) -> None:
    cloud.ports[1].update(wrong)
    assert looker.once()
    left = [p["id"] for p in cloud.ports if p is not cloud.ports[1]]
    assert [c["port"] for c in written(looker)] == left


@pytest.mark.parametrize(
    "wrong",
    [
        {"network_id": 7, "device_id": {}},
        {"qos_policy_id": ["gold"]},
        {"qos_policy_id": 7},
        {"mac_address": None},
        {"binding:profile": "text"},
        {"binding:profile": {"migrating_to": 5}},
    ],
)
def test_what_else_is_nonsense_costs_no_more_than_itself(
    looker: Looker, cloud: Cloud, wrong: dict[str, Any]
) -> None:
    cloud.ports[2].update(wrong)
    assert looker.once()
    found = written(looker)
    assert [c["port"] for c in found] == [p["id"] for p in cloud.ports]
    assert found[2]["guarantee"] == "10000000bit"


def test_pages_may_be_shorter_than_asked_for(cloud: Cloud) -> None:
    """As Neutron has a limit of its own, of 2 here: what follows is known by the answer's link."""

    class Answer:
        def __init__(self, body: Any) -> None:
            self.json = lambda: body

        def raise_for_status(self) -> None:
            pass

    class Network:
        def get(self, path: str, params: dict[str, Any]) -> Answer:
            assert params["limit"] == neutron.PAGE > cloud.page
            query = {k: v if isinstance(v, list) else [str(v)] for k, v in params.items()}
            return Answer(cloud.page_of("ports", cloud.ports, query, path))

    cloud.ports = [port(n) for n in range(1, 8)]
    assert list(neutron.read(Network(), "ports", neutron.Wanted(bought=True))) == [
        p["id"] for p in cloud.ports
    ]
    known = neutron.read(Network(), "ports", neutron.Wanted(bought=True))
    assert neutron.read_changed(Network(), "ports", known, neutron.Wanted(bought=True)) is None
    del cloud.ports[3]
    again = neutron.read_changed(Network(), "ports", known, neutron.Wanted(bought=True))
    assert again is not None and list(again) == [p["id"] for p in cloud.ports]


def test_changes_are_followed_while_the_next_look_is_awaited(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    followed: list[float] = []

    def follow() -> bool:
        followed.append(time.monotonic())
        if len(followed) == 3:
            signals.put(signal.SIGTERM)
        return False

    monkeypatch.setattr(looker, "follow", follow)
    monkeypatch.setattr(looker, "wait", lambda: 0.01)
    assert _signal(looker, signals, time.monotonic() + 60) == signal.SIGTERM
    assert len(followed) == 3
    with pytest.raises(queue.Empty):
        _signal(looker, signals, time.monotonic())
    assert len(followed) == 3, "it is time to look"


def test_the_next_question_comes_after_openstack_changes(looker: Looker) -> None:
    assert looker.config.openstack is not None
    assert looker.wait() == looker.config.openstack.changes == 2.0
