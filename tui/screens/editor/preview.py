"""Plan preview: start order, and the exact command, environment and TF_CONFIG of one task."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from launcher.cluster.choices import Shell
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.readiness import ready_value
from launcher.errors import Problem
from launcher.plan.run_plan import Plan, TaskPlan
from launcher.slurm.script import request_of
from tui.format import request_text
from tui.screens.editor.form import line_of

_MOST_PROBLEMS = 20


class PlanPreview(Vertical):
    """Shows a plan, or why there is none: then the last one stays, pale, below the problems.

    A click on a problem goes to its line.
    """

    DEFAULT_CSS = """
    PlanPreview { height: 1fr; }
    PlanPreview VerticalScroll#first { height: auto; max-height: 6; }
    PlanPreview.-wrong VerticalScroll#first { max-height: 50%; }
    PlanPreview.-wrong #order { link-color: $status-bad; link-style: none; }
    PlanPreview.-wrong OptionList, PlanPreview.-wrong #task { text-opacity: 60%; }
    PlanPreview OptionList {
        height: auto; max-height: 40%; border: none; padding: 0 1; background: $surface;
        scrollbar-size: 1 1;
    }
    PlanPreview OptionList:focus { border: none; }
    PlanPreview OptionList:focus > .option-list--option-highlighted {
        color: $foreground; background: $primary-muted; text-style: bold;
    }
    PlanPreview VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size: 1 1; }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._plan: Plan | None = None
        self._cluster: ClusterModel | None = None
        self._names: list[str] = []

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="first"):
            yield Static(id="order", markup=False)
        yield OptionList(markup=False)
        with VerticalScroll():
            yield Static(id="task", markup=False)

    def show(
        self, plan: Plan | None, cluster: ClusterModel | None, problems: Sequence[Problem]
    ) -> None:
        """Shows the plan of a cluster, or the problems because of which there is none."""
        tasks, order = self.query_one(OptionList), self.query_one("#order", Static)
        self.set_class(plan is None, "-wrong")
        self.border_title = "plan" if plan is not None else "problems"
        if plan is None:
            order.update(self._problems(problems))
            tasks.display = self._plan is not None
            if self._plan is not None:
                self.border_title = "problems, and the plan before them"
            return
        self._plan, self._cluster = plan, cluster
        tasks.display = True
        order.update(self._order(plan))
        names = [f"{task.id}  on {task.host}  {task.address}" for task in plan.tasks]
        if cluster is not None and request_of(cluster, plan) is not None:
            names.append("batch script for Slurm")
        if names != self._names:
            self._names = names
            at = tasks.highlighted
            tasks.clear_options()
            tasks.add_options([Option(Text(name, no_wrap=True)) for name in names])
            tasks.highlighted = min(at or 0, len(names) - 1)
        self._show_task()

    def focus_tasks(self) -> None:
        """Moves the focus to the list of tasks."""
        self.screen.set_focus(self.query_one(OptionList))

    def go_to(self, task: str) -> None:
        """Shows one task, `worker:0`, when it is in the plan."""
        if self._plan is not None:
            names = [str(entry.id) for entry in self._plan.tasks]
            if task in names:
                self.query_one(OptionList).highlighted = names.index(task)

    @on(OptionList.OptionHighlighted)
    def _show_task(self) -> None:
        at = self.query_one(OptionList).highlighted
        if self._plan is None or self._cluster is None or at is None:
            return
        if at < len(self._plan.tasks):
            self.query_one("#task", Static).update(_task(self._plan.tasks[at], self._plan))
        elif (request := request_of(self._cluster, self._plan)) is not None:
            self.query_one("#task", Static).update(Text(request_text(request)))

    def _problems(self, problems: Sequence[Problem]) -> Text:
        text = Text()
        for number, problem in enumerate(problems[:_MOST_PROBLEMS]):
            line = f"line {problem.line}: " if problem.line else ""
            text.append(f"! {line}{problem}\n", Style(meta={"@click": f"screen.problem({number})"}))
        if len(problems) > _MOST_PROBLEMS:
            text.append(f"and {len(problems) - _MOST_PROBLEMS} more\n", "dim")
        return text

    @staticmethod
    def _order(plan: Plan) -> Text:
        text = Text("starts ", "dim")
        for number, stage in enumerate(plan.stages):
            text.append("  then " if number else "", "dim")
            names = [str(task) for task in stage]
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            text.append(" ".join(names[:8]) + more, "bold")
        return text.append(f"\n{plan.ending.text}", "dim")


def _task(task: TaskPlan, plan: Plan) -> Text:
    text = Text()

    def title(word: str) -> None:
        text.append(f"\n{word}\n", "bold")

    text.append(f"{task.id}", "bold")
    text.append(f" on {task.host}, {task.address}, ready: {line_of(ready_value(task.ready))}\n")
    title("command")
    text.append(line_of(list(task.argv), "array") + "\n")
    title("directories")
    text.append(f"works in {task.cwd or 'the copy of workdir'}, logs to {task.logdir}\n")
    if task.setup or task.shell is Shell.LOGIN:
        title("setup" if task.shell is Shell.NONE else "setup, in the login shell")
        text.append(f"{task.setup}\n")
    title("environment")
    for name, value in task.env.items():
        if name != "TF_CONFIG":
            text.append(f"{name}=", "dim")
            text.append(f"{value}\n")
    for name in task.env_from:
        text.append(f"{name}=", "dim")
        text.append("(this shell's own, not shown)\n", "dim")
    if plan.cluster_spec:
        title("cluster, as flags of a script")
        flags = (f"--{job}_hosts={','.join(tasks)}" for job, tasks in plan.cluster_spec.items())
        text.append(" ".join(flags) + "\n")
    if "TF_CONFIG" in task.env:
        title("TF_CONFIG")
        text.append(task.env["TF_CONFIG"] + "\n")
    return text
