"""OpenStack's Neutron with agents for Linux bridges, Keystone and RabbitMQ."""

from __future__ import annotations

from vigia.lab.neutron.build import cloud

__all__ = ["CLOUD"]

CLOUD = cloud("linuxbridge", "neutron-linuxbridge")
