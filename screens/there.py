"""What runs on some workers: shown as a list of tasks, or preempted, attempt by attempt, behind the gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iris_core.contracts import IrisError
from iris_core.live.on_workers import on_workers, tasks_on
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_tui.actions import Action
    from iris_tui.screen import ConsoleScreen


def preempt_there(screen: ConsoleScreen, action: Action, where: str, worker_ids: Sequence[str]) -> None:
    """Preempt the attempts that are on these workers now; `where` names the slice or worker."""
    console, session = screen.console, screen.session

    async def work() -> None:
        from iris_tui import changes

        try:
            tasks = await tasks_on(session.client, worker_ids)
        except IrisError as error:
            console.say(f"{action.title.partition(':')[0]}: {one_line(error.message)}", severity="error")
            return
        if not tasks:
            console.say(f"nothing runs on {one_line(where)}")
            return
        # Attempts, not tasks: what comes there after the plan was made is not meant.
        targets = [f"{task.task_id}:{task.current_attempt_id}" for task in tasks]
        await changes.change(console, session, action, targets, kind="preempt")

    console.run_worker(work(), name=action.title, group="change", exit_on_error=False)


def show_there(screen: ConsoleScreen, worker_ids: Sequence[str]) -> None:
    """The list of tasks, of these workers only. Raises ModelError when there are more than a filter can name."""
    screen.console.go("tasks", on_workers(worker_ids))


def machine_log(screen: ConsoleScreen, name: str) -> None:
    """A page of what a machine logged, by its own id or its worker's."""
    from iris_core.live.wording import Tone
    from iris_tui.pages import Lines, TextPage

    session = screen.session

    async def load() -> Lines:
        from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

        request = pb.GetVmLogsRequest(vm_id=name, max_lines=1000)
        found = await session.client.call("ControllerService/GetVmLogs", request, pb.GetVmLogsResponse)
        vm = found.vm
        attached = "attached" if vm.attached else "not attached"
        error = f": {vm.error}" if vm.error else ""
        head = f"{vm.vm_id or name} is {vm.state}, worker {vm.worker_id or 'unknown'}, {attached}{error}"
        lines = [(one_line(head), Tone.BAD if vm.error else Tone.DIM), ("", Tone.PLAIN)]
        return [*lines, *((one_line(line), Tone.PLAIN) for line in found.lines)]

    command = f"iris-core {session.selector} cluster vm logs {name}"
    screen.app.push_screen(TextPage(session, f"Machine log {one_line(name)}", load, command=command))
