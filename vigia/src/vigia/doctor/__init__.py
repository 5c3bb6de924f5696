"""vigia doctor: what a node lacks, and the command that mends it."""
