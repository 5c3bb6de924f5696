"""Names of tenants and owners of ports, asked of the cloud once for all nodes."""

from importlib.metadata import version

__version__ = version("vigia-identity")
