"""`python -m lwd`, for launchers such as torchrun."""

import sys

from lwd.cli import main

sys.exit(main())
