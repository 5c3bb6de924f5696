"""The routes, by subject; each says who may call it and what it answers."""
