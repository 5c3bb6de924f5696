"""vigia top: tenants and paths by badness, as vigia-compare sees the site."""
