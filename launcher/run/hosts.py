"""Hosts of a run: connecting, staging, cuts and what follows from them."""

from __future__ import annotations

from ..cluster.choices import OnDisconnect
from ..cluster.ranks import ranks_with_gpus
from ..plan.environment import gpu_shortage
from ..plan.facts import HostFacts
from ..quantities import counted, span
from . import events as ev
from .instructions import (
    AskLeases,
    CheckHosts,
    Instruction,
    KillHost,
    ReleaseTask,
    SetTimer,
    StageHost,
    StartTask,
)
from .restart import RestartOfAll
from .shutdown import AGENT_SILENT, KILL_PATIENCE, Shutdown
from .snapshot import TaskView
from .state import RunData
from .states import AT_WORK, Cause, HostState, RunPhase, TaskState
from .tasks import Tasks


class Hosts:
    """Knows when the launch may go on, and what a host that was cut off has to be told."""

    def __init__(
        self, data: RunData, shutdown: Shutdown, restart: RestartOfAll, tasks: Tasks
    ) -> None:
        self._data = data
        self._shutdown = shutdown
        self._restart = restart
        self._tasks = tasks

    def on_up(self, event: ev.HostUp) -> list[Instruction]:
        """An agent has greeted us: for the first time, or after a cut."""
        data, record = self._data, self._data.host_records[event.host]
        first, record.greeted = not record.greeted, True
        record.agent_gone, record.agent_silent, record.last_word = False, False, None
        record.back_at = event.time
        record.previous_agent_exit = event.previous_agent_exit
        data.update_host(
            event.host, state=HostState.UP, reason="", lease_until=None, contacted=True
        )
        if data.phase is RunPhase.CONNECTING and not data.attaching:
            return self._when_all_answered()
        if first and not data.attaching and data.phase is not RunPhase.KILLING:
            return []
        meanwhile = event.previous_agent_exit
        if not first:
            data.note(f"{event.host} is back{f' (meanwhile: {meanwhile})' if meanwhile else ''}")
        elif meanwhile:
            data.note(f"{event.host}, meanwhile: {meanwhile}")
        return [*self._reconcile(event), *self._when_all_answered()]

    def _reconcile(self, event: ev.HostUp) -> list[Instruction]:
        """Takes over the agent's facts: tasks have their true state again, and what got no
        answer is repeated. First what has ended, which may end the run, or its present attempt;
        then what is still wanted."""
        data, host = self._data, event.host
        held = {(one.task, one.attempt): one.gated for one in event.tasks}
        newest = dict(sorted(held))
        data.find_tasks(host)
        told_to_end, restarting = data.phase is RunPhase.KILLING, data.phase is RunPhase.RESTARTING
        out: list[Instruction] = []
        asked: list[TaskView] = []
        for view in data.on_host(host):
            attempt = newest.get(view.id, 0)
            if data.attaching and attempt > view.attempt:  # its launcher died before it noted it
                gated = held[view.id, attempt] and data.is_early(view.id)
                view = self._tasks.begin_attempt(view.id, attempt, gated=gated)
            if (view.id, view.attempt) in held or (view.pid is None and host in data.host_facts):
                asked.append(view)
            elif view.state.live:
                out += self._ended_unseen(view, event)
        for before in asked:
            view = data.tasks[before.id]
            if not view.state.live or view.attempt != before.attempt:
                continue
            if (view.id, view.attempt) in held:
                out += self._match_gate(view, held[view.id, view.attempt])
            elif data.phase is RunPhase.KILLING or data.ends_with_all(view.id):
                out += self._ended_unseen(view, event)
            elif not data.end_decided:
                gated = view.state is TaskState.WARMING
                out.append(StartTask(data.plan.task(view.id), view.attempt, gated))
        if told_to_end and self._shutdown.receipt_pending(host):
            out.append(KillHost(host, None, self._shutdown.grace_left, final=True))
        elif data.phase is RunPhase.STAGING and not data.begun_before:
            out += self._prepare_again(host)
        if data.phase is not RunPhase.KILLING:
            out += self._tasks.unanswered_kills(host)
            out += self._restart.on_up(host) if restarting else []
        if data.phase in AT_WORK:
            out += self._tasks.renew_time_limits(data.on_host(host))
        return out

    def _ended_unseen(self, view: TaskView, event: ev.HostUp) -> list[Instruction]:
        """A host's agent knows nothing of an attempt: it has ended with another agent, or was never
        started, and is not any more."""
        exited = ev.TaskExited(event.time, view.id, view.attempt, None, None)
        reason = event.previous_agent_exit or "the host's agent died"
        return self._tasks.on_exited(exited, reason=reason)

    def _prepare_again(self, host: str) -> list[Instruction]:
        """What a cut has kept from a host before the first task: its questions, or its files."""
        data = self._data
        if data.checked:
            return [] if data.host_records[host].staged else [StageHost(host)]
        return [] if HostState.LOST in data.host_states() else [CheckHosts()]

    def _match_gate(self, view: TaskView, gated: bool) -> list[Instruction]:
        """A launcher that died, or a cut, may have kept a release from the stream or the host."""
        data = self._data
        if view.state is TaskState.WARMING and not gated:
            data.update_task(view.id, state=TaskState.STARTING)
        elif gated and view.state is not TaskState.WARMING and not data.end_decided:
            return [ReleaseTask(data.plan.task(view.id), view.attempt)]
        return []

    def on_refused(self, event: ev.HostRefused) -> list[Instruction]:
        """Ends the run: a host cannot be used."""
        refused = HostState.REFUSED
        self._data.update_host(event.host, state=refused, reason=event.reason, code=event.code)
        if self._data.phase is RunPhase.CONNECTING:
            return self._when_all_answered()
        self._data.note(f"{event.host}: {event.reason}")
        if self._restart.concerns(event.host):
            return self._restart.give_up(f"{event.host}: {event.reason}")
        return self._shutdown.kill_all(Cause.FAILURE if self._data.begun else Cause.PREFLIGHT)

    def _when_all_answered(self) -> list[Instruction]:
        data = self._data
        states = data.host_states()
        if data.phase is not RunPhase.CONNECTING or HostState.CONNECTING in states:
            return []
        if not data.attaching and HostState.LOST in states:
            return []
        if not data.attaching and HostState.REFUSED in states:
            return self._shutdown.kill_all(Cause.PREFLIGHT)
        data.update_run(state=RunPhase.STAGING)
        return [CheckHosts(ports=not data.begun_before)]

    def on_lost(self, event: ev.HostLost) -> list[Instruction]:
        """Waits for the host until its lease has ended; not so long for one without an agent."""
        data, host = self._data, event.host
        record = data.host_records[host]
        record.agent_gone = event.agent_gone
        record.lost_at = data.hosts[host].last_heard or event.time
        record.lost_since = event.time
        data.lose_host(host, event.reason, None if event.agent_gone else event.lease_until)
        data.note(f"{host} is lost: {event.reason}")
        if data.phase is RunPhase.KILLING and (settled := self._shutdown.settle_lost(host)):
            return settled
        lease = 0.0 if event.agent_gone else max(0.0, event.lease_until - event.time)
        timer = self._look_later(host, lease)
        watches = self._tasks.on_host_lost(host) if data.phase in AT_WORK else []
        return [timer, *watches, *(self._when_all_answered() if data.attaching else ())]

    def _look_later(self, host: str, left: float) -> SetTimer:
        """Has a lost host looked at again when `lease` is over, or the longer one, if that ends
        before."""
        settings = self._data.plan.settings
        return SetTimer(
            ev.LeaseEnd(host), min(left, settings.lease) + settings.grace + KILL_PATIENCE
        )

    def _may_be_us(self, host: str) -> bool:
        """Whether this machine may be what has no network, by what is known: no other host was
        connected over all of the last `lease`."""
        data = self._data
        since = data.now - data.plan.settings.lease
        return not any(
            view.state is HostState.UP and data.host_records[name].back_at <= since
            for name, view in data.hosts.items()
            if name != host and not view.local
        )

    def on_background(self, on: bool) -> list[Instruction]:
        """Asks the hosts for the lease of a run that nobody has on a screen, or the other one."""
        data = self._data
        data.update_run(background=on)
        over = data.phase in (RunPhase.KILLING, RunPhase.ENDED)
        if over or data.plan.settings.on_disconnect is OnDisconnect.KEEP:
            return []
        if on:
            for record in data.host_records.values():
                record.asked_lease = data.plan.settings.background_lease
        return [AskLeases()]

    def on_lease_confirmed(self, host: str, lease: float) -> list[Instruction]:
        """Notes the lease that a host holds."""
        data = self._data
        data.update_host(host, lease=lease)
        data.host_records[host].asked_lease = 0.0
        return []

    def on_silent(self, event: ev.AgentSilent) -> list[Instruction]:
        """Says of a lost host that it is there, and what of it is not."""
        data, host = self._data, event.host
        data.host_records[host].agent_silent = True
        if data.hosts[host].state is HostState.LOST:
            data.update_host(host, reason=AGENT_SILENT)
        return []

    def on_lease_end(self, host: str) -> list[Instruction]:
        """Ends the run when the host is still lost and tasks on it are needed. One that was to be
        kept goes on there, where its agent may live and something of it has begun."""
        data = self._data
        gone = data.host_records[host].agent_gone
        keep = data.plan.settings.on_disconnect is OnDisconnect.KEEP and not gone
        lost = data.hosts[host].state is HostState.LOST
        if not lost or data.phase is RunPhase.KILLING:
            return []
        left_over = (data.hosts[host].lease_until or 0.0) - data.now
        goes_on = left_over > 0 and data.longest_lease(host) > data.plan.settings.lease
        if goes_on and self._may_be_us(host):
            return [self._look_later(host, left_over)]
        if self._restart.concerns(host):
            return self._restart.give_up(f"{host} is lost ({data.hosts[host].reason})")
        if keep and data.begun:
            return []
        if data.run.stage < 0 and not data.begun:
            return self._shutdown.kill_all(Cause.PREFLIGHT)
        reason = "its host's agent has died" if gone else "its host's lease has ended"
        if goes_on:
            reason = f"its host has not answered for {span(data.plan.settings.lease)}"
        left = [view for view in data.on_host(host) if not view.state.ended]
        needed = [view for view in left if self._tasks.is_needed(view.id)]
        if left and not needed:
            return [i for view in left for i in self._tasks.on_lost_for_good(view.id, reason)]
        for view in needed:
            if view.state is TaskState.LOST:
                data.update_task(view.id, reason=reason)
                data.fail(view.id, "lost", ())
        return self._shutdown.kill_all(Cause.FAILURE) if needed else []

    def on_checked(self, event: ev.HostsChecked) -> list[Instruction]:
        """Makes the final plan; files go to all hosts, or a run that has begun goes on."""
        data = self._data
        if data.phase is not RunPhase.STAGING or data.checked:
            return []
        data.checked = True
        data.replan({host: facts for host, facts in event.facts.items() if host in data.hosts})
        if data.begun_before:
            for record in data.host_records.values():
                record.staged = True
            return self._tasks.resume()
        self._note_gpus()
        for task in data.tasks:
            data.update_task(task, state=TaskState.STAGING)
        return [StageHost(host) for host in data.host_records]

    def _note_gpus(self) -> None:
        data = self._data
        found = []
        for host, ranks in ranks_with_gpus(data.cluster).items():
            given, facts = data.plan.host(host).gpus, data.host_facts.get(host, HostFacts())
            if text := gpu_shortage(
                host, ranks, facts.gpus if given is None else given, data.cluster.run.framework
            ):
                found.append(text)
        if found:
            more = counted(len(found) - 1, "more host")
            data.note(f"{found[0]}; the same on {more}" if found[1:] else found[0])

    def on_staged(self, event: ev.Staged) -> list[Instruction]:
        """Starts the first tasks when all hosts have their files."""
        data = self._data
        data.host_records[event.host].staged = True
        if data.phase is not RunPhase.STAGING or data.unstaged_hosts or data.begun_before:
            return []
        return self._tasks.begin()
