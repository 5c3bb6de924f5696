"""One module per study: its answer in a sentence, its tables, its plots."""
