"""The monitoring stack beside a lab: agents, Prometheus, Alertmanager, isolation agent."""
