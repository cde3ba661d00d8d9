"""`~` in commands and variables: the home of the host, as far as a shell would see it."""

from __future__ import annotations

import os

import pytest

from launcher.plan.facts import HostFacts
from tests.support.cluster_texts import cluster_text
from tests.support.plans import plan_of, task

FACTS = {"far": HostFacts(home="/home/their own", workdir="/w")}


def text(*command: str, **env: str) -> str:
    """A worker on the host `far` with this command and these variables."""
    pairs = ", ".join(f'{name} = "{value}"' for name, value in env.items())
    hosts = {"far": {"ssh": "10.0.0.1"}}
    return cluster_text(
        {"worker": "far:2222"}, "c", hosts, command=command, more=f"env = {{ {pairs} }}"
    )


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("~/out/{index}", "/home/their own/out/0"),
        ("~", "/home/their own"),
        ("~/{{x}}", "/home/their own/{x}"),
        ("--out={home}/x", "--out=/home/their own/x"),
        ("~other/x", "~other/x"),
        ("./~/x", "./~/x"),
        ("--out=~/x", "--out=~/x"),
        ("a~/x", "a~/x"),
    ],
)
def test_a_word_in_the_home_of_its_host(word: str, there: str) -> None:
    """Whatever characters the home has; before the host is known, `~` stays for it."""
    assert task(plan_of(text("prog", word), FACTS), "worker:0").argv[1] == there
    first = task(plan_of(text("prog", word)), "worker:0").argv[1]
    assert first == there.replace("/home/their own", "~")


def test_a_program_in_the_home_of_its_host() -> None:
    """Also of this machine."""
    assert task(plan_of(text("~/bin/prog"), FACTS), "worker:0").argv == (
        "/home/their own/bin/prog",
    )
    here = text("~/bin/prog").replace("far:2222", "localhost:2222")
    assert task(plan_of(here), "worker:0").argv == (f"{os.path.expanduser('~')}/bin/prog",)


SHELLS = [("sh", "-c"), ("/bin/bash", "-lc"), ("env", "A=1", "zsh", "-c")]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_left_to_its_shell(shell: tuple[str, ...]) -> None:
    """Which quotes as it must; an option `-c` of another program is no script."""
    script = "~/bin/a --x=~/y && ~/bin/b"
    assert task(plan_of(text(*shell, script), FACTS), "worker:0").argv[-1] == script
    words = task(plan_of(text("prog", "-c", "~/c.yaml"), FACTS), "worker:0").argv
    assert words[-1] == "/home/their own/c.yaml"


def test_variables_in_the_home_of_the_host() -> None:
    """Each part of a list with colons, as a shell has it in an assignment."""
    env = task(
        plan_of(text("prog", A="~/a", B="~/b:/usr/bin:~", C="http://~/c", D="x~/d"), FACTS),
        "worker:0",
    ).env
    home = "/home/their own"
    assert (env["A"], env["B"]) == (f"{home}/a", f"{home}/b:/usr/bin:{home}")
    assert (env["C"], env["D"]) == ("http://~/c", "x~/d")
