"""Configuration of the cloud's programs, as its operator would write it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import yaml

from vigia.lab.neutron import programs
from vigia.lab.neutron.places import Driver, NeutronPlaces
from vigia.lab.underlay import UNDERLAY_MTU

__all__ = ["ADMIN", "PROJECT", "REGION", "agent", "database_url", "passwords", "write_control"]

ADMIN, PROJECT, REGION = "admin", "admin", "lab"
"""Of Keystone's administrator."""

Sections = Mapping[str, Mapping[str, object]]

_WANTED = ("database", "admin", "neutron", "messages")


def passwords(places: NeutronPlaces) -> dict[str, str]:
    """Return the lab's passwords, by what they are for; the first time they are drawn."""
    if not places.secrets.exists():
        drawn = {name: secrets.token_hex(16) for name in _WANTED}
        _write(places.secrets, json.dumps(drawn))
    found: dict[str, str] = json.loads(places.secrets.read_text())
    return found


def write_control(places: NeutronPlaces, driver: Driver) -> None:
    """Write what the control plane's programs read, and what its clients do."""
    folder, drawn = places.directory, passwords(places)
    _write(folder / "databases.sql", _sql(drawn["database"]))
    _write_ini(folder / "neutron.conf", _neutron(places, driver))
    _write_ini(folder / "ml2.ini", _ml2(places, driver))
    if driver == "ovn":
        alone = {"auth_type": "none", "auth": {"endpoint": places.neutron_url}}
        _write_clouds(places, {**alone, "network_endpoint_override": places.neutron_url})
        return
    _write_ini(folder / "keystone.conf", _keystone(places))
    _write_ini(folder / "uwsgi.ini", _uwsgi(places))
    rabbit = {
        "listeners.tcp.1": f"{places.address}:5672",
        "default_user": "neutron",
        "default_pass": drawn["messages"],
        "loopback_users": "none",
        "vm_memory_high_watermark.absolute": "256MiB",
    }
    _write(folder / "rabbitmq.conf", "".join(f"{k} = {v}\n" for k, v in rabbit.items()))
    _write(folder / "rabbitmq.plugins", "[].\n")
    auth = {"auth_url": places.keystone_url, "username": ADMIN, "password": drawn["admin"]}
    auth |= {"project_name": PROJECT, "user_domain_id": "default", "project_domain_id": "default"}
    _write_clouds(places, {"auth": auth, "region_name": REGION})


def _write_clouds(places: NeutronPlaces, cloud: Mapping[str, object]) -> None:
    _write(places.clouds_file, yaml.safe_dump({"clouds": {"lab": cloud}}))


def agent(places: NeutronPlaces, driver: Driver, node: str, local: str, database: str) -> Path:
    """Write the configuration of a node's agent and return its path.

    local is the node's tunnel address, database that of its Open vSwitch.
    """
    folder = places.directory / node
    folder.mkdir(exist_ok=True)
    file = folder / "agent.conf"
    firewall = "openvswitch" if driver == "openvswitch" else "iptables"
    sections: dict[str, Mapping[str, object]] = {
        "DEFAULT": {
            "host": node,
            "state_path": folder / "state",
            "transport_url": _messages(places),
            "core_plugin": "ml2",
        },
        "oslo_concurrency": {"lock_path": folder / "lock"},
        "agent": {"extensions": "qos", "root_helper": "", "report_interval": 10},
        "securitygroup": {"enable_security_group": "true", "firewall_driver": firewall},
        **_privileges(f"privsep-helper --config-file {file}"),
    }
    if driver == "openvswitch":
        sections["agent"] = {**sections["agent"], "tunnel_types": "vxlan,gre"}
        sections["ovs"] = {
            "datapath_type": "netdev",
            "local_ip": local,
            "ovsdb_connection": database,
            "of_listen_address": "127.0.0.1",
            "bridge_mappings": "",
        }
    else:
        sections["experimental"] = {"linuxbridge": "true"}
        sections["linux_bridge"] = {"physical_interface_mappings": ""}
        sections["vxlan"] = {
            "enable_vxlan": "true",
            "local_ip": local,
            "vxlan_group": "239.1.1.1",
            "l2_population": "false",
        }
    _write_ini(file, sections)
    return file


def database_url(places: NeutronPlaces, name: str) -> str:
    """Return the address of a database of the control plane."""
    return f"mysql+pymysql://cloud:{passwords(places)['database']}@127.0.0.1/{name}?charset=utf8"


def _sql(password: str) -> str:
    lines = [f"CREATE USER IF NOT EXISTS cloud@'127.0.0.1' IDENTIFIED BY '{password}';"]
    for name in ("keystone", "neutron"):
        lines += [
            f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb3;",
            f"GRANT ALL ON {name}.* TO cloud@'127.0.0.1';",
        ]
    return "\n".join(lines) + "\n"


