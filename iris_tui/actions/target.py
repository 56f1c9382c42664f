"""What can be done with a job, a task or an attempt, on every screen that shows one: looked at closer, or changed."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

TARGET: Final[tuple[Action, ...]] = (
    Action(
        id="target.logs", title="Show logs", keys=("l",), command="logs", arguments="[ID…]", cli="iris-core {at} {noun} logs {id} --follow",
        menu="l", footer=20, kinds=("job", "task", "attempt"), many=True,
    ),
    Action(
        id="target.describe", title="Describe", keys=("d",), command="describe", arguments="[ID]", cli="iris-core {at} {noun} describe {id}",
        menu="d", footer=30, kinds=("job", "task", "attempt"),
    ),
    Action(
        id="target.explain", title="Explain why it waits", keys=("w",), command="explain", arguments="[ID]",
        cli="iris-core {at} {noun} explain {id}", menu="w", kinds=("job", "task"),
    ),
    Action(
        id="target.spec", title="Show the submitted request", keys=("y",), command="spec", arguments="[ID]",
        cli="iris-core {at} rpc controller get-job-status --job-id {job}", menu="y", kinds=("job", "task", "attempt"),
    ),
    Action(
        id="target.page", title="Open its page", keys=("J",), command="page", arguments="[ID]", cli="iris-core {at} {noun} describe {id}",
        menu="g", kinds=("job", "task", "attempt"),
    ),
    Action(
        id="target.compare", title="Compare two attempts, or one with its neighbour", keys=("C",), command="compare",
        arguments="[ID ID]", menu="C", kinds=("task", "attempt"), many=True,
    ),
    Action(
        id="target.profile", title="Profile: take one of it now", command="profile-now", arguments="[ID [threads|cpu|memory]]",
        cli="iris-core {at} {noun} profile threads {id}", menu="t", kinds=("task", "attempt"),
    ),
    Action(
        id="target.copy", title="Copy the id", keys=("c",), command="copy", arguments="[ID]", menu="i", kinds=("job", "task", "attempt"),
        many=True,
    ),
    Action(
        id="target.hang", title="Show where its running tasks stand, the odd one first", command="hang", arguments="[JOB]",
        cli="iris-core {at} job hang {id}", menu="h", kinds=("job",), anywhere=True,
    ),
    Action(
        id="target.cancel", title="Cancel", tier=1, mutates=True, alive=True, command="cancel", arguments="[ID…]",
        cli="iris-core {at} job cancel {id}", menu="c", kinds=("job",),
    ),
    Action(
        id="target.complete", title="Complete: end it as succeeded", tier=1, mutates=True, alive=True, command="complete", arguments="[ID…]",
        cli="iris-core {at} job complete {id}", menu="o", kinds=("job",),
    ),
    Action(
        id="target.rerun", title="Rerun: submit it again, with changes", tier=1, mutates=True, command="rerun", arguments="[JOB]",
        cli="iris-core {at} job rerun {original} {changes}", menu="r", kinds=("job",),
    ),
    Action(
        id="target.exec", title="Exec: run a command in it", tier=1, mutates=True, alive=True, command="exec", arguments="[ID COMMAND]",
        cli="iris-core {at} task exec {id} -- {command}", menu="s", kinds=("task", "attempt"),
    ),
    Action(
        id="target.preempt", title="Preempt: end the attempt, the task is tried again", tier=1, mutates=True, alive=True, command="preempt",
        arguments="[ID…]", cli="iris-core {at} {noun} preempt {id}", menu="p", kinds=("task", "attempt"),
    ),
    Action(
        id="target.fail", title="Fail: end the task, it is not tried again", tier=1, mutates=True, alive=True, command="fail",
        arguments="[ID…]", cli="iris-core {at} {noun} fail {id}", menu="f", kinds=("task", "attempt"),
    ),
)  # fmt: skip
