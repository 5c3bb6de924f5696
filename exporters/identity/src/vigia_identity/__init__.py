"""Names of tenants and owners of ports, asked of the cloud once for all nodes."""

__version__ = "0.1.0"
