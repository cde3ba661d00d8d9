"""A program that shows what it finds."""

import os
import sys

for name in ("WHERE", "GREETING", "OMP_NUM_THREADS"):
    print(name, os.environ.get(name))
print("terminal", sys.stdout.isatty())
