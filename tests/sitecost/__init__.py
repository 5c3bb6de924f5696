"""What a site costs its Prometheus: real pages of one node as many nodes, the shipped rules, data of hours and weeks."""
