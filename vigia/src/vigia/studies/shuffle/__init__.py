"""E5, experiment B: how long an all-to-all job takes among competing pairs."""
