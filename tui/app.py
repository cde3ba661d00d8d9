"""The Textual app: it owns the keys that work everywhere, above all kill-all.

The screens of a run are imported where one is opened: the first frame of `tfmux` needs none.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import RenderableType
from textual import events, on, work
from textual.app import App, SystemCommand, get_system_commands_provider
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.geometry import Size
from textual.message import Message
from textual.message_pump import MessagePump
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.theme import Theme

from launcher.errors import TfmuxError
from launcher.quantities import size
from launcher.run.leaving import promise
from launcher.run.states import Outcome, RunPhase
from tui.clipboard import copy
from tui.config import Config, load_config
from tui.keys import bound_keys, classes_with_keys, key_of
from tui.memory import Memory
from tui.notification import RunNews
from tui.palette import CommandMenu, Palette, commands
from tui.screens.page import STYLES, OpenRun, Page
from tui.small_terminal import is_too_small, laid_out, line_for
from tui.streams import without_secrets
from tui.terminal import KeysFirst, TerminalDriver, decode_leniently
from tui.widgets.colours import SIXTEEN, Readable, has_sixteen_colours, status_defaults
from tui.widgets.controls import NoControls

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launcher.history.control import RunControl
    from launcher.run.snapshot import Snapshot
    from tui.run_clients import PendingRun, RunClients
    from tui.screens.dialogs import LeaveAnswer, ReceiptScreen
    from tui.screens.prompt_dialogs import PromptDialogs
    from tui.screens.run_page import RunPage
    from tui.screens.run_screen import RunScreen

SCREENS = Binding.Group("Metrics, hosts")
RECEIPT_SECONDS = 1.5
"""Seconds for which a clean receipt is shown before the app leaves by itself."""
_NEEDED_LATE = (
    "tui.outcome",
    "tui.log.hints",
    "tui.log.remarks",
    *(f"tui.screens.{name}" for name in ("dialogs", "hosts_screen", "metrics_screen")),
    *(f"tui.screens.{name}" for name in ("stacks_screen", "cause_screen", "help")),
    "tui.failure_report",
    "launcher.agent.processes",
    "launcher.masking",
)
"""What a run's screen opens, and what says how the run has ended."""


_MOST_PASTED = 64_000
"""Characters that are pasted at once: fields and lists read all of a text at each key."""


def _import_in_time() -> None:
    """Imports what the run's end needs, days later maybe, when an upgrade has replaced the
    program's files: on a thread of its own, as the first picture waits for none of it."""

    def load() -> None:
        for name in _NEEDED_LATE:
            with suppress(Exception):  # whoever needs it says what is wrong
                import_module(name)

    with suppress(RuntimeError):  # this machine starts no more threads
        threading.Thread(target=load, name="imports", daemon=True).start()


def _key(event: events.Key | events.Paste) -> str:
    return event.key if isinstance(event, events.Key) else ""


def _again(event: events.Key | events.Paste) -> events.Key | events.Paste:
    """Copy a key for another app."""
    if isinstance(event, events.Key):
        return events.Key(event.key, event.character)
    return events.Paste(event.text)


class BeginningNews(Message):
    """A run that begins has news."""

    def __init__(self, beginning: PendingRun) -> None:
        self.beginning = beginning
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        """Whether older news need not be shown any more."""
        return isinstance(message, BeginningNews) and message.beginning is self.beginning


class AtEnd(IntEnum):
    """What the app does when the run on the screen has ended.

    STAY ── a kill ──► SHOW ── leaving ──► LEAVE
     ▲ └───────────── leaving ─────────────► │
     └────────── the receipt is shown ───────┘
    """

    STAY = 0
    """The end shows on the run's screen."""
    SHOW = 1
    """The receipt is shown."""
    LEAVE = 2
    """The receipt is shown, and then the app ends."""


