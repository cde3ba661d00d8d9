"""Random keys, clicks and sizes on every screen: whatever a person does, the app goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.monkey import STARTS, Monkey, monkeys_home


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_that_is_pressed_ends_the_app(tmp_path: Path, seed: int) -> None:
    """300 keys from each seed, spread over all screens; the seed tells what was pressed."""
    starts = STARTS[seed::3]
    with monkeys_home(tmp_path):
        for number, start in enumerate(starts):
            folder = tmp_path / f"from-{start}"
            folder.mkdir()
            monkey = Monkey(folder, start, seed + 3 * number)
            try:
                await monkey.run(300 // len(starts))
            except Exception as error:
                error.add_note(f"seed {monkey.seed} from {start}, the last: {monkey.done[-20:]}")
                raise
