"""Rate-limits a flooding tenant at its own port until the flood ends.

Alertmanager posts alerts; a policy file and a chain of guards decide; the
source node's enforcer sets a limit with a TTL; the agent verifies, extends
and releases it on evidence, and keeps an audit log.

``model``, ``policy`` and ``decision`` are the pure core. ``storage`` has the
database and the audit log, ``enforcers`` the nodes' API, ``alerts`` what
Alertmanager sends, ``actions`` the controller, ``web`` the API and the
console, ``service`` the running agent. Each room imports from those named
before it only; ``serve`` and ``cli`` put them together.
"""

from importlib.metadata import version

__version__ = version("isolation-agent")
