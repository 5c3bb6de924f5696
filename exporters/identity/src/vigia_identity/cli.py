"""The command line."""

from __future__ import annotations

import json
import logging
import queue
import signal
import sys
from pathlib import Path

import click

from vigia_config import ConfigError, load
from vigia_identity import __version__
from vigia_identity.clouds import CloudError, Identity, from_kubernetes, from_openstack
from vigia_identity.config import Config
from vigia_identity.files import write

__all__ = ["main"]

PROGRAM = "vigia-identity"
LOG = logging.getLogger(PROGRAM)


class Looker:
    """Looks at the clouds; what one said last stays while it is away."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.known: dict[str, Identity] = {}

    def ask(self) -> list[CloudError]:
        """Ask every cloud; return what failed."""
        c, failed = self.config, []
        for name in ("openstack", "kubernetes"):
            try:
                if name == "openstack" and c.openstack is not None:
                    ports = c.ports_dir is not None
                    self.known[name] = from_openstack(c.openstack, ports=ports, timeout=c.timeout)
                elif name == "kubernetes" and c.kubernetes is not None:
                    self.known[name] = from_kubernetes(c.kubernetes, timeout=c.timeout)
            except CloudError as e:
                failed.append(e)
        return failed

    def identity(self) -> Identity | None:
        """Return what all clouds say together, or None until each has answered once."""
        wanted = [n for n in ("openstack", "kubernetes") if getattr(self.config, n) is not None]
        if any(n not in self.known for n in wanted):
            return None
        together = Identity()
        for name in reversed(wanted):  # the first goes before the others
            together.names.update(self.known[name].names)
            together.ports.update(self.known[name].ports)
        return together

    def once(self) -> bool:
        """Ask, write what is known, log; return whether all went well."""
        failed = self.ask()
        for e in failed:
            LOG.warning("%s", e)
        identity = self.identity()
        if identity is None:
            return False
        try:
            changed = write(identity, self.config.tenants_file, self.config.ports_dir)
        except OSError as e:
            LOG.warning("cannot write: %s", e)
            return False
        LOG.info(
            "%d tenants, %d hosts with ports, %d files written",
            len(identity.names),
            len(identity.ports),
            len(changed),
        )
        return not failed


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name=PROGRAM)
@click.option(
    "--config", "path", required=True, type=click.Path(path_type=Path), help="Configuration (YAML)."
)
@click.option("--once", is_flag=True, help="Ask once, write, and exit: 0 if every cloud answered.")
@click.option("--check-config", "check", is_flag=True, help="Read the configuration and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --once, print what is known as JSON.")
def main(path: Path, *, once: bool, check: bool, as_json: bool) -> None:
    """Ask the clouds for names of tenants and owners of ports, and write them for the exporters.

    One of these serves a whole site: no node asks a cloud's API.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    for chatty in ("httpx", "keystoneauth", "openstack"):  # they would log requests
        logging.getLogger(chatty).setLevel(logging.ERROR)
    try:
        config = load(path, Config)
    except ConfigError as e:
        for line in str(e).splitlines():
            click.echo(f"{PROGRAM}: {line}", err=True)
        sys.exit(1)
    if check:
        click.echo(f"{path}: OK")
        return
    looker = Looker(config)
    if once:
        well = looker.once()
        identity = looker.identity()
        if as_json and identity is not None:
            hosts = {h: [vars(p) for p in ports] for h, ports in identity.ports.items()}
            click.echo(json.dumps({"tenants": identity.names, "ports": hosts}))
        sys.exit(0 if well else 1)
    _run(looker, path)


def _run(looker: Looker, path: Path) -> None:
    """Ask again and again until told to stop; SIGHUP reads the configuration anew."""
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    while True:
        every = looker.config.every
        wait = every if looker.once() else min(every, 15.0)
        try:
            if signals.get(timeout=wait) != signal.SIGHUP:
                return
        except queue.Empty:
            continue
        try:
            looker.config = load(path, Config)
            LOG.info("configuration read anew")
        except ConfigError as e:
            LOG.error("configuration is broken, running on the one before: %s", e)
