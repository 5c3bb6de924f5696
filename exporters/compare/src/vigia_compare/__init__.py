"""vigia-compare: which path is better, live, and is the difference real."""

from importlib.metadata import version

__version__ = version("vigia-compare")
