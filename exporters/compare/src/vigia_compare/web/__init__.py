"""Pages for people: the comparison, the mesh, tenants, incidents. Drawn here, without a Grafana."""
