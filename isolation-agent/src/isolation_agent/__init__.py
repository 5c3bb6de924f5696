"""Turns alerts into isolation actions.

Alertmanager posts alerts; a policy file and a chain of guards decide; the
source node's enforcer applies a limit that expires by itself; the agent
verifies, extends and releases it on evidence, and keeps an audit log.
"""

from importlib.metadata import version

__version__ = version("isolation-agent")
