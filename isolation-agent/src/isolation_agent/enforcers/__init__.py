"""The enforcers of all nodes: their client, the fleet of them, and what they said last."""
