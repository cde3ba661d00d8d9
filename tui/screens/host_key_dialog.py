"""Dialog for unknown host keys: one for all hosts, however many ask at the same time.

A changed key is never asked about: the login fails (`launcher.hosts.ssh`).
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Label, Static
from textual.widgets.option_list import Option

from launcher.hosts.auth_prompt import YES, AuthPrompt, OfferedKey
from launcher.quantities import counted
from tui.keys import key_of
from tui.screens.dialogs import Choices, Dialog
from tui.tables import cut
from tui.widgets.footer import KeyFooter

NO = "no"
_WIDEST = 16
"""Most cells of a host's name in the choices."""


@dataclass(eq=False)
class OpenPrompt:
    """Prompt that waits for its answer."""

    prompt: AuthPrompt
    answer: Future[str | None] = field(default_factory=Future)
    drawn: bool = False
    """The prompt has been on the screen."""

    def set(self, text: str | None) -> None:
        """Answers it, where nobody has, and the launcher still waits."""
        with suppress(InvalidStateError):
            self.answer.set_result(text)

    @property
    def key(self) -> OfferedKey:
        """Key that it asks about; from a launcher of another version there is only its text."""
        return self.prompt.key or OfferedKey(self.prompt.host, "", self.prompt.text)


class HostKeyList(Choices):
    """The keys, two lines each. Enter refuses: nothing is trusted by a slip."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.refuse", "Refuse the key under the cursor", show=False),
        Binding("j", "cursor_down", "Next key", show=False),
        Binding("k", "cursor_up", "Previous key", show=False),
    ]

    def action_select(self) -> None:
        """Does nothing: a click only moves the cursor."""


class HostKeyDialog(Dialog[None]):
    """Lists keys; each is trusted or refused by itself, or all that are shown at once.

    Its owner adds and removes prompts by `show`, and closes it where they have gone by themselves.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "trust_shown", "Trust all keys that are shown", id="host_keys.trust_all"),
        Binding("y", "trust", "Trust the key under the cursor", id="host_keys.trust"),
        Binding("n", "refuse", "Refuse the key under the cursor", id="host_keys.refuse"),
        Binding("escape", "refuse_all", "Refuse all keys", id="dialog.back"),
    ]

    def __init__(self, prompts: list[OpenPrompt]) -> None:
        super().__init__("")
        self.prompts = list(prompts)
        """Prompts on the screen, in the order in which they came."""

    def body(self) -> ComposeResult:
        yield HostKeyList(markup=False)
        yield Static(id="compare", markup=False, classes="dialog-note")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.show(self.prompts)

    def show(self, prompts: list[OpenPrompt]) -> None:
        """Shows these prompts, new ones behind the others; the cursor stays on its key."""
        keys, current = self.query_one(HostKeyList), self._current
        new = [each for each in prompts if each not in self.prompts or not each.drawn]
        kept = [each for each in self.prompts if each in prompts and each not in new]
        prompts = [*kept, *sorted(new, key=lambda each: each.prompt.host)]
        self.prompts = prompts
        keys.clear_options()
        keys.add_options([Option(self._key_text(each)) for each in prompts])
        if prompts:
            keys.highlighted = next((prompts.index(one) for one in current if one in prompts), 0)
        title = self.query_one(".dialog-title", Label)
        one = len(prompts) == 1
        who = prompts[0].prompt.host if one else counted(len(prompts), "host")
        title.update(f"First contact with {who}")
        self._show_choices()
        self.call_after_refresh(self._mark_drawn, self.prompts)

    @staticmethod
    def _mark_drawn(prompts: list[OpenPrompt]) -> None:
        for each in prompts:
            each.drawn = True

    def on_option_list_option_highlighted(self) -> None:
        self._show_choices()

    def note(self) -> str:
        return f"{key_of(self, 'kill_all')} kills all"

    def action_trust_shown(self) -> None:
        """Trusts the keys on the screen, not one that came while the finger was on its way."""
        self._answer([each for each in self.prompts if each.drawn], YES)

    def action_trust(self) -> None:
        """Trusts the key under the cursor."""
        self._answer(self._current, YES)

    def action_refuse(self) -> None:
        """Refuses the key under the cursor."""
        self._answer(self._current, NO)

    def action_refuse_all(self) -> None:
        """Answers no for all keys that are shown."""
        self._answer(self.prompts, NO)

    def _answer(self, prompts: list[OpenPrompt], answer: str) -> None:
        for each in prompts:
            each.set(answer)
        if all(each.answer.done() for each in self.prompts):
            self.dismiss(None)

    def refuse_all(self, _: object = None) -> None:
        """Refuses the keys that have no answer yet."""
        for each in self.prompts:
            each.set(NO)

    @property
    def _current(self) -> list[OpenPrompt]:
        """The key under the cursor, if there is any."""
        at = self.query_one(HostKeyList).highlighted
        return [] if at is None else self.prompts[at : at + 1]

    def _key_text(self, each: OpenPrompt) -> Text:
        key = each.key
        text = Text(each.prompt.host, "bold")
        if key.place != each.prompt.host:
            text.append(f"  {key.place}", "not bold")
        text.append(f"\n  {key.kind} {key.fingerprint}", "not bold")
        if key.known_as:
            text.append(f"\n  {key.known_as}", "not bold dim")
        return text

    def _show_choices(self) -> None:
        if not self._current:
            return
        [current] = self._current
        host, count = cut(current.prompt.host, _WIDEST).rstrip(), len(self.prompts)
        own = current.key.kind.removeprefix("ssh-").partition("-")[0] or "ed25519"
        command = f"ssh-keygen -lf /etc/ssh/ssh_host_{own}_key.pub"
        self.query_one("#compare", Static).update(f"Compare on {host}: {command}")
        trust, refuse = "host_keys.trust", "host_keys.refuse"
        hints = [(trust, "trust it from now on"), (refuse, "refuse")]
        if count > 1:
            hints = [("host_keys.trust_all", f"trust all {count} shown")]
            hints += [(trust, f"trust {host}"), (refuse, f"refuse {host}")]
            hints.append(("dialog.back", "refuse all"))
        self.query_one(KeyFooter).show(hints)
