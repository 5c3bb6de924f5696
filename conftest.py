"""Settings of every Python test.

The name vigia means the package before pytest meets the folder of that name. Property
tests draw the same examples in each run, so that the gate judges the change alone;
`--hypothesis-profile=search` draws new ones.
"""

from hypothesis import settings

import vigia  # noqa: F401

settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=1000, deadline=None)
settings.load_profile("gate")
