"""Makes the name vigia mean the package before pytest meets the folder of that name."""

import vigia  # noqa: F401
