"""Copies of the program at a commit, each with a virtual environment of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from bench.faults import faults_record

ROOT = Path(__file__).resolve().parents[2]


def short(commit: str) -> str:
    """Return the short name of a commit."""
    words = ["git", "rev-parse", "--short=10", f"{commit}^{{commit}}"]
    return subprocess.run(
        words, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def copy_of(commit: str, folder: Path) -> Path:
    """Return a working tree of a commit in a folder, made if it is not there: packages are linked
    to those of this one's environment."""
    if (folder / ".venv/ready").exists():
        return folder
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
    words = ["git", "worktree", "add", "--quiet", "--force", "--detach", str(folder), commit]
    subprocess.run(words, cwd=ROOT, check=True)
    subprocess.run(["cp", "-al", ROOT / ".venv", folder / ".venv"], check=True)
    site = _site(folder)
    named = [*(folder / ".venv/bin").iterdir(), folder / ".venv/pyvenv.cfg", *site.glob("*.pth")]
    for file in (*named, *site.glob("tfmux*/*")):
        if file.is_symlink() or not file.is_file():
            continue
        data = file.read_bytes()
        if str(ROOT).encode() in data:
            mode = file.stat().st_mode
            file.unlink()  # a link: the other environment keeps its own
            file.write_bytes(data.replace(str(ROOT).encode(), str(folder).encode()))
            file.chmod(mode)
    (folder / ".venv/ready").touch()
    return folder


def remove(folder: Path) -> None:
    """Remove a copy."""
    words = ["git", "worktree", "remove", "--force", "--force", str(folder)]
    if subprocess.run(words, cwd=ROOT, capture_output=True).returncode:
        shutil.rmtree(folder, ignore_errors=True)


def record_in(copy: Path, folder: Path) -> None:
    """Let all interpreters of a copy's environment record what tests run, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).parent
    for name in ("faults_record", "faults_plugin"):
        text = (here / f"{name}.py").read_text().replace('"@FOLDER@"', repr(str(folder)))
        (_site(copy) / f"{name}.py").write_text(text)
    (_site(copy) / "zz_faults.pth").write_text("import faults_record\n")
    faults_record.prepare(str(folder))


def plant(copy: Path, path: str, source: bytes) -> None:
    """Write a module of a copy; none of its compiled files is taken for it."""
    file = copy / path
    file.write_bytes(source)
    for compiled in file.parent.glob(f"__pycache__/{re.escape(file.stem)}.*.pyc"):
        compiled.unlink()


def _site(copy: Path) -> Path:
    (found,) = (copy / ".venv/lib").glob("python3*/site-packages")
    return found