class TfmuxApp(App[int]):
    """Shows one run, or pages from which runs are opened one after the other.

    The result is the run's exit code, 0 after detaching; with pages, None.
    """

    TITLE = "tfmux"
    BINDING_GROUP_TITLE = "Everywhere"
    CSS_PATH = Path(__file__).with_name("first.tcss")
    """Styles of the first frame; other pages and dialogs bring the rest (`page.STYLES`)."""
    ENABLE_COMMAND_PALETTE = True
    VERTICAL_BREAKPOINTS = [(0, "-low"), (36, "-tall")]  # noqa: RUF012 Textual declares it so
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {
        get_system_commands_provider,
        Palette,
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: a dialog or a text field must never swallow them.
        Binding(
            "f9",
            "kill_all",
            "Kill all, on all hosts",
            id="kill_all",
            tooltip="TERM, then KILL after the grace; then the receipt",
            priority=True,
        ),
        Binding("ctrl+q", "leave", "Leave", id="leave.anywhere", priority=True, show=False),
        Binding("ctrl+c", "interrupt", "Leave", id="interrupt", priority=True, show=False),
        Binding("q", "leave", "Leave", id="leave", tooltip="Kill all, detach, or stay"),
        Binding(
            "d",
            "detach",
            "Detach: run continues",
            id="detach",
            tooltip="tfmux attach comes back to it",
        ),
        Binding(
            "l",
            "again",
            "Launch the ended run again",
            id="again",
            tooltip="Its cluster file as it was, its workdir as it is now",
        ),
        Binding(
            "f4",
            "edit_file",
            "Edit the ended run's file",
            id="edit.file",
            tooltip="The cluster file that it was launched from",
        ),
        Binding(
            "M",
            "metrics",
            "Metrics",
            id="metrics",
            tooltip="Loss and steps a second of each task",
            group=SCREENS,
        ),
        Binding(
            "H",
            "hosts",
            "Hosts",
            id="hosts",
            tooltip="Processor, memory, GPUs, lease and link of each host",
            group=SCREENS,
        ),
        Binding(
            "b",
            "stacks",
            "Stacks of all tasks",
            id="stacks",
            tooltip="What every task is doing now, in groups of equal stacks",
        ),
        Binding(
            "C",
            "cause",
            "Cause of failure or hang",
            id="cause",
            tooltip="The guilty task, and the evidence, each line with its place in the log",
        ),
        Binding("question_mark,f1", "help", "Help", id="help", tooltip="All keys of this screen"),
        Binding(
            "colon,ctrl+p",
            "command_palette",
            "Command palette",
            id="palette",
            tooltip="Find a command by its name",
        ),
    ]

    def __init__(
        self,
        control: RunControl | None = None,
        pages: Sequence[Page] = (),
        config: Config | None = None,
        prompts: PromptDialogs | None = None,
        clients: RunClients | None = None,
        before: TfmuxApp | None = None,
    ) -> None:
        """A run, or pages: the first one is the home that runs come back to. Without `config` the
        person's own file counts. `prompts` answers the run's launcher by dialogs of this app.
        `clients` launches the next run; pages have clients of their own. `before` is an app that
        has crashed: the kill key is about its run from the beginning, and what was typed since is
        for this one."""
        # A default screen cannot bring styles of its own.
        super().__init__(css_path=None if pages else [self.CSS_PATH, STYLES])
        self._beginning: PendingRun | None = None
        """The run that is on its way to the screen: what is above is about it."""
        if control is not None and not pages and not control.snapshot().tasks and control.living:
            from tui.run_clients import PendingRun

            self._beginning, control = PendingRun.of("launching", control), None
        self.control: RunControl | None = control if not pages else None
        self._typed: list[events.Key | events.Paste] = []
        """Keys read after a crash: after this app's own, or after that of the one before."""
        if before is not None:
            self._typed = [_again(event) for event in before._typed]
            if pages and before.control is not None and before.control.living:
                self.control = before.control
        self._prompts = prompts
        self._clients = clients
        self._config = config if config is not None else load_config()
        self._memory = Memory()
        self._first = control
        self._pages = list(pages)
        self._news = RunNews(self._config.notify)
        self._at_end = AtEnd.STAY
        self._no_controls = NoControls()
        self._readable = Readable(sixteen=has_sixteen_colours(self))
        self._terminal: Size | None = None
        """The terminal's size, which is that of the screens unless it is too small for any."""
        self._waiting_keys: deque[events.Key | events.Paste] | None = None
        """Keys that wait until the one before them has been handled; None: no key is."""
        self._run_screen: RunScreen | None = None
        self._begun_kills = 0
        """Kills that the driver's thread has begun and the screen does not know of yet."""
        self._again: dict[str, Future[RunControl]] = {}
        """By run, the last kill of what its end may have left."""
        self._living: RunControl | None = None
        """The run that was seen running in this app."""

    def on_mount(self) -> None:
        if has_sixteen_colours(self):
            self.ansi_theme_dark = self.ansi_theme_light = SIXTEEN
        if self._prompts is not None:
            self._prompts.serve(self)
        for page in self._pages:
            if page not in self.screen_stack:
                self.push_screen(page)
        if self._first is not None and self._pages:
            self.open_run(self._first)
        if self._beginning is not None:
            self._await(self._beginning)
        self._watch_end()
        self._configure()
        typed, self._typed = self._typed, []
        for event in typed:
            self.post_message(event)

    def get_driver_class(self) -> type[Driver]:
        """Textual's choice, which in a terminal is replaced by one that survives its end; either
        tells of the kill key at once."""
        decode_leniently()
        chosen = super().get_driver_class()
        base = TerminalDriver if chosen is LinuxDriver else chosen
        return type(base.__name__, (KeysFirst, base), {})

    def _fatal_error(self) -> None:
        """Ends the app on an error that nobody foresaw. Textual would print it with the values of
        all variables, secrets among them; whoever runs the app says it, and saves it."""
        self._close_messages_no_wait()

    def get_default_screen(self) -> Screen[Any]:
        """The run, when there is nothing but it, or the page for the first frame: a key may come
        before it, and must not find a blank screen."""
        if self._first is not None and not self._pages:
            return self._screen_of(self._first)
        if self._pages and not self._pages[0].CSS_PATH:
            return self._pages[0]
        return super().get_default_screen()

    def _configure(self) -> None:
        config = self._config
        problems = list(config.problems)
        chosen = self._memory.choices.theme
        if config.theme in self.available_themes:
            self.theme = config.theme
        elif config.theme:
            problems.append(f"no theme is called {config.theme!r}")
        elif chosen in self.available_themes:
            self.theme = chosen
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if config.keys:
            self.set_keymap(config.keys)
            self.run_worker(self._check_keys, thread=True, group="keys", exit_on_error=False)
        for problem in problems:
            self.notify(problem, severity="warning", timeout=10)

    def _keep_theme(self, theme: Theme) -> None:
        """Keeps a person's choice; that of the settings holds in each screen anyway."""
        if theme.name not in (self._config.theme, self._memory.choices.theme):
            self._memory.keep(theme=theme.name)

    def _check_keys(self) -> None:
        """Warns about keys of unknown commands; in a thread, which imports all screens."""
        known = bound_keys(self, classes_with_keys())
        for name in sorted(self._config.keys.keys() - known.keys()):
            message = f"keys.{name}: there is no such command; docs/keys.md has the ids"
            self.call_from_thread(self.notify, message, severity="warning", timeout=10)

    async def replace_pages(self, pages: Sequence[Page]) -> Page:
        """Puts other pages over the only one, which stays below as a default screen does; returns
        the home."""
        self._pages = list(pages)
        for page in self._pages:
            await self.push_screen(page)
        return self._pages[0]

    def open_run(self, control: RunControl) -> None:
        """Shows a run; F9 and leaving are about it from now on."""
        self.control = control
        self._watch_end()  # it may be killed before the clock comes to it
        self.push_screen(self._screen_of(control))

    # a run that is on its way to the screen

    @on(OpenRun)
    def _begin(self, event: OpenRun) -> None:
        """Has a run begin that a page has asked for."""
        from tui.run_clients import PendingRun

        if self._beginning is None:
            self._await(PendingRun(event.what, event.begin, launches=event.launches))

    def _await(self, beginning: PendingRun) -> None:
        """Shows that a run begins, until it can be shown itself."""
        from tui.screens.starting import StartingScreen

        self._beginning = beginning
        self.push_screen(StartingScreen(beginning), lambda _: self._leave_beginning(beginning))
        beginning.start(lambda: self._hear(beginning))

    def _hear(self, beginning: PendingRun) -> None:
        """A run that begins has news; for any thread."""
        if beginning is self._beginning or not beginning.known:
            self.post_message(BeginningNews(beginning))

    @on(BeginningNews)
    def _show_beginning(self, event: BeginningNews) -> None:
        """Shows the run, or why there is none, or what it waits for."""
        from tui.screens.starting import StartingScreen

        beginning = event.beginning
        shown = beginning is self._beginning
        if (reason := beginning.failure) and not beginning.told:
            beginning.told = True
            self._end_beginning(beginning)
            if not isinstance(beginning.error, TfmuxError | OSError | None):
                self._handle_exception(beginning.error)
                return
            if beginning.killed and not shown:
                return  # as it was meant
            title = "Not launched" if beginning.launches else "Error"
            self.notify(reason, title=title, severity="error", timeout=12)
            if shown and not self._pages and self.control is None:
                self.exit(4)
        elif shown and beginning.known and beginning.run is not None:
            self._end_beginning(beginning)
            if self._pages and self.control is None:
                self.open_run(beginning.run)
            else:
                self._show_next(beginning.run)
            if beginning.killed:
                self._want(AtEnd.SHOW)
                self._watch_end()
        elif shown:
            for screen in self.screen_stack:
                if isinstance(screen, StartingScreen):
                    screen.show_news()

    def _end_beginning(self, beginning: PendingRun) -> None:
        """Nothing more is waited for."""
        from tui.screens.starting import StartingScreen

        if beginning is self._beginning:
            self._beginning = None
        for screen in self.screen_stack:
            if isinstance(screen, StartingScreen) and screen.beginning is beginning:
                screen.dismiss(None)

    def _leave_beginning(self, beginning: PendingRun) -> None:
        """A person does not wait for a run any longer: what was launched goes on, as a run in the
        list of the home screen. Where there is no other screen, it is ended with this one."""
        if beginning is not self._beginning:
            return
        self._beginning = None
        if not self._pages and self.control is None:
            self.exit()
        elif beginning.launches and not beginning.killed:
            self.notify(f"{beginning.what}: goes on, and ends with this screen")

    def on_starting_screen_retry(self) -> None:
        """Kills the run that does not begin, and launches it once more."""
        from tui.run_clients import PendingRun

        if (last := self._beginning) is not None:
            last.press_kill()
            self._end_beginning(last)
            self._await(PendingRun(last.what, last.begin, launches=True))

    def _screen_of(self, control: RunControl) -> RunScreen:
        from tui.screens.run_screen import RunScreen

        self._run_screen = RunScreen(control, self._memory)
        self.call_after_refresh(_import_in_time)
        return self._run_screen

    def close_run(self, code: int) -> None:
        """Back to the page below the run; without pages the app ends."""
        self._at_end = AtEnd.STAY
        if not self._pages:
            self.exit(code)
            return
        if self.control is not None:
            self.control.close(wait=False)
        self.control = self._run_screen = None
        above = [not isinstance(screen, Page) for screen in self.screen_stack]
        for _ in range(above[::-1].index(False)):
            self.pop_screen()
        self._pages[0].look_again()

    # the terminal's size

    @property
    def size(self) -> Size:
        """The size that screens are laid out for."""
        return laid_out(super().size)

    @property
    def is_too_small(self) -> bool:
        """The terminal has no room for any screen."""
        return is_too_small(self._terminal if self._terminal is not None else super().size)

    @property
    def line(self) -> str:
        """What stands on a terminal that has no room for a screen."""
        snapshot = self.control.snapshot() if self.control is not None else None
        terminal = self._terminal if self._terminal is not None else super().size
        return line_for(snapshot, key_of(self, "kill_all"), terminal)

    def _terminal_resized(self, event: events.Resize) -> events.Resize:
        """Keeps the terminal's size; returns the event that the screens get."""
        before = self.is_too_small
        # The first one is Textual's own, of the size that the screens have.
        self._terminal = event.size if self._terminal is not None else super().size
        if self._running and (before or self.is_too_small):
            # Screens of the same size as before would not be drawn again.
            self.call_later(self.refresh, layout=True)
        size = laid_out(self._terminal)
        return events.Resize(size, size)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Draws a screen, or the line in its place."""
        if not self.is_too_small:
            super()._display(screen, renderable)
            return
        drawn = renderable is not None and not self._batch_count and self._running
        if drawn and not self._closed and not self.is_headless and self._driver is not None:
            self._driver.write(f"\x1b[0m\x1b[H\x1b[2J{self.line}")
            self._driver.flush()
        super()._display(screen, None)

    # keys, one after the other

    async def on_event(self, event: events.Event) -> None:
        """A key waits for the one before it: letters right behind a key that opens a screen or
        moves the focus would go to the screen or field before it. Those that have priority in the
        app, such as the kill key, do not wait. While the app is leaving there is no screen."""
        if isinstance(event, events.Resize):
            event = self._terminal_resized(event)
        if self._run_screen and isinstance(event, events.InputEvent | events.Resize):
            self._run_screen.clock.wake()
        if isinstance(event, events.MouseEvent) and self.is_too_small:
            return  # it is aimed at what is not there
        if isinstance(event, events.Paste) and len(event.text) > _MOST_PASTED:
            pasted, most = size(len(event.text)), size(_MOST_PASTED)
            self.notify(f"nothing was entered: {pasted} were pasted, and {most} are the most")
            return
        if (
            isinstance(event, events.Key | events.Paste)
            and not event.is_forwarded
            and self.screen_stack
            and not self._goes_first(event)
        ):
            if self._waiting_keys is None:
                self._waiting_keys = deque([event])
                await self._next_key()
            else:
                self._waiting_keys.append(event)
        elif self.screen_stack or not isinstance(event, events.InputEvent):
            await super().on_event(event)

    @property
    def handles_keys(self) -> bool:
        """A key is being handled, or waits."""
        return self._waiting_keys is not None

    def _goes_first(self, event: events.Key | events.Paste) -> bool:
        """Has priority in the app; a screen's keys, such as for saving, overtake no letter."""
        bindings = dict(self.screen_stack[-1]._binding_chain).get(self)
        found = bindings.key_to_bindings.get(_key(event), ()) if bindings else ()
        return any(binding.priority for binding in found)

    async def _next_key(self) -> None:
        """Handles the next key, in the screen that the one before has led to."""
        waiting = self._waiting_keys
        if not waiting or not self.screen_stack:
            self._waiting_keys = None
            return
        screen = self.screen_stack[-1]
        if not screen.is_mounted and screen.call_later(self.call_later, self._next_key):
            return
        event = waiting.popleft()
        target = screen.focused or screen
        await super().on_event(event)
        repeated = list(takewhile(lambda each: _key(each) == _key(event) != "", waiting))
        if len(repeated) > 1:  # it is held down, and must not scroll on when it has been let go
            for again in repeated:
                waiting.popleft()
                await super().on_event(again)
        # Twice: the key itself, and the messages to which it has led.
        self._follow(deque([*target.ancestors_with_self] * 2))

    def _follow(self, nodes: deque[MessagePump]) -> None:
        """Goes the way of a key: when a node runs this callback, it has handled the key."""
        while nodes:
            if nodes.popleft().call_later(self._follow, nodes):
                return

        async def turn() -> None:
            await asyncio.sleep(0)  # a worker that the key has started takes its first step
            await self._next_key()

        self.call_later(turn)

    def action_command_palette(self) -> None:
        """Opens the palette, unless it is open."""
        if not isinstance(self.screen, CommandMenu):
            self.push_screen(CommandMenu(id="--command-palette"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Only the themes: everything else is among our own commands."""
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours for themes that do not name them."""
        return status_defaults(self, dark=self.current_theme.dark)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, one for the contrast, and the one that takes out what a terminal would act
        on."""
        return [*super().get_line_filters(), self._readable, self._no_controls]

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Shows a message without what looks like a secret: hosts and logs have a word in many, and
        none is markup."""
        super().notify(
            without_secrets(message), title=title, severity=severity, timeout=timeout, markup=False
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Some commands mean something while there is a run only, or until it has ended."""
        no_run = self.control is None or isinstance(self.screen, Page)
        if action in ("metrics", "hosts", "cause") and no_run:
            return False
        if action in ("again", "edit_file") and (no_run or not self.is_over):
            return False
        if action in ("detach", "stacks") and self.is_over:
            return False
        return super().check_action(action, parameters)

    # screens

    def action_metrics(self) -> None:
        """Opens the metrics of the run on the screen."""
        from tui.screens.metrics_screen import MetricsScreen

        self._switch(MetricsScreen)

    def action_hosts(self) -> None:
        """Opens the hosts of the run on the screen."""
        from tui.screens.hosts_screen import HostsScreen

        self._switch(HostsScreen)

    def action_stacks(self) -> None:
        """Opens the stacks of the run on the screen."""
        from tui.screens.stacks_screen import StacksScreen

        self._switch(StacksScreen)

    def action_cause(self) -> None:
        """Opens the cause of a failure or a hang of the run on the screen."""
        from tui.screens.cause_screen import CauseScreen

        self._switch(CauseScreen)

    def _switch(self, kind: type[RunPage]) -> None:
        from tui.screens.run_screen import RunScreen

        if self.screen.is_modal or self.control is None or isinstance(self.screen, kind):
            return
        show = self.push_screen if isinstance(self.screen, RunScreen) else self.switch_screen
        show(kind(self.control, self._alert))

    def _alert(self) -> str:
        """The newest complaint of a task, while nothing has failed."""
        return self._run_screen.monitor.alert if self._run_screen is not None else ""

    def action_help(self) -> None:
        """Shows all keys of the present screen, unless a dialog is open."""
        from tui.screens.help import HelpScreen

        if not self.screen.is_modal:
            ended = self.control is not None and self.is_over
            self.push_screen(HelpScreen(commands(self.screen), ended=ended))

    # kill-all and leaving

    def key_read(self, event: events.Key | events.Paste) -> bool:
        """Called by the driver's thread with each key as it is read: the kill key acts at once,
        and the screen follows when its loop comes to it. False where it never will: the app has
        crashed, and leaves its keys to the next one."""
        control, acted = self.control, False
        if (beginning := self._beginning) is not None:
            if _key(event) in bound_keys(self, ()).get("kill_all", ()):
                self._begun_kills += 1
                beginning.press_kill()
                acted = True
        elif control is not None and _key(event) in bound_keys(self, ()).get("kill_all", ()):
            if control.snapshot().state is not RunPhase.ENDED:
                self._begun_kills += 1
                control.press_kill()
                acted = True
        if self._exception is None:
            return True
        if not acted:
            self._typed.append(event)
        return False

    def action_kill_all(self) -> None:
        """TERM to everything on all hosts; again: KILL. No question, from any screen of a run;
        without one, all active runs are meant, and that is asked first."""
        begun, self._begun_kills = self._begun_kills, 0
        if self._beginning is not None:
            if not begun:
                self._beginning.press_kill()
            self._hear(self._beginning)
            return
        if self.control is None:
            if self._pages:
                self._pages[0].kill_active_runs()
            return
        snapshot = self.control.snapshot()
        if snapshot.state is RunPhase.ENDED and snapshot.unconfirmed and self._can_kill_again:
            self._kill_again(self.control)
            return
        self._want(AtEnd.SHOW)
        if not begun and self.control.snapshot().state is not RunPhase.ENDED:
            self.control.press_kill()
        self._watch_end()

    @property
    def _can_kill_again(self) -> bool:
        return bool(self._pages) or (self._clients is not None and self._prompts is not None)

    @work(group="kill", exclusive=True, exit_on_error=False)
    async def _kill_again(self, ended: RunControl) -> None:
        """Kills what an end has left, or could not confirm, and shows that in the place of the
        ended run. The kill itself goes on whatever becomes of the screen."""
        run_id = ended.snapshot().run_id
        kill = self._again.get(run_id)
        if kill is None or kill.done():
            if self._pages:
                kill = self._pages[0].kill_again(run_id)
            elif self._clients is not None and self._prompts is not None:
                kill = self._clients.kill(run_id, self._prompts)
            else:
                return
            self._again[run_id] = kill
        try:
            run = await asyncio.shield(asyncio.wrap_future(kill))
        except (TfmuxError, OSError) as error:
            self.notify(str(error), title="Not killed", severity="error", timeout=12)
            return
        if self.control is ended:
            self._show_next(run)
            self._want(AtEnd.SHOW)
            self._watch_end()

    def action_interrupt(self) -> None:
        """Ctrl-C: kills all in the dialog that asks how to leave, and pressed again while leaving;
        else copies what is selected, or leaves."""
        from tui.screens.dialogs import LeaveAnswer, LeaveDialog

        if isinstance(self.screen, LeaveDialog):
            self.screen.dismiss(LeaveAnswer.KILL)
        elif self._at_end is AtEnd.LEAVE:
            self.action_kill_all()
        elif not self._copy_selected():
            self.action_leave()

    @work(group="copy")
    async def _copy(self, text: str) -> None:
        self.notify(await copy(self, text), timeout=2)

    def _copy_selected(self) -> bool:
        """Copies what is selected: in a text field, in a pane of lines, or anywhere by the mouse;
        False when nothing is."""
        from textual.widgets import Input, TextArea

        from tui.screens.run_screen import RunScreen

        screen, focused = self.screen, self.focused
        if isinstance(focused, Input | TextArea) and focused.selected_text:
            focused.action_copy()
        elif text := screen.get_selected_text():
            screen.clear_selection()
            self._copy(text)
        else:
            pane = screen.area.pane if isinstance(screen, RunScreen) else None
            return pane is not None and pane.copy_selected()
        return True

    def action_leave(self) -> None:
        """Leaves at once when the run is over; else asks."""
        from tui.screens.dialogs import LeaveDialog

        if isinstance(self.screen, Page):
            self.screen.leave()
            return
        if self.control is None:
            if isinstance(self.screen, ModalScreen):
                self.screen.dismiss(None)
            return
        snapshot = self.control.snapshot()
        if self.is_over:
            self._leave_pages(snapshot.exit_code or 0)
        elif snapshot.state is RunPhase.KILLING:
            self._want(AtEnd.LEAVE)
            key = key_of(self, "kill_all") + ("" if snapshot.kill_asked else " twice")
            self.notify(f"leaving after the receipt; {key}: KILL now")
        elif not isinstance(self.screen, LeaveDialog):
            alive = sum(task.state.live for task in snapshot.tasks)
            queued = snapshot.state is RunPhase.QUEUED
            dialog = LeaveDialog(alive, queued=queued, why="\n".join(promise(snapshot)))
            self.push_screen(dialog, self._leave)

    def action_again(self) -> None:
        """Launches the run on the screen again, once it has ended."""
        if self.control is None:
            return
        run_id = self.control.snapshot().run_id
        clients, prompts = self._clients, self._prompts
        if self._pages:
            begin = partial(self._pages[0].launch_again, run_id)
        elif clients is not None and prompts is not None:
            begin = partial(clients.launch_again, run_id, prompts)
        else:
            return
        self.post_message(OpenRun(f"launching {run_id} again", begin, launches=True))

    def _show_next(self, run: RunControl) -> None:
        """Shows a run in the place of the ended one."""
        if self._pages:
            self.close_run(0)
            self.open_run(run)
            return
        for _ in self.screen_stack[1:]:
            self.pop_screen()
        if self.control is not None:
            self.control.close(wait=False)
        self._at_end = AtEnd.STAY
        self.control = run
        # Textual's switch answers whoever has pushed a screen, which nobody has the first one.
        self.screen._push_result_callback(self, None)
        self.switch_screen(self._screen_of(run))
        self._watch_end()

    @work(group="edit", exclusive=True)
    async def action_edit_file(self) -> None:
        """Opens the cluster file of the ended run, where its trouble is."""
        from launcher.history.again import editable_file
        from launcher.store.runs import RunFolder
        from tui.screens.editor.screen import edit_run

        control = self.control
        if control is None or self.screen.is_modal:
            return
        snapshot = control.snapshot()
        try:
            file = await asyncio.to_thread(lambda: editable_file(RunFolder.find(snapshot.run_id)))
        except (TfmuxError, OSError) as error:
            self.notify(str(error), severity="error", timeout=12)
            return
        if self.control is not control or self.screen.is_modal:
            return  # a person has gone on meanwhile
        if self._pages:
            self.close_run(0)
            self._pages[0].edit_run(file, snapshot)
        elif self._clients is not None and self._prompts is not None:
            edit_run(self, file, snapshot, self._clients, self._prompts)

    def action_home(self) -> None:
        """From a run that is over back to the page below it."""
        if self._pages and self.control is not None and self.is_over:
            self.close_run(0)

    @property
    def is_over(self) -> bool:
        """There is no run, or it has ended: leaving it changes nothing."""
        control = self.control
        return control is None or not control.living or control.snapshot().state is RunPhase.ENDED

    def _leave_pages(self, code: int) -> None:
        """Leaves the run, and the pages below it where nothing is unsaved there."""
        pages = [screen for screen in self.screen_stack if isinstance(screen, Page)]
        self.close_run(code)
        unsaved = [page for page in pages if page.modified]
        if pages and not unsaved:
            self.exit()

    def action_detach(self) -> None:
        """Leaves the run, which goes on, after one question."""
        from tui.screens.dialogs import Confirm, LeaveAnswer

        if self.screen.is_modal or self.control is None:
            return
        what = "The run continues without a screen; tfmux attach shows it again."
        why = "\n".join([what, *promise(self.control.snapshot())])
        if standstill := self.control.standstill:
            why = f"Whether the run continues is not known: {standstill}."
        self.push_screen(
            Confirm("Detach?", why), lambda yes: self._leave(LeaveAnswer.DETACH if yes else None)
        )

    def _leave(self, choice: LeaveAnswer | None) -> None:
        from tui.screens.dialogs import LeaveAnswer

        if choice is LeaveAnswer.KILL:
            self._want(AtEnd.LEAVE)
            self.action_kill_all()
        elif choice is LeaveAnswer.DETACH and self.control is not None:
            self.control.detach(wait=False)
            self._leave_pages(0)

    def on_receipt_screen_left(self, event: ReceiptScreen.Left) -> None:
        """The receipt of a run has been read."""
        self._leave_pages(event.code)

    def on_run_screen_new_snapshot(self) -> None:
        """The run has news."""
        self._watch_end()

    def _watch_end(self) -> None:
        """Shows the receipt when a kill has come to its end, whoever began it."""
        control = self.control
        if control is None:
            return
        snapshot = control.snapshot()
        news = self._news.sequence(snapshot, focused=self.app_focus or self.is_web)
        if news and self._driver is not None:
            self._driver.write(news)
        if snapshot.state is not RunPhase.ENDED:
            self._living = control
            return
        if control is self._living and snapshot.outcome in (Outcome.KILLED, Outcome.TERMINATED):
            self._want(AtEnd.SHOW)
        self._living = None
        if snapshot.results_kept:
            self._renew_receipt(snapshot)
        wanted, self._at_end = self._at_end, AtEnd.STAY
        if wanted is AtEnd.STAY:
            return
        self._show_receipt(leaving=wanted is AtEnd.LEAVE)
        if wanted is AtEnd.LEAVE and (snapshot.receipt is None or snapshot.clean):
            self.set_timer(RECEIPT_SECONDS, lambda: self._close_if(control))

    def _want(self, at_end: AtEnd) -> None:
        """Wants something at the run's end; leaving is not taken back by a kill."""
        self._at_end = max(self._at_end, at_end)

    def _show_receipt(self, *, leaving: bool) -> None:
        from tui.screens.dialogs import LeaveAnswer, LeaveDialog, ReceiptScreen

        if isinstance(self.screen, LeaveDialog):
            self.screen.dismiss(LeaveAnswer.STAY)
        if self.control and not any(isinstance(one, ReceiptScreen) for one in self.screen_stack):
            self.push_screen(ReceiptScreen(self.control, leaving=leaving))

    def _renew_receipt(self, snapshot: Snapshot) -> None:
        """Shows what has come after the receipt: which files stay on hosts."""
        from tui.screens.dialogs import ReceiptScreen

        for page in self.screen_stack:
            if isinstance(page, ReceiptScreen):
                page.show(snapshot)

    def _close_if(self, control: RunControl) -> None:
        if self.control is control:  # a key may have closed it meanwhile
            self._leave_pages(control.snapshot().exit_code or 0)
