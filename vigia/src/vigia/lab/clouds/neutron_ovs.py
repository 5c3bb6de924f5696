"""OpenStack's Neutron with agents for Open vSwitch, Keystone and RabbitMQ."""

from __future__ import annotations

from vigia.lab.neutron.build import cloud

__all__ = ["CLOUD"]

CLOUD = cloud("openvswitch", "neutron-ovs")
