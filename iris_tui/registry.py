"""The screens by name. Only the one that is shown first is loaded at start; the kit never imports a screen by itself.

From this table come the go-to menu, the `:` commands that lead to a screen, their place in the help, and what is refused while
the console is offline. A screen that has not landed is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from iris_core.cli.beside import load as load_beside

if TYPE_CHECKING:
    from iris_tui.scope import ActionHost
    from iris_tui.screen import ConsoleScreen
    from iris_tui.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSpec:
    """One screen.

    Attributes:
        name: Its id, and the word after `:` unless `word` says otherwise.
        title: What the header, the go-to menu and the help call it.
        where: Module and class.
        letter: Its key in the go-to menu; "" = it is reached from a row, or by its word.
        argument: What may follow the word: "[FILTER]" for a list, the id of what it is about for the others.
        word: Word after `:`; "-" = none, because an action leads there.
        aliases: Other words.
        cli: Equivalent command line; `{at}` is the cluster selector.
        offline: Whether it works on a checkpoint.
    """

    name: str
    title: str
    where: str
    letter: str = ""
    argument: str = ""
    word: str = ""
    aliases: tuple[str, ...] = ()
    cli: str = ""
    offline: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "word", "" if self.word == "-" else self.word or self.name)

    @property
    def lists(self) -> bool:
        """Whether it is one screen whatever follows its word: a filter and no id."""
        return not self.argument or self.argument.startswith("[")


_ALL: Final = (
    ScreenSpec(
        name="overview", title="Overview", where="screens.overview:OverviewScreen", letter="o", aliases=("pulse", "pulses"),
        cli="iris-core {at} cluster status",
    ),
    ScreenSpec(
        name="jobs", title="Jobs", where="screens.jobs:JobsScreen", letter="j", argument="[FILTER]", aliases=("job-tree",),
        cli="iris-core {at} job list", offline=True,
    ),
    ScreenSpec(
        name="job", title="One job", where="screens.job:JobScreen", argument="ID", offline=True,
        cli="iris-core {at} job describe ID",
    ),
    ScreenSpec(
        name="tasks", title="Tasks", where="screens.tasks:TasksScreen", letter="t", argument="[FILTER]", aliases=("task-list",),
        cli="iris-core {at} task list JOB", offline=True,
    ),
    ScreenSpec(
        name="task", title="One task", where="screens.task:TaskScreen", argument="ID", aliases=("attempt",), offline=True,
        cli="iris-core {at} task describe ID",
    ),
    ScreenSpec(
        name="logs", title="Logs", where="screens.logs:LogsScreen", argument="ID…", word="-",
        cli="iris-core {at} job logs ID --follow",
    ),
    ScreenSpec(
        name="scheduler", title="Scheduler", where="screens.scheduler:SchedulerScreen", letter="s", argument="[FILTER]",
        aliases=("queue", "pending"), cli="iris-core {at} rpc controller get-scheduler-state", offline=True,
    ),
    ScreenSpec(
        name="explain", title="Explain", where="screens.explain:ExplainScreen", argument="ID", word="-",
        cli="iris-core {at} job explain ID", offline=True,
    ),
    ScreenSpec(
        name="capacity", title="Capacity", where="screens.capacity:CapacityScreen", letter="c", argument="[FILTER]",
        aliases=("slices", "machines", "autoscaler"), cli="iris-core {at} cluster vm status", offline=True,
    ),
    ScreenSpec(
        name="workers", title="Workers", where="screens.workers:WorkersScreen", letter="w", argument="[FILTER]",
        aliases=("nodes",), cli="iris-core {at} cluster status", offline=True,
    ),
    ScreenSpec(
        name="worker", title="One worker", where="screens.worker:WorkerScreen", argument="ID", cli="iris-core {at} cluster status",
        offline=True,
    ),
    ScreenSpec(
        name="users", title="Users & budgets", where="screens.users:UsersScreen", letter="u", argument="[FILTER]",
        aliases=("budgets",), cli="iris-core {at} user budget list", offline=True,
    ),
    ScreenSpec(
        name="endpoints", title="Endpoints", where="screens.endpoints:EndpointsScreen", letter="e", argument="[FILTER]",
        cli="iris-core {at} endpoints list", offline=True,
    ),
    ScreenSpec(
        name="profiles", title="Profiles", where="screens.profiles:ProfilesScreen", letter="p", argument="[FILTER]",
        cli="iris-core {at} profile list",
    ),
    ScreenSpec(
        name="profile", title="Profile", where="screens.profile:ProfileScreen", argument="ID", cli="iris-core {at} profile get ID",
    ),
    ScreenSpec(
        name="query", title="Query", where="screens.query:QueryScreen", letter="q", argument="[SQL]", aliases=("sql",),
        cli="iris-core {at} query 'SELECT …'", offline=True,
    ),
    ScreenSpec(
        name="audit", title="Audit", where="screens.audit:AuditScreen", letter="a", argument="[FILTER]",
        cli="iris-core {at} process logs --substring event=operator_change",
    ),
    ScreenSpec(
        name="checkpoints", title="Checkpoints", where="screens.checkpoints:CheckpointsScreen", letter="k",
        argument="[PATH_OR_URL]", cli="iris-core {at} checkpoint list", offline=True,
    ),
    ScreenSpec(
        name="controller", title="Controller", where="screens.controller:ControllerScreen", letter="r", aliases=("readyz",),
        cli="iris-core {at} process status",
    ),
    ScreenSpec(
        name="rollout", title="Rollout", where="screens.rollout:RolloutScreen", letter="d", argument="[ID]", aliases=("deploy", "rollout-status"),
        cli="iris-core rollout status ID",
    ),
)  # fmt: skip

SCREENS: Final[dict[str, ScreenSpec]] = {spec.name: spec for spec in _ALL}
FIRST: Final = "jobs"
BY_NAME: Final[dict[str, str]] = {"target": "screens.targets:ByName"}
"""Who answers the actions of a scope on a screen that shows nothing of the kind, once it was named. Made with the screen."""


def load(name: str) -> Callable[..., ConsoleScreen]:
    """The class of a screen, made with the session and, for one about something, its id.

    Raises IrisError if another `screens` package is in the way, KeyError for an unknown name.
    """
    module, _, attribute = SCREENS[name].where.partition(":")
    return cast("Callable[..., ConsoleScreen]", getattr(load_beside(module), attribute))


def by_name(scope: str, screen: ConsoleScreen) -> ActionHost | None:
    """Who answers the actions of a scope for what is named, None if nobody does."""
    where = BY_NAME.get(scope)
    if where is None:
        return None
    module, _, attribute = where.partition(":")
    return cast("Callable[[ConsoleScreen], ActionHost]", getattr(load_beside(module), attribute))(screen)


def make(session: Session, name: str, subject: str = "") -> ConsoleScreen:
    """A screen for a session; `subject` is the id it is about."""
    screen = load(name)(session, subject) if subject else load(name)(session)
    screen.place = (name, subject)
    return screen
