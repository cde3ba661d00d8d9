"""From an empty configuration to a training on four hosts, with keys alone, in a real terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.cluster.library import path_of
from launcher.hosts.host_keys import accepted_keys
from launcher.store.runs import RunFolder
from tests.support.terminal import Terminal
from tests.testbed.namespaces import Testbed

HOSTS = ("tf1", "tf2", "tf3", "tf4")


def forget_host_keys(home: Path) -> None:
    """Leaves the user of `home` with keys and aliases, as if no host had ever been met."""
    (home / ".ssh" / "known_hosts").unlink()
    config = home / ".ssh" / "config"
    kept = [line for line in config.read_text().splitlines() if "KnownHosts" not in line]
    config.write_text("\n".join(kept) + "\n")


def answer_first_contacts(window: Terminal, testbed: Testbed) -> None:
    """Trusts the keys of all hosts at once, after their fingerprints have been shown."""
    shown = window.wait_for("First contact with 4 hosts", *HOSTS, "a trust all 4 shown")
    fingerprints = set(re.findall(r"ssh-ed25519 SHA256:[A-Za-z0-9+/]{43}", shown))
    assert len(fingerprints) == len(HOSTS), shown
    window.keys("a")
    window.wait_until(lambda s: "First contact" not in s, "the next screen")


@pytest.mark.soak
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_from_nothing_to_a_training_on_four_hosts(
    testbed: Testbed,
    tfmux_home: Path,
    terminal: Callable[[int, int], Terminal],
    size: tuple[int, int],
) -> None:
    """Given no cluster file and four unknown hosts, when a person fills in a template, launches it
    and trusts the hosts' keys, then the run succeeds and stands among the past runs."""
    testbed.give_access(tfmux_home)
    forget_host_keys(tfmux_home)
    window = terminal(*size)
    window.run()
    window.wait_for("a creates one from a template", "demos")
    window.keys("a")
    window.wait_for("ps + workers on SSH hosts")
    window.keys("2")
    window.wait_for("Name")
    window.keys(*["BSpace"] * len("ps-workers"), "mission", "Tab", "tf[1-4]")
    window.wait_for("4 hosts: tf1, tf2, tf3, tf4")
    window.keys("Enter")
    window.wait_for("mission", "hosts × jobs", "tf4        tf4")

    window.keys("Home", "Enter")
    window.wait_for("[defaults.host]", "interpreter for {python}")
    window.keys(str(testbed["tf1"].python), "Enter")
    window.wait_for("[defaults.host]", "✓")
    window.keys("F4")
    window.wait_for("Settings", "[metrics]")
    window.keys("1")
    window.wait_for("Enter accepts", "--steps=2000")
    window.keys("BSpace", "Enter")
    window.wait_until(lambda s: "Enter accepts" not in s, "the table")
    window.keys("Space")
    window.wait_until(lambda s: "hosts × jobs" not in s, "the plan alone")
    window.wait_for("starts ps:0", "then worker:0", "--steps=200", "environment")
    window.keys("Escape")
    window.wait_for("hosts × jobs")
    window.keys("C-s")
    window.wait_for("saved in", "✓")
    text = path_of("mission").read_text()
    assert text.count(f'python = "{testbed["tf1"].python}"') == 1
    assert '"--steps=200"' in text and "# " in text

    window.keys("l")
    answer_first_contacts(window, testbed)
    window.wait_for("ps:0 @tf1", "worker:0 @tf2")
    window.wait_for("✓ success", "no process is left", timeout=150)
    assert len(accepted_keys().read_text().splitlines()) == 4
    window.keys("Escape", "Escape")
    window.wait_for("hosts × jobs")
    window.keys("Escape")
    window.wait_for("Runs 1", "✓ success", "mission-", "step")
    window.keys("q")
    screen = window.wait_for("EXIT-CODE 0", "worker:2 on tf4: exit 0")
    assert "no process is left" in screen
    [folder] = RunFolder.all()
    assert folder.launcher_pid() is None


def test_up_asks_for_the_keys_of_strangers_and_f9_ends_it(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path, terminal: Callable[[int, int], Terminal]
) -> None:
    """Given four unknown hosts, when `tfmux up FILE` runs, then it asks to trust their fingerprints
    and starts the tasks after that; F9 ends the run with a confirmed receipt."""
    testbed.give_access(tfmux_home)
    forget_host_keys(tfmux_home)
    tables = "".join(
        f'[hosts.{h.name}]\nssh = "{h.name}"\npython = "{h.python}"\n' for h in testbed
    )
    tasks = ", ".join(f'"{name}:auto"' for name in HOSTS)
    file = tmp_path / "up.toml"
    file.write_text(
        f'{tables}[jobs.worker]\ntasks = [{tasks}]\nready = "started"\n'
        '[run]\ncommand = ["sleep", "600"]\nworkdir = ""\n'
    )
    window = terminal(120, 40)
    window.run("up", str(file))
    answer_first_contacts(window, testbed)
    window.wait_for("worker:3 @tf4")
    window.wait_until(lambda s: s.count("ready") >= 4 or s.count(" r ") >= 4, "four ready tasks")
    window.keys("F9")
    window.wait_for("no process is left", "confirmed")
    window.keys("q")
    window.wait_for("EXIT-CODE 130")
