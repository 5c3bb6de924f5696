"""`make pictures`: pictures of pages and dashboards for docs/images, with a flood and without, light and dark."""
