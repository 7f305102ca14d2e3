"""How long idle OpenMP threads spin. Imported before torch, which reads the setting once, when it is loaded."""

import os
import sys

NAME, COUNT = "GOMP_SPINCOUNT", "2000"
"""If another process is busy, threads that spin while they wait make small layers many times slower. On an idle machine
no spin at all costs speed as well; benchmarks/spin.py measures both."""
LATE = "torch" in sys.modules and NAME not in os.environ
"""Whether torch was loaded without the setting, so that it has no effect in this process."""
os.environ.setdefault(NAME, COUNT)
