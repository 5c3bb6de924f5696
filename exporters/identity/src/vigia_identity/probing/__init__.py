"""Ports of Neutron to probe between: which there are to be, how they are made, and what nodes are told."""
