"""Alertmanager's messages: read, kept as episodes, and turned into claims for actions."""
