"""Reports of campaigns: a question, its answer with its uncertainty, and everything behind it."""
