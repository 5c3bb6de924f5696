"""The vigia command."""
