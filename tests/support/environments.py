"""Virtual environments of Python that have one module, for tests."""

from __future__ import annotations

import sys
from pathlib import Path

LIBRARY = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def environment(place: Path, module: str = "tensorflow") -> Path:
    """A virtual environment that has a module, by the Python of the tests; returns its program."""
    (place / LIBRARY / module).mkdir(parents=True)
    (place / LIBRARY / module / "__init__.py").touch()
    (place / "bin").mkdir()
    base = Path(sys.base_prefix) / "bin"
    (place / "pyvenv.cfg").write_text(f"home = {base}\n")
    program = place / "bin/python3"
    program.symlink_to(base / "python3")
    return program
