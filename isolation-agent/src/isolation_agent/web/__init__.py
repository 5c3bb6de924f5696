"""The HTTP API and the console."""
