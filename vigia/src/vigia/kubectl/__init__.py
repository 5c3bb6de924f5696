"""What the plugin of kubectl asks of a cluster, and how it reaches what runs there."""
