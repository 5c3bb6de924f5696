"""python -m vigia_compare."""

import sys

from vigia_compare.cli import main

sys.exit(main())
