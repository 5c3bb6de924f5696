"""Vigia's Grafana dashboards: definitions, checks against the catalogue, JSON."""
