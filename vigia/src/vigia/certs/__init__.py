"""vigia certs: a small certificate authority for the parts of a site."""
