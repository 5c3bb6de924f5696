"""E5, experiment A: what two tenants get of their guarantees on one link."""
