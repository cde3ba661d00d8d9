"""YAML in texts: read by PyYAML, an optional extra, which builds nothing but plain values."""

from __future__ import annotations

from typing import Any

from ...printable import printable
from .understood import ShorthandError

_LONGEST = 1 << 17
_MOST_MERGED = 2000
_MISSING = "reading YAML needs PyYAML: pip install 'tfmux[yaml]'"


class YamlMissingError(ShorthandError):
    """PyYAML is not installed."""


def read_yaml(text: str) -> list[Any]:
    """The documents of a text, as plain values.

    Raises:
        ShorthandError: it is no YAML, or too large; or PyYAML is missing.
    """
    if len(text) > _LONGEST:
        raise ShorthandError("larger than 128 KiB: this does not define a cluster")
    try:
        import yaml
    except ImportError:
        raise YamlMissingError(_MISSING) from None

    class Loader(yaml.SafeLoader):
        """PyYAML's safe loader, in which merged mappings cannot grow without end."""

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_MERGED:
                raise yaml.YAMLError("a mapping is merged too often")

    try:
        documents = list(yaml.load_all(text, Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        said = getattr(error, "problem", None) or str(error).partition("\n")[0]
        what = (
            "it is nested too deeply" if isinstance(error, RecursionError) else printable(said, 200)
        )
        raise ShorthandError(f"not valid YAML: {where}{what}") from None
    return documents
