"""Hours of the whole stack under churn, and whether anything in it grows without end."""
