"""`python -m simulation`, with `tests` on the path."""

import sys

from simulation.runner import main

sys.exit(main())
