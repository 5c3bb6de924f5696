"""What the agent knows of: targets, limits, nodes, the states of an action. Nothing here does I/O."""
