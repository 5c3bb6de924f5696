"""A bounded UDP flood inside the lab."""
