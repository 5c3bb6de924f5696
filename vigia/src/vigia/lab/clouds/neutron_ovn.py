"""OpenStack's Neutron with OVN: no agents, no Keystone, no RabbitMQ."""

from __future__ import annotations

from vigia.lab.neutron.build import cloud

__all__ = ["CLOUD"]

CLOUD = cloud("ovn", "neutron-ovn")
