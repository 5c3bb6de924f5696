"""What happened when a path turned bad: what the probes of the nodes recorded, in sentences."""