def _messages(places: NeutronPlaces) -> str:
    return f"rabbit://neutron:{passwords(places)['messages']}@{places.address}:5672/"


def _neutron(places: NeutronPlaces, driver: Driver) -> Sections:
    ovn = driver == "ovn"
    folder = places.directory
    default = {
        "bind_host": places.address,
        "core_plugin": "ml2",
        "service_plugins": "ovn-router,qos" if ovn else "qos",
        "auth_strategy": "noauth" if ovn else "keystone",
        "api_workers": 1 if ovn else 0,  # OVN's driver waits for what only a worker of its own gets
        "rpc_workers": 0,
        "rpc_state_report_workers": 0,
        "transport_url": "fake://" if ovn else _messages(places),
        "notify_nova_on_port_status_changes": "false",
        "notify_nova_on_port_data_changes": "false",
        "dhcp_agent_notification": "false",
        "api_paste_config": programs.find() / "usr/share/neutron-common/api-paste.ini",
        "state_path": folder / "state",
        "global_physnet_mtu": UNDERLAY_MTU,
    }
    sections: dict[str, Mapping[str, object]] = {
        "DEFAULT": default,
        "database": {"connection": database_url(places, "neutron")},
        "oslo_concurrency": {"lock_path": folder / "lock"},
        "quotas": {"quota_port": -1, "quota_network": -1, "quota_subnet": -1},
        **_privileges("privsep-helper"),
    }
    if driver == "linuxbridge":
        sections["experimental"] = {"linuxbridge": "true"}
    if not ovn:
        sections["keystone_authtoken"] = {
            "www_authenticate_uri": places.keystone_url,
            "auth_url": places.keystone_url,
            "auth_type": "password",
            "username": "neutron",
            "password": passwords(places)["neutron"],
            "project_name": "service",
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
    return sections


def _privileges(helper: str) -> Sections:
    """Return how each kind of privileged work is started: by root, and so without sudo."""
    kinds = ("", "_dhcp_release", "_ovs_vsctl", "_namespace", "_conntrack", "_link")
    return {f"privsep{kind}": {"helper_command": helper} for kind in kinds}


def _ml2(places: NeutronPlaces, driver: Driver) -> Sections:
    tunnels = {"ovn": "geneve", "openvswitch": "vxlan,gre", "linuxbridge": "vxlan"}[driver]
    sections: dict[str, Mapping[str, object]] = {
        "ml2": {
            "type_drivers": f"{tunnels},vlan,flat",
            "tenant_network_types": tunnels,
            "mechanism_drivers": driver,
            "extension_drivers": "port_security,qos",
            "path_mtu": UNDERLAY_MTU,
        },
        "ml2_type_vxlan": {"vni_ranges": "1:100000", "vxlan_group": "239.1.1.1"},
        "ml2_type_gre": {"tunnel_id_ranges": "1:100000"},
        "ml2_type_geneve": {"vni_ranges": "1:65536", "max_header_size": 38},
        "securitygroup": {"enable_security_group": "true"},
    }
    if driver == "ovn":
        sections["ovn"] = {
            "ovn_nb_connection": f"unix:{places.ovn}/ovnnb_db.sock",
            "ovn_sb_connection": f"unix:{places.ovn}/ovnsb_db.sock",
            "neutron_sync_mode": "off",
        }
    return sections


def _keystone(places: NeutronPlaces) -> Sections:
    return {
        "database": {"connection": database_url(places, "keystone")},
        "token": {"provider": "fernet"},
        "fernet_tokens": {"key_repository": places.directory / "fernet"},
        "credential": {"key_repository": places.directory / "credentials"},
        # Without it each request costs half a second of a processor.
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
    }


def _uwsgi(places: NeutronPlaces) -> Sections:
    address = places.keystone_url.removeprefix("http://").removesuffix("/v3")
    return {
        "uwsgi": {
            "plugins": "python311",
            "master": "true",
            "lazy-apps": "true",
            "processes": 1,
            "threads": 4,
            "enable-threads": "true",
            "buffer-size": 65535,
            "die-on-term": "true",
            "http-socket": address,
            "add-header": "Connection: close",
            "wsgi-file": "/usr/bin/keystone-wsgi-public",
            "env": f"OS_KEYSTONE_CONFIG_FILES={places.directory / 'keystone.conf'}",
        }
    }


def _write_ini(path: Path, sections: Sections) -> None:
    lines = []
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in values.items()), ""]
    _write(path, "\n".join(lines))


def _write(path: Path, text: str) -> None:
    """Write a file that may hold secrets."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(text)
