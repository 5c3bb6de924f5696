"""Pages that are made from code: a module for each kind, which docs/generate.py writes."""
