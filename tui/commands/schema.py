"""`tfmux schema`: prints the JSON Schema of the cluster file, for text editors."""

from __future__ import annotations

import argparse
import sys

from launcher.cluster.reference import schema_text
from tui.exits import Exit


def schema(arguments: argparse.Namespace) -> int:
    """Prints the schema that new cluster files name in their `#:schema` line."""
    sys.stdout.write(schema_text())
    return Exit.SUCCESS
