"""A person's own settings: `$XDG_CONFIG_HOME/tfmux/config.toml`.

theme = "nord"
notify = "desktop"      # or "bell"; by default "off": see `notification`

[keys]                  # ids stand in the command palette; several keys with commas
kill_all = "f9,f12"
"scroll.follow" = "G,end,f"
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from launcher.frozen import frozen
from launcher.paths import config_home
from tui.notification import Notify

SETTINGS = {
    "theme": "name of a theme, as in the command palette (*Theme*), such as `nord` "
    "(default: the last one chosen there, at first `textual-dark`)",
    "notify": '`"off"`, `"bell"` or `"desktop"`: what the terminal does when a run ends or fails',
    "keys": "table of keys: the id of a command, and its keys separated by commas",
}
"""The keys of the file, each with what it is, in Markdown."""


@frozen
class Config:
    """Settings of the file. Problems are shown, and the other settings still hold."""

    theme: str | None = None
    notify: Notify = Notify.OFF
    keys: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def config_path() -> Path:
    """Path of the file, which need not exist."""
    return config_home() / "config.toml"


def load_config(path: Path | None = None) -> Config:
    """Reads the file; a missing one is empty."""
    path = path or config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        return Config(problems=(f"{path}: {error}",))
    import tomllib  # most people have no such file, and the first frame is sooner without

    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Config(problems=(f"{path}: {error}",))
    problems = [f"{path}: unknown key {key!r}" for key in raw if key not in SETTINGS]
    theme = raw.get("theme")
    if theme is not None and not isinstance(theme, str):
        problems.append(f"{path}: theme must be a name in quotes, not {theme!r}")
        theme = None
    notify = raw.get("notify", Notify.OFF)
    if notify not in list(Notify):
        problems.append(f'{path}: notify must be "off", "bell" or "desktop", not {notify!r}')
        notify = Notify.OFF
    keys = raw.get("keys", {})
    if not isinstance(keys, dict):
        problems.append(f"{path}: keys must be a table: [keys]")
        keys = {}
    good = {name: key for name, key in keys.items() if isinstance(key, str) and key}
    problems += [f"{path}: keys.{name} must be a key in quotes" for name in keys.keys() - good]
    return Config(theme, Notify(notify), good, tuple(problems))
