"""make fuzz: what reads bytes that others write, given bytes that nobody meant well."""
