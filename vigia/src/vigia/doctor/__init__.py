"""vigia doctor: prerequisites of the agents on a node, and fixes."""
