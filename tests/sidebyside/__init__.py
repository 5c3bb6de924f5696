"""make bench: what is ours beside its peers and beside what it cannot go below, in one run."""
