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
from textual.containers import Horizontal
from textual.widgets import Label, OptionList, Static
from textual.widgets.option_list import Option

from launcher.hosts.auth_prompt import YES, AuthPrompt, OfferedKey
from launcher.quantities import counted
from tui.cells import cut
from tui.keys import key_of
from tui.screens.dialogs import Dialog
from tui.widgets.colours import theme_colour

NO = "no"
_WIDEST = 16
"""Most cells of a host's name in the choices."""


@dataclass(eq=False)
class OpenPrompt:
    """Prompt that waits for its answer."""

    prompt: AuthPrompt
    answer: Future[str | None] = field(default_factory=Future)
    drawn: bool = False
    """It has been on the screen."""

    def set(self, text: str | None) -> None:
        """Answers it, where nobody has, and the launcher still waits."""
        with suppress(InvalidStateError):
            self.answer.set_result(text)

    @property
    def key(self) -> OfferedKey:
        """Key that it asks about; from a launcher of another version there is only its text."""
        return self.prompt.key or OfferedKey(self.prompt.host, "", self.prompt.text)


class HostKeyList(OptionList):
    """The keys, two lines each. Enter refuses: nothing is trusted by a slip."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.decide('n')", "Refuse the key under the cursor", show=False),
        Binding("j", "cursor_down", "Next key", show=False),
        Binding("k", "cursor_up", "Previous key", show=False),
    ]

    def action_select(self) -> None:
        """Does nothing: a click only moves the cursor."""


class Choice(Static):
    """Key and what it does; a click on it does the same."""

    def __init__(self, key: str) -> None:
        super().__init__(markup=False)
        self.key = key

    def show(self, does: str) -> None:
        """Sets what the key does."""
        name = "Esc" if self.key == "escape" else self.key
        colour = theme_colour(self.app, "accent-text")
        self.update(Text.assemble((name, f"bold {colour}"), f" {does}"))

    async def on_click(self) -> None:
        await self.run_action(f"screen.decide('{self.key}')")


class HostKeyDialog(Dialog[None]):
    """Lists keys; each is trusted or refused by itself, or all that are shown at once.

    Its owner adds and removes prompts by `show`, and closes it where they have gone by themselves.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "decide('a')", "Trust all keys that are shown", show=False),
        Binding("y", "decide('y')", "Trust the key under the cursor", show=False),
        Binding("n", "decide('n')", "Refuse the key under the cursor", show=False),
        Binding("escape", "decide('escape')", "Refuse all keys", show=False),
    ]

    def __init__(self, prompts: list[OpenPrompt]) -> None:
        super().__init__("")
        self.prompts = list(prompts)
        """Those on the screen, in the order in which they came."""

    def body(self) -> ComposeResult:
        yield HostKeyList(markup=False)
        yield Static(id="compare", markup=False, classes="dialog-note")
        with Horizontal(id="choices"):
            yield from map(Choice, ("a", "y", "n", "escape"))

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
            keys.highlighted = prompts.index(current) if current in prompts else 0
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

    def action_decide(self, choice: str) -> None:
        """Answers for the keys that a choice is about."""
        if choice == "escape":
            self.refuse_all()
        elif choice == "a":
            for each in self.prompts:
                if each.drawn:  # not one that came while the finger was on its way
                    each.set(YES)
        elif (current := self._current) is not None:
            current.set(YES if choice == "y" else NO)
        if all(each.answer.done() for each in self.prompts):
            self.dismiss(None)

    def refuse_all(self, _: object = None) -> None:
        """Refuses the keys that have no answer yet."""
        for each in self.prompts:
            each.set(NO)

    @property
    def _current(self) -> OpenPrompt | None:
        at = self.query_one(HostKeyList).highlighted
        return self.prompts[at] if at is not None and at < len(self.prompts) else None

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
        current = self._current
        if current is None:
            return
        host, count = cut(current.prompt.host, _WIDEST).rstrip(), len(self.prompts)
        own = current.key.kind.removeprefix("ssh-").partition("-")[0] or "ed25519"
        command = f"ssh-keygen -lf /etc/ssh/ssh_host_{own}_key.pub"
        self.query_one("#compare", Static).update(f"Compare on {host}: {command}")
        choices = {"y": "trust it from now on", "n": "refuse"}
        if count > 1:
            choices = {"a": f"trust all {count} shown", "y": f"trust {host}", "n": f"refuse {host}"}
            choices |= {"escape": "refuse all"}
        for choice in self.query(Choice):
            choice.display = choice.key in choices
            choice.show(choices.get(choice.key, ""))
