"""What a process says about itself: `process status` of controller and worker alike."""

from __future__ import annotations

import os
import platform
import socket
import time

from iris_controller import release
from iris_core.wire.gen.iris.v1 import common_pb2

_started = time.monotonic()
_last_cpu = (time.monotonic(), time.process_time())


def own_process(target: str, boot_id: str) -> common_pb2.ProcessInfo:
    """This process; CPU is since the previous reading."""
    global _last_cpu
    import psutil

    now, spent = time.monotonic(), time.process_time()
    before, used = _last_cpu
    _last_cpu = (now, spent)
    process = psutil.Process()
    memory = process.memory_info()
    return common_pb2.ProcessInfo(
        target=target,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        python=platform.python_version(),
        version=release.version(),
        release=release.release(),
        boot_id=boot_id,
        uptime_ms=int((now - _started) * 1000),
        cpu_millicores=int((spent - used) / max(now - before, 1e-3) * 1000),
        memory_rss_bytes=memory.rss,
        memory_vms_bytes=memory.vms,
        memory_total_bytes=psutil.virtual_memory().total,
        threads=process.num_threads(),
        open_fds=process.num_fds(),
        cpu_count=os.cpu_count() or 0,
    )
