"""In the place of the end of a launcher process, for its parts on a test's own loop."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import NoReturn


def failed(where: str, error: BaseException, story: Iterable[str] = ()) -> NoReturn:
    """Fails the test, unless the error is raised where nobody hears of it; then it is printed."""
    traceback.print_exception(error)
    raise AssertionError(f"the launcher would have died: {where}: {error!r}") from error
