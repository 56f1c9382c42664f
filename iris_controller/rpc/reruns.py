"""A job run again: what it was submitted with, its sealed values included, beneath what the new request says.

Everything that the new request leaves out is the original's, but for what belongs to one submission alone (its request id, the words it
was typed with, the age of its client, what to do with a job of that name). Variables are merged one by one. The secrets are opened
here and sealed again with the new request; they never travel. Must never take over more than the caller may read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.rpc.errors import invalid, not_found, precondition
from iris_controller.rpc.plan_tokens import replan
from iris_controller.store.reads import one_job
from iris_controller.store.seal import SealedElsewhere
from iris_core.model.errors import did_you_mean
from iris_core.model.ids import JobId
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.rpc.call import Call
    from iris_controller.store.reads import Readers
    from iris_controller.store.seal import Seal

OF_ONE_SUBMISSION: Final = frozenset(
    {"submit_argv", "client_revision_date", "existing_job_policy", "rerun", "request_id", "inherit_workspace"}
)
_MERGED: Final = frozenset({"environment", "entrypoint"})
_CLEARABLE: Final = tuple(
    field.name
    for field in controller_pb2.LaunchJobRequest.DESCRIPTOR.fields
    if field.name not in OF_ONE_SUBMISSION | {"name", "entrypoint"}
)


class Reruns:
    """See the module."""

    def __init__(self, readers: Readers, seal: Seal) -> None:
        self._readers = readers
        self._seal = seal

    async def expand(self, request: controller_pb2.LaunchJobRequest, call: Call) -> controller_pb2.LaunchJobRequest:
        """The whole request that a rerun stands for; it still names its original. Raises RpcError, ModelError."""
        wanted = request.rerun
        original = JobId.parse(wanted.job_id)
        job_id = str(original)
        if call.identity.task is not None:
            call.identity.require_scope(job_id)
        else:
            call.identity.require_owner(original.user, job_id)
        found = await self._readers.run(lambda c: one_job(c, job_id))
        if found is None:
            raise not_found(job_id, f"there is no job {job_id} to run again")
        status, whole = found
        if wanted.incarnation not in (0, status.incarnation):
            raise replan(job_id, f"job {job_id} was replaced by a new job of that name")
        try:
            self._seal.open_request(whole)
        except SealedElsewhere:
            raise precondition(
                job_id,
                f"the secret values of {job_id} were sealed with a key that is not here",
                code="sealed_elsewhere",
                hint="submit it anew with job run",
            ) from None
        for name in OF_ONE_SUBMISSION:
            whole.ClearField(name)
        for name in wanted.clear:
            if name not in _CLEARABLE:
                near = did_you_mean(name, _CLEARABLE)
                raise invalid("rerun.clear", f"{name[:80]!r} is no field that could be emptied", hint=near)
            whole.ClearField(name)
        _remove(whole, wanted.remove_env, job_id)
        _lay_over(whole, request)
        whole.rerun.job_id, whole.rerun.incarnation = job_id, status.incarnation
        return whole


def _remove(whole: controller_pb2.LaunchJobRequest, names: Sequence[str], job_id: str) -> None:
    variables = whole.environment.env_vars
    for name in names:
        if name not in variables:
            near = did_you_mean(name, variables)
            raise invalid("rerun.remove_env", f"{job_id} was not given {name[:80]!r}", hint=near)
        del variables[name]


def _lay_over(whole: controller_pb2.LaunchJobRequest, request: controller_pb2.LaunchJobRequest) -> None:
    """Puts what the request says in the place of what the original said."""
    for field, _ in request.ListFields():
        if field.name in _MERGED:
            continue
        whole.ClearField(field.name)
    plain = controller_pb2.LaunchJobRequest()
    plain.CopyFrom(request)
    plain.ClearField("environment")
    plain.ClearField("entrypoint")
    plain.ClearField("rerun")
    whole.MergeFrom(plain)
    for name, value in request.environment.env_vars.items():
        whole.environment.env_vars[name] = value
    if request.environment.setup_scripts:
        del whole.environment.setup_scripts[:]
        whole.environment.setup_scripts.extend(request.environment.setup_scripts)
    if request.entrypoint.run_command.argv:
        whole.entrypoint.run_command.CopyFrom(request.entrypoint.run_command)
    for name, data in request.entrypoint.workdir_files.items():
        whole.entrypoint.workdir_file_refs.pop(name, None)
        whole.entrypoint.workdir_files[name] = data
    for name, blob_id in request.entrypoint.workdir_file_refs.items():
        whole.entrypoint.workdir_files.pop(name, None)
        whole.entrypoint.workdir_file_refs[name] = blob_id
