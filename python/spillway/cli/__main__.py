"""`python -m spillway.cli`."""

import sys

from spillway_cli import main

sys.exit(main())
