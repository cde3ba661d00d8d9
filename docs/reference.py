"""Writes the generated parts of the documentation: `python -m docs.reference`.

The tables of keys in `cluster-file.md` stand between `<!-- keys of TABLE -->` and `<!-- end -->`;
`cluster.schema.json` is generated as a whole. A test fails while they are not up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from launcher.cluster.reference import json_schema, markdown

DOCS = Path(__file__).parent
_TABLE = re.compile(r"(<!-- keys of (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_TOP_LEVEL = "the file"


def generated() -> dict[Path, str]:
    """Files with generated parts, as they should be."""
    reference = DOCS / "cluster-file.md"
    return {
        reference: _TABLE.sub(_with_table, reference.read_text(encoding="utf-8")),
        DOCS / "cluster.schema.json": json.dumps(json_schema(), indent=2) + "\n",
    }


def _with_table(match: re.Match[str]) -> str:
    begin, table, end = match.groups()
    lines = markdown("" if table == _TOP_LEVEL else table)
    return begin + "\n".join(lines) + "\n" + end


def main() -> None:
    """Writes the files."""
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
