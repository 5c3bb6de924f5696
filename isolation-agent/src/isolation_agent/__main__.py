"""Lets ``python -m isolation_agent`` do what the installed command does."""

import sys

from isolation_agent.cli import main

sys.exit(main())
