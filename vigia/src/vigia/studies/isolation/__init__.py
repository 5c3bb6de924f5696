"""E3: what the virtual switch, bypassing it, and IPsec cost."""
