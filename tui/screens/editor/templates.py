"""Dialog for a new cluster: template, name, hosts."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Label, OptionList

from launcher.cluster import library
from launcher.cluster.host_names import host_name
from launcher.cluster.saved_file import SaveError
from launcher.cluster.shorthand import ShorthandError, understand
from launcher.cluster.ssh_aliases import aliases
from launcher.cluster.templates import TEMPLATES, Template, render
from launcher.cluster.values import name_problem
from launcher.printable import invisible
from launcher.quantities import counted
from tui.screens.dialogs import Dialog
from tui.screens.editor.form import Completion
from tui.widgets.line_input import LineInput, ProblemLine

_NUMBERED = min(9, len(TEMPLATES))
"""Templates that are chosen by a digit."""


class TemplateDialog(Dialog[Path]):
    """Saves a new cluster made from a template, and answers with its file."""

    DEFAULT_CSS = "TemplateDialog Label { width: 1fr; }"

    def __init__(self) -> None:
        super().__init__("New cluster")
        self._template: Template | None = None
        self._aliases = aliases()

    def note(self) -> str:
        return f"1-{_NUMBERED} or Enter chooses, {super().note()}"

    def body(self) -> ComposeResult:
        """The templates; the fields for name and hosts appear after one was chosen."""
        options = (f"{number:<2} {t.title:<31} {t.about}" for number, t in enumerate(TEMPLATES, 1))
        yield OptionList(*options, markup=False)
        yield Label("Name", classes="field", markup=False)
        yield LineInput(id="name", classes="field")
        title = "Hosts, as SSH destinations: root@tf[1-4], gpu7"
        yield Label(title, classes="field remote", markup=False)
        yield LineInput(id="hosts", classes="field remote", suggester=Completion(self._aliases))
        yield ProblemLine(classes="field")

    def on_mount(self) -> None:
        for widget in self.query(".field"):
            widget.display = False
        for number in range(1, _NUMBERED + 1):
            self._bindings.bind(str(number), f"choose({number})", show=False)

    def action_choose(self, number: int) -> None:
        """Chooses a template by its number."""
        if self._template is None:
            self._begin(TEMPLATES[number - 1])

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self._begin(TEMPLATES[event.option_index])

    def _begin(self, template: Template) -> None:
        self._template = template
        self.query_one(".dialog-title", Label).update(f"New cluster: {template.title}")
        self.query_one(OptionList).display = False
        for widget in self.query(".field"):
            widget.display = template.remote or not widget.has_class("remote")
        name = self.query_one("#name", Input)
        name.value = library.free_name(template.key)
        self.set_focus(name)
        note = f"Enter creates it, {super().note()}"
        if template.remote:
            note = "Tab to the hosts (none: this machine). " + note
        self.query_one(".dialog-note", Label).update(note)

    def _values(self) -> tuple[str, dict[str, str], str]:
        """Name, hosts, and the first problem."""
        name = self.query_one("#name", Input).value
        problem = name_problem(name)
        if not problem and library.path_of(name).exists():
            problem = f"there is already a cluster {name}: choose another name"
        found: dict[str, str] = {}
        line = invisible(self.query_one("#hosts", Input).value)
        try:
            for host in understand(line, self._aliases).logins() if line.strip() else ():
                found[host_name(host.name or host.login.host, found)] = str(host.login)
        except ShorthandError as error:
            problem = problem or str(error)
        return name, found, problem

    @on(Input.Changed)
    def _changed(self) -> None:
        _, found, problem = self._values()
        self.query_one(ProblemLine).show(problem, _summary(found))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        assert self._template is not None
        if event.input.id == "name" and self._template.remote:
            self.set_focus(self.query_one("#hosts", Input))
            return
        name, found, problem = self._values()
        if problem:
            self.app.bell()
            return
        try:
            path = library.create(name, render(self._template, name, found, Path.cwd()))
        except SaveError as error:
            self.query_one(ProblemLine).show(str(error))
            return
        self.dismiss(path)


def _summary(found: dict[str, str]) -> str:
    if not found:
        return ""
    names = ", ".join(list(found)[:6]) + (", …" if len(found) > 6 else "")
    return f"{counted(len(found), 'host')}: {names}"
