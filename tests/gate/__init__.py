"""The gate: every check and test of the project, run side by side, ending with an honest count.

`make test` runs the steps of `SHORT`, `make test-long` those of `LONG`, `make test-all` both and those of `CLOUDS`. Each step prints
one line when it is over; what failed is shown in full, then the slowest tests and
the count. A test that was skipped is listed with its reason, and as root no test may
be skipped for want of root.
"""
