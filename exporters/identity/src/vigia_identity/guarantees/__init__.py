"""Guarantees as objects of the cluster: what was bought, what nodes have of it, and who is limited."""
