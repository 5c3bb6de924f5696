"""E1: which overlay gives the best throughput, latency, jitter and loss."""
