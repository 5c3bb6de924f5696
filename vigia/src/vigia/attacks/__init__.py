"""Attacks and honest traffic against isolation, with a victim that is measured; causes of loss, planted."""
