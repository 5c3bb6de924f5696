"""The control plane: MariaDB and Neutron, with OVN's databases or with Keystone and RabbitMQ."""

from __future__ import annotations

from vigia.host import netns, processes
from vigia.lab.model import Lab
from vigia.lab.neutron import configuration
from vigia.lab.neutron.api import Keystone, Neutron
from vigia.lab.neutron.places import CONTROL, Driver, NeutronPlaces
from vigia.lab.neutron.services import Supervised, prepare, run, start, until

__all__ = [
    "NEUTRON",
    "start_database",
    "start_keystone",
    "start_messages",
    "start_neutron",
    "start_ovn",
]

NEUTRON = f"{CONTROL}-neutron-server"
"""Neutron's server, in the names of its log and of the file that holds it."""

_SCHEMES = "/usr/share/ovn"


def start_database(lab: Lab, driver: Driver) -> str:
    """Make the control plane's database and start it."""
    places = NeutronPlaces(lab.layout)
    prepare(places)
    configuration.write_control(places, driver)
    folder = places.directory / "database"
    own = ["--no-defaults", "--user=root", f"--datadir={folder}"]
    run(
        places,
        [
            "mariadb-install-db",
            *own,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-log-file-size=16M",
        ],
    )
    options = [
        f"--socket={_socket(places)}",
        f"--tmpdir={places.scratch}",
        f"--init-file={places.directory / 'databases.sql'}",
        "--bind-address=127.0.0.1",
        "--skip-log-bin",
        "--skip-name-resolve",
        "--performance-schema=OFF",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    start(places, Supervised(CONTROL, places.netns, ["mariadbd", *own, *options]))
    ping = ["mariadb-admin", "--no-defaults", f"--socket={_socket(places)}", "ping"]
    until(places, "MariaDB", lambda: run(places, ping, check=False).status == 0)
    return "MariaDB answers"


def start_ovn(lab: Lab, driver: Driver) -> str:
    """Start OVN's databases and ovn-northd."""
    places = NeutronPlaces(lab.layout)
    folder = places.ovn
    folder.mkdir()
    env = {f"{of}_{kind}DIR": str(folder) for of in ("OVN", "OVS") for kind in ("RUN", "DB", "LOG")}
    for name, port in (("nb", 6641), ("sb", 6642)):
        run(places, ["ovsdb-tool", "create", f"{folder}/{name}.db", f"{_SCHEMES}/ovn-{name}.ovsschema"])
        argv = [
            "ovsdb-server",
            f"{folder}/{name}.db",
            f"--remote=punix:{folder}/ovn{name}_db.sock",
            f"--remote=ptcp:{port}:{places.address}",
            f"--unixctl={folder}/ovn{name}_db.ctl",
            "-vconsole:info",
        ]
        start(places, Supervised(f"{CONTROL}-{name}", places.netns, argv, env))
    for name in ("nb", "sb"):
        socket = folder / f"ovn{name}_db.sock"
        until(places, f"OVN's {name} database", socket.exists)
        run(places, [f"ovn-{name}ctl", f"--db=unix:{socket}", "init"], env=env)
    argv = [
        "ovn-northd",
        f"--ovnnb-db=unix:{folder}/ovnnb_db.sock",
        f"--ovnsb-db={places.southbound}",
        "-vconsole:info",
    ]
    start(places, Supervised(CONTROL, places.netns, argv, env))
    return "OVN's databases and ovn-northd run"


def start_messages(lab: Lab, driver: Driver) -> str:
    """Start RabbitMQ."""
    places = NeutronPlaces(lab.layout)
    folder = places.directory / "rabbitmq"
    folder.mkdir()
    env = {
        "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
        "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_NODENAME": "lab@localhost",
        "RABBITMQ_CONFIG_FILE": f"{places.directory}/rabbitmq",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{places.directory}/rabbitmq.plugins",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +A 8",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    argv = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
    start(places, Supervised(CONTROL, places.netns, argv, env))
    until(places, "RabbitMQ", lambda: _listens(places, 5672))
    return "RabbitMQ listens"


def start_keystone(lab: Lab, driver: Driver) -> str:
    """Make Keystone's tables, start it, and make Neutron known to it."""
    places = NeutronPlaces(lab.layout)
    manage = ["keystone-manage", "--config-file", str(places.directory / "keystone.conf")]
    owner = ["--keystone-user", "root", "--keystone-group", "root"]
    run(places, [*manage, "db_sync"])
    for what in ("fernet_setup", "credential_setup"):
        run(places, [*manage, what, *owner])
    urls = [
        word
        for kind in ("admin", "internal", "public")
        for word in (f"--bootstrap-{kind}-url", places.keystone_url)
    ]
    password = {"OS_BOOTSTRAP_PASSWORD": configuration.passwords(places)["admin"]}
    run(places, [*manage, "bootstrap", *urls, "--bootstrap-region-id", configuration.REGION], env=password)
    argv = ["uwsgi-core", "--ini", str(places.directory / "uwsgi.ini")]
    start(places, Supervised(CONTROL, places.netns, argv))
    keystone = Keystone(places)
    until(places, "Keystone", keystone.answers)
    keystone.add_neutron()
    return "Keystone answers"


def start_neutron(lab: Lab, driver: Driver) -> str:
    """Make Neutron's tables and start its server."""
    places = NeutronPlaces(lab.layout)
    files = [
        word
        for name in ("neutron.conf", "ml2.ini")
        for word in ("--config-file", f"{places.directory}/{name}")
    ]
    run(places, ["neutron-db-manage", *files, "upgrade", "heads"])
    start(places, Supervised(CONTROL, places.netns, ["neutron-server", *files]))
    neutron = Neutron(places, driver)
    until(places, "Neutron", neutron.answers)
    return f"Neutron answers at {places.neutron_url}"


def _socket(places: NeutronPlaces) -> str:
    return f"{places.directory}/database.sock"


def _listens(places: NeutronPlaces, port: int) -> bool:
    with netns.held([places.netns]) as inodes:
        mine = [pid for pid in processes.all_pids() if netns.is_inside(pid, inodes)]
    return any(processes.listens(pid, port) for pid in mine)
