"""The version of tfmux before this one, built from the history of this repository."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.requirements import require

COMMIT = "08c1f6bf494353c52875c5b9b69ab69c7d3a416a"
"""The last one that speaks `PROTOCOL`; the next change of the wire names the commit before it."""
PROTOCOL = 11


def earlier_site(folder: Path) -> Path:
    """Makes a folder with the packages of the version before, as its wheel installs them; skips the
    test, or fails it in CI, where the history is not at hand."""
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", COMMIT], capture_output=True, timeout=PATIENCE
    )
    if archive.returncode:
        said = archive.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        require(f"the version before cannot be built from this repository's history ({said})")
    tree, dist, site = folder / "tree", folder / "dist", folder / "site"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", dist, "-t", "wheel"],
        cwd=tree,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packages:
        packages.extractall(site)
    return site
