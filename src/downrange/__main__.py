"""`python -m downrange`: the command line, for who has no `downrange` on the path."""

import sys

from downrange.app.cli import main

sys.exit(main())
