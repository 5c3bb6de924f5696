"""OpenStack's Neutron as a lab's cloud: its control plane, its agents on the nodes, what it knows."""
