"""The demo: the whole of Vigia at work on the lab, observed rather than claimed."""
