"""Writes the generated parts of the documentation: `python -m docs.reference`.

A generated part stands between `<!-- PART -->` and `<!-- end -->` in any page: one of `PARTS`, or
`keys of TABLE` of the cluster file. The JSON Schemas are generated as a whole. A test fails while
they are not up to date.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from docs import bindings, command_line, events
from docs.markdown import table
from launcher.cluster.reference import keys, markdown, schema_text
from launcher.history.run_list import active_runs_schema
from launcher.preflight import report_schema
from launcher.run import stack_groups
from tui.commands.plan import output_schema
from tui.config import SETTINGS
from tui.exits import Exit

DOCS = Path(__file__).parent
SCHEMAS = DOCS / "schemas"
_COLUMNS = 120


def _settings() -> list[str]:
    return table(("key", "is"), ((f"`{name}`", about) for name, about in SETTINGS.items()))


def _exit_codes() -> list[str]:
    return table(("code", "means"), ((str(int(code)), code.meaning) for code in Exit))


def _keys_of(name: str) -> list[str]:
    if name == "defaults.host":  # the same keys as those of a host
        return [f"Its keys: {', '.join(f'`{key.name}`' for key in keys(name))}."]
    lines = list(markdown("" if name == "the file" else name))
    return _without_those_of_run(lines) if name == "jobs" else lines


def _without_those_of_run(lines: list[str]) -> list[str]:
    """The keys of a job without those that mean what they mean in `[run]`, which are only named."""
    wins = [f"`{key.name}`" for key in keys("jobs") if "as in `[run]`" in key.default]
    adds = [f"`{key.name}`" for key in keys("jobs") if "`[run]` adds its own" in key.about]
    own = [line for line in lines if line.split(" | ")[0].removeprefix("| ") not in wins + adds]
    sentences = (
        f"A job's {_list(wins)} win over those of its host and of `[run]`. Its {_list(adds)} hold "
        "for its own hosts and tasks, in addition to those of `[run]`."
    )
    return [*own, "", *textwrap.wrap(sentences, _COLUMNS, break_on_hyphens=False)]


def _list(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _other_pages() -> list[str]:
    """The pages that nothing else in the index links."""
    index = DOCS / "index.md"
    written = _PART.sub("", index.read_text(encoding="utf-8"))
    others = [page for page in pages() if page != index and f"({_name(page)})" not in written]
    return [f"- [{_name(page)}]({_name(page)}): {_title(page)}" for page in others]


def _name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "settings": _settings,
    "exit codes": _exit_codes,
    "keys": bindings.markdown,
    "commands": command_line.markdown,
    "events": events.markdown,
    "other pages": _other_pages,
}
"""Parts that there are once."""
_PART = re.compile(rf"(<!-- ({'|'.join(PARTS)}|keys of .+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """All pages of the manual."""
    return sorted(DOCS.rglob("*.md"))


def generated() -> dict[Path, str]:
    """Files with generated parts, as they should be."""
    found = {page: page.read_text(encoding="utf-8") for page in pages()}
    found = {page: _PART.sub(_part, text) for page, text in found.items() if _PART.search(text)}
    return {
        **found,
        DOCS / "cluster.schema.json": schema_text(),
        SCHEMAS / "event.schema.json": _schema("tfmux event", events.schema()),
        SCHEMAS / "check.schema.json": _schema("tfmux check --json", report_schema()),
        SCHEMAS / "plan.schema.json": _schema("tfmux plan --json", output_schema()),
        SCHEMAS / "ps.schema.json": _schema("tfmux ps --json", active_runs_schema()),
        SCHEMAS / "stacks.schema.json": _schema("tfmux stacks --json", stack_groups.schema()),
    }


def count_parts(text: str) -> int:
    """The number of generated parts in a page."""
    return len(_PART.findall(text))


def _schema(title: str, schema: dict[str, Any]) -> str:
    """The file of a schema."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**head, **schema, "title": title}, indent=2) + "\n"


def _part(match: re.Match[str]) -> str:
    begin, what, end = match.groups()
    kind, _, name = what.partition(" of ")
    if kind == "keys" and name:
        lines: Iterable[str] = _keys_of(name)
    else:
        lines = PARTS[what]()
    return begin + "\n".join(lines) + "\n" + end


def main() -> None:
    """Writes the files."""
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
