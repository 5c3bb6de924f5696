"""Campaigns across real nodes: the agent on each, and how a campaign finds and uses them."""
