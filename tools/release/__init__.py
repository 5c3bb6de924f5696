"""`make release`: what users download, signed, and the same bytes every time."""
