"""Builds the manual as a site with search and navigation: `python -m docs.site FOLDER`.

The pages are those of `docs/` and of the project's root. Their links are relative to where they lie
in the repository, so all are laid into one folder with the same shape first. The navigation is made
from the tables of `docs/index.md`. A link that leads nowhere fails the build.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"\]\((\S+?\.md)\)")
_OUTSIDE = re.compile(r"\]\(\.\./([^)\s#]+)")
"""A link to a file that lies beside `docs/` or in another package."""
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
_SETTINGS = {
    "project": "tfmux",
    "html_theme": "furo",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 4,
    "master_doc": "docs/index",
    # Consoles show output that no lexer knows. Pages of the root stand in no navigation; a test
    # sees that the index has all others.
    "suppress_warnings": ["misc.highlighting_failure", "toc.not_included"],
}


def navigation(index: str) -> str:
    """The trees of contents for the side of each page: one a section of the index."""
    trees = []
    for title, body in _SECTION.findall(index):
        pages = dict.fromkeys(_PAGE.findall(body))
        if pages:
            lines = "\n".join(page.removesuffix(".md") for page in pages)
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "\n".join(trees)


def lay_out(folder: Path) -> None:
    """Copy everything that pages show or link into the folder."""
    names = shutil.ignore_patterns("__pycache__", ".venv", ".git")
    shutil.copytree(DOCS, folder / "docs", ignore=names)
    for path in ROOT.glob("*.md"):
        shutil.copy(path, folder)
    for path in (folder / "docs").glob("*.md"):
        for name in _OUTSIDE.findall(path.read_text(encoding="utf-8")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for path in folder.rglob("*.md"):
        text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
    index = folder / "docs" / "index.md"
    text = index.read_text(encoding="utf-8")
    index.write_text(f"{text}\n{navigation(text)}", encoding="utf-8")


def build(target: Path) -> int:
    """Build the site; returns 1 where a page or a link is wrong."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        source.mkdir()
        lay_out(source)
        settings = {**_SETTINGS, "html_title": f"tfmux {version('tfmux')}"}
        with patch_docutils(), docutils_namespace():
            app = Sphinx(
                srcdir=source,
                confdir=None,
                outdir=target,
                doctreedir=Path(name) / "trees",
                buildername="html",
                confoverrides=settings,
                warningiserror=True,
            )
            app.build()
        return int(app.statuscode)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")))
