"""E2: what rules of an OpenFlow switch cost, and whether it forwards in hardware."""
