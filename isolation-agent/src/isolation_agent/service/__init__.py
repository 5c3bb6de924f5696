"""The running agent and what it needs of the process."""
