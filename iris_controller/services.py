"""What answers each RPC, put together: every service of the controller and what it needs, registered with one router.

A new RPC is composed here. Must never open a file, a socket or a process: those are handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_controller import task_outputs
from iris_controller.dry_run import DRY_RUN, refuse_attach, refuse_to_store
from iris_controller.leases import Leases
from iris_controller.places import Places
from iris_controller.profile_store import FOLDER, Asking, ProfileStore
from iris_controller.readings import Readings
from iris_controller.rpc.attach import WorkerSessions
from iris_controller.rpc.autoscaler import AutoscalerService
from iris_controller.rpc.backends import BackendService
from iris_controller.rpc.budgets import BudgetService
from iris_controller.rpc.bundles import Bundles
from iris_controller.rpc.cluster import About, ClusterService
from iris_controller.rpc.endpoints import EndpointService
from iris_controller.rpc.explain import ExplainService
from iris_controller.rpc.feasibility import Feasibility
from iris_controller.rpc.jobs import JobService
from iris_controller.rpc.known_attributes import KnownAttributes
from iris_controller.rpc.once import Once
from iris_controller.rpc.pipeline import PipelineService
from iris_controller.rpc.plan import PlanService
from iris_controller.rpc.plan_tokens import PlanTokens
from iris_controller.rpc.profiles import ProfileService
from iris_controller.rpc.query import QueryService
from iris_controller.rpc.reruns import Reruns
from iris_controller.rpc.run_spec import RunSpecs
from iris_controller.rpc.scheduler_state import SchedulerStateService
from iris_controller.rpc.session import Dispatch
from iris_controller.rpc.submitting import SubmitService
from iris_controller.rpc.task_status import TaskStatusService
from iris_controller.rpc.tasks import TaskService
from iris_controller.rpc.users import UserService
from iris_controller.watching.ends import Ends
from iris_controller.watching.hub import WatchHub
from iris_controller.watching.looks import Known, looks
from iris_controller.watching.pulse import Asked
from iris_controller.watching.queued import Queued
from iris_core.config.revision import revision_date
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1 import controller_pb2, watch_rows_pb2
from providers.objects import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.boot import Stored
    from iris_controller.dry_run import Unasked
    from iris_controller.finelog_process import FinelogProcess
    from iris_controller.loop import ControllerLoop
    from iris_controller.options import ServeOptions
    from iris_controller.rpc.dispatch import Router
    from iris_core.config.cluster import ClusterConfig
    from iris_core.model.tables import Table
    from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2


class Services:
    """The services of one controller process; the parts that live on beyond a call are its attributes."""

    def __init__(
        self,
        options: ServeOptions,
        opened: Stored,
        loop: ControllerLoop,
        finelog: FinelogProcess,
        boot_id: str,
        started_at_ms: int,
        problems: Callable[[], list[str]],
        peaks: Mapping[str, Mapping[str, int]],
        write_row: Callable[[Table, Mapping[str, Any]], None],
        rows: Callable[[], tuple[int, int]] = lambda: (0, 0),
        *,
        requeued: Mapping[tuple[str, int], int] | None = None,
        lag: Callable[[], watch_rows_pb2.LoopLag] | None = None,
        unasked: Unasked | None = None,
    ) -> None:
        """`requeued` says since when tasks wait that have had an attempt; without `lag` there is no running controller to watch;
        `unasked` is what is said where only a state is looked at, by default that of a dry run in one."""
        config = options.config
        unasked = unasked or (DRY_RUN if options.dry_run else None)
        self._dry_run = options.dry_run
        specs = RunSpecs(opened.readers, opened.seal, config.task_env)
        may_write = refuse_to_store if options.dry_run else loop.require_writable
        self.bundles = Bundles(open_store(f"{options.remote_state_dir.rstrip('/')}/bundles"), may_write)
        self._readings = Readings(loop.model, peaks)
        loop.on_commit(self._readings.note)
        self.sessions = WorkerSessions(
            loop,
            Dispatch(
                run_spec=specs.of,
                token=lambda job, uid: opened.signer.task_token(job.user_id, job.root_job_id, job.job_id, uid),
                log_addresses=lambda: [finelog.address] if finelog.address else [],
                controller_boot_id=boot_id,
                cluster=config.name,
                dead_after_s=options.dead_after_s,
                task_outputs=task_outputs.policy(config, options.remote_state_dir),
                profile_interval_ms=config.profile_interval_s * 1000,
                stats_interval_ms=config.stats_interval_s * 1000,
            ),
            measured=self._measured,
        )
        once = self.once = Once(opened.readers, opened.answered)
        self.task_status = TaskStatusService(loop, once, write_row, self._said)
        self._tasks = TaskService(loop, opened.readers, self.sessions, once, self._revision, self._readings)
        self.hub = WatchHub(
            loop,
            boot_id,
            worker_age_ms=self.sessions.health.age_ms,
            finished_tasks=self._tasks.finished_tasks,
            measured=self._readings.onto,
        )
        about = About(
            cluster=config.name,
            boot_id=boot_id,
            started_at_ms=started_at_ms,
            state_dir=str(options.state_dir),
            problems=problems,
            finelog_release=lambda: finelog.release,
            rows=rows,
        )
        self._finelog = finelog
        self._jobs = JobService(loop, opened.readers, once, self.hub.revision)
        reruns = Reruns(opened.readers, opened.seal)
        self._submits = SubmitService(
            loop,
            opened.seal,
            self.bundles,
            once,
            reruns,
            KnownAttributes(loop, (group.worker_attributes() for group in config.scale_groups.values())),
            Feasibility(loop.model, config.scale_groups.values()),
            config.max_active_tasks,
            revision_date(),
        )
        self._explain = ExplainService(
            loop, opened.readers, self._submits, self._group_states, self.hub.revision, unasked
        )
        self._cluster = ClusterService(loop, self.sessions, self._tasks, about, self.hub.revision)
        self.pipeline = PipelineService(loop, self.sessions, finelog.current, options.dead_after_s)
        self.asking = Asking(finelog.current)
        profiles = open_store(f"{options.remote_state_dir.rstrip('/')}/{FOLDER}")
        kept = ProfileStore(profiles, write_row, self.asking, may_write, loop.now_ms)
        self.profiles = ProfileService(
            loop, opened.readers, self.sessions, self._tasks, once, kept, config.profile_interval_s
        )
        self._budgets = BudgetService(loop, once)
        self._users = UserService(loop, config.admin_users)
        self._scheduler_state = SchedulerStateService(loop, self.hub.revision)
        self._backends = BackendService(loop, config, self.hub.revision)
        self.query = QueryService(opened.database)
        self.autoscaler = AutoscalerService(loop, config, once, SystemClock(), self.hub.revision, unasked)
        self._plan = PlanService(
            loop,
            PlanTokens(config.name),
            self._tasks,
            self._submits,
            reruns,
            self.bundles,
            config,
            lambda: self.autoscaler.scaler is not None,
            self._revision,
        )
        self.leases = Leases(loop)
        self.places = Places(loop, self.leases, config.endpoints, finelog.current)
        self._endpoints = EndpointService(loop, self.sessions, once, self.places, opened.signer)
        self.checkpoint: Callable[[], watch_rows_pb2.CheckpointCondition] = watch_rows_pb2.CheckpointCondition
        """Is to tell of the checkpoints once somebody takes them."""
        self.background: Callable[[], list[watch_rows_pb2.BackgroundTask]] = list
        """Is to tell of the work that goes on for as long as the process lives."""
        self._watched(loop, config, about, requeued or {}, lag)

    def _watched(
        self,
        loop: ControllerLoop,
        config: ClusterConfig,
        about: About,
        requeued: Mapping[tuple[str, int], int],
        lag: Callable[[], watch_rows_pb2.LoopLag] | None,
    ) -> None:
        """Has the hub know every kind of row that follows no batch."""
        queued, ends = Queued(loop.model, requeued), Ends(loop.now_ms())
        loop.on_commit(queued.note)
        loop.on_commit(ends.note)
        self._cluster.lag = lag or watch_rows_pb2.LoopLag
        self._cluster.ends = lambda: ends.read(loop.now_ms())
        asked = Asked(
            own=self._cluster.own,
            lag=self._cluster.lag,
            checkpoint=self._checkpoints,
            store=self.pipeline.ask_store,
            shippers=lambda: self.sessions.shippers() | {"": self.pipeline.own()},
            watchers=lambda: self.hub.subscribers,
            background=self._background,
        )
        known = Known(
            loop=loop,
            about=about,
            asked=asked,
            backends=self._backends,
            places=self.places,
            scaler=lambda: self.autoscaler.scaler,
            since=queued.since,
            ends=self._cluster.ends,
            attempts=self._tasks.attempts_of,
            admins=frozenset(config.admin_users),
            max_active_tasks=config.max_active_tasks,
        )
        self.hub.looks.update(looks(known))
        if lag is None:
            del self.hub.looks[controller_pb2.WATCH_KIND_CONTROLLER]

    def _checkpoints(self) -> watch_rows_pb2.CheckpointCondition:
        return self.checkpoint()

    def _background(self) -> list[watch_rows_pb2.BackgroundTask]:
        return self.background()

    def _measured(self, worker_id: str, usage: Iterable[worker_pb2.AttemptUsage]) -> None:
        self.hub.measured(self._readings.take(worker_id, usage))

    def _said(self, uid: str, summary: str) -> None:
        self.hub.measured(self._readings.say(uid, summary))

    def _revision(self) -> common_pb2.Revision:
        # The hub is made after the services that ask it.
        return self.hub.revision()

    def _group_states(self) -> Sequence[GroupState]:
        # The autoscaler comes when the port is open, or not at all.
        return self.autoscaler.scaler.states() if self.autoscaler.scaler is not None else ()

    def register(self, router: Router) -> None:
        """Makes the router answer every RPC of the controller."""
        self._jobs.register(router)
        self._plan.register(router)
        self._submits.register(router)
        self._explain.register(router)
        self._tasks.register(router)
        self.task_status.register(router)
        self.bundles.register(router)
        self._cluster.register(router)
        self.pipeline.register(router)
        self.profiles.register(router)
        self._budgets.register(router)
        self._users.register(router)
        self._scheduler_state.register(router)
        self._backends.register(router)
        self.query.register(router)
        self.autoscaler.register(router)
        self._endpoints.register(router)
        router.add("ControllerService/Watch", self.hub.watch)
        router.add("WorkerService/Attach", refuse_attach if self._dry_run else self.sessions.attach)
        for service in ("LogService", "StatsService"):
            router.add_raw(service, self._finelog.current)
