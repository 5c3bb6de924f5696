"""E4: what hosts give: network, memory, processor, disk, natively and inside a tenant."""
