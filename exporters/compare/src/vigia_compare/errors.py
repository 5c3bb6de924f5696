"""Errors that are for people."""


class CompareError(Exception):
    """A line that says what failed and what to do."""
