"""For code that runs inside a task: who am I, where are my siblings, and jobs below mine.

    from iris_core import job

    me = job.context()
    with me.serve("shard", me.ports["rpc"]):
        peers = me.find("shard", count=me.num_tasks, timeout_s=60)
    me.report("step 100 of 1000", "| loss | 2.3 |")

A task may submit, watch, wait for and cancel jobs below its own, register its endpoints and report its status; the controller refuses
everything else.
"""

from __future__ import annotations

from iris_core.job.serving import Serving
from iris_core.job.task_context import Context, NotInTask, context

__all__ = ["Context", "NotInTask", "Serving", "context"]
