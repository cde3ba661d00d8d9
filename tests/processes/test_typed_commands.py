"""Commands as they are typed behind `tfmux run`: braces, and mistakes named by argument."""

from __future__ import annotations

import json

from tests.support.budgets import variants
from tests.support.command import run

WORDS = {
    '{"a": {"b": {"c": 1}}}': '{"a": {"b": {"c": 1}}}',
    "{'size': {rank}}": "{'size': 1}",
    "{rank} of {num.worker}": "1 of 2",
    "{{rank}}": "{rank}",
    "{{ message }}{% if x %}": "{{ message }}{% if x %}",
    "out=${now:%Y}/${name}": "out=${now:%Y}/${name}",
    "train-{000..099}.tar": "train-{000..099}.tar",
    "{rank}-{epoch}.ckpt": "1-{epoch}.ckpt",
    "{x} {epoch} {0} {} } {": "{x} {epoch} {0} {} } {",
}
"""Words, and what the second of two tasks gets."""


def test_only_placeholders_are_replaced() -> None:
    """Given JSON, templates, patterns and variables of Hydra, then they reach the program as they
    were typed; `{rank}` does not. A word that is filled in by halves is said."""
    echo = ["python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    done = run("run", "-n", "2", "--json", "--workdir", "", "--", *echo, *WORDS)
    assert done.returncode == 0, done.stderr
    events = map(json.loads, done.stdout.splitlines())
    (text,) = [e["text"] for e in events if e["event"] == "log" and e["task"] == "worker:1"]
    assert json.loads(text) == list(WORDS.values())
    assert "{epoch} is passed on as it is, and {rank} beside it is replaced" in done.stderr


@variants(
    ("words", "message"),
    [
        (
            ["--", "echo", "{rnak}"],
            "word 2 of the command: unknown placeholder {rnak}: did",
        ),
        (["--", "echo", "{port.ps.0}"], "word 2 of the command: {port.ps.0}: there is no job ps"),
        (["--name", "bad name", "--", "echo"], "--name: write a name of letters"),
        (["--workdir", "/nowhere", "--", "echo"], "--workdir: no such directory: /nowhere"),
        (["--", "A=1", "B=x y", "echo"], "A=1 is not a program: write -x A=1 -x 'B=x y' before"),
        (["--", "python3 t.py --lr 1"], "is one word: write python3 t.py --lr 1"),
        (["--", "echo a > b"], "is one word: write sh -c 'echo a > b'"),
    ],
    test=2,
)
def test_a_mistake_names_the_argument(words: list[str], message: str) -> None:
    """There is no file whose line could be named, and nothing is started."""
    done = run("run", *words)
    assert done.returncode == 2 and message in done.stderr and "line" not in done.stderr
