"""The command vigia: one module for each of its groups; what they do is in the other rooms."""
