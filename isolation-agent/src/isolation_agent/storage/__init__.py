"""What is kept: the database, the audit log, the leader's lease. No other room knows of SQL."""
