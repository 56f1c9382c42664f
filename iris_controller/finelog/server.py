"""The finelog process: opens the store, serves it until it is told to stop, and leaves nothing half done.

Without authentication of its own it listens on loopback; whoever listens elsewhere says so. On SIGTERM it takes nothing new, ends the
waits, stores what it has, and exits. Must never listen before the store is whole, nor share its port with another process.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import secrets
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from iris_controller import release
from iris_controller.finelog.catalog import Catalog
from iris_controller.finelog.endpoint import Endpoint, FolderLock, process_start_time
from iris_controller.finelog.retention import Policy
from iris_controller.finelog.service import LogService
from iris_controller.finelog.shipping.cold import ColdFiles
from iris_controller.finelog.shipping.reclaim import is_asked, reclaim, settle
from iris_controller.finelog.shipping.restore import is_empty, mend, restore
from iris_controller.finelog.shipping.shipper import SHIP_SECONDS, Shipper
from iris_controller.finelog.shipping.stores import LogOwner, TablesOwner, take_over
from iris_controller.finelog.store import MAX_BYTES, Store
from iris_controller.finelog.tables.log_table import LogTable
from iris_controller.finelog.tables.service import SERVICE as STATS_SERVICE
from iris_controller.finelog.tables.service import StatsService
from iris_controller.finelog.tables.store import TableStore
from iris_controller.finelog.upkeep import Upkeep
from iris_core.contracts import IrisError, UsageFailed
from providers.objects import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.finelog")

STOP_SECONDS = 5.0
MAX_MESSAGE_BYTES = 16 << 20
SERVICE = "iris.v1.LogService"
COLD_BYTES = 1 << 30
"""Of segments that were fetched from the object store to be read, where nothing else is said."""


def _is_no_hang_up(record: logging.LogRecord) -> bool:
    """A caller that went away before it took its answer is nothing that gRPC should write a traceback about."""
    return not str(record.msg).startswith("ExecuteBatchError")


@dataclass(frozen=True, slots=True)
class Settings:
    """What `finelog serve` was told."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    endpoint_file: Path | None = None
    allow_remote: bool = False
    max_bytes: int = MAX_BYTES
    max_age_seconds: int = 0
    max_segments: int = 0
    """Bounds of the log, the oldest go first; 0 = none."""
    release: str = ""
    remote: str = ""
    """URL of the object store that segments are shipped to, "" = none."""
    ship_seconds: float = SHIP_SECONDS
    local_bytes: int = 0
    """Shipped segments leave the disk when more is on it, and are fetched again for reading; 0 = never."""


def run(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Raises IrisError (one line for the operator), OSError."""
    if not settings.allow_remote and not _is_loopback(settings.host):
        raise UsageFailed(
            f"{settings.host} is reachable from other machines, and finelog knows no credentials",
            hint="bind a loopback address, or give --allow-remote where the network is trusted",
        )
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_hang_up)
    # A scan in a thread gives way to the loop after half a millisecond, not five.
    sys.setswitchinterval(0.0005)
    remote = open_store(settings.remote) if settings.remote else None
    with FolderLock(settings.data_dir):
        if remote is not None and is_empty(settings.data_dir):
            # Without an answer it does not start: an empty store would be another one, whose segments have no place there.
            restore(
                settings.data_dir,
                remote,
                _catalog,
                partial(take_over, settings.data_dir),
                local_bytes=settings.local_bytes,
            )
        elif remote is not None:
            mend(settings.data_dir, remote, _catalog)
        policy = Policy(max_age_ms=settings.max_age_seconds * 1000, max_segments=settings.max_segments)
        store = Store(settings.data_dir, max_bytes=settings.max_bytes, policy=policy)
        if remote is not None:
            store.catalog.cold = ColdFiles(settings.data_dir / "cold", remote, settings.local_bytes // 4 or COLD_BYTES)
        try:
            tables = TableStore(settings.data_dir / "stats", store.catalog)
        except BaseException:
            store.close()
            raise
        upkeep = Upkeep(store)
        try:
            _reclaim(settings.data_dir, store, tables, remote)
            # What was made while starting stays: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            # Lines come and go by the thousand, and none of them is part of a cycle.
            gc.set_threshold(50_000, 20, 20)
            upkeep.start()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(settings, store, tables, remote))
        finally:
            tables.close()
            upkeep.close()
            store.close()


async def _serve(settings: Settings, store: Store, tables: TableStore, remote: ObjectStore | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stats = StatsService(tables, LogTable(store))
    shipper = None
    if remote is not None:
        owners = (LogOwner(store), TablesOwner(tables, stats.wake_keeper))
        shipper = Shipper(
            settings.data_dir,
            store.marker,
            store.catalog,
            owners,
            remote,
            ship_seconds=settings.ship_seconds,
            local_bytes=settings.local_bytes * 3 // 4,
        )
    service = LogService(
        store,
        release=settings.release or release.release(),
        shipping=shipper.current if shipper is not None else lambda: None,
    )
    try:
        server = grpc.aio.server(
            options=[
                # Two processes on one port would each get half of the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ]
        )
        server.add_generic_rpc_handlers((service.handlers(), stats.handlers()))
        healthy = health.aio.HealthServicer()  # type: ignore[attr-defined]  # set at import
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        reflection.enable_server_reflection(
            (SERVICE, STATS_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        port = _bind(server, settings.host, settings.port)
        await server.start()
        for name in ("", SERVICE, STATS_SERVICE):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        endpoint = Endpoint(
            host=settings.host,
            port=port,
            pid=os.getpid(),
            start_time=process_start_time(),
            started_ms=time.time_ns() // 1_000_000,
            boot_id=secrets.token_hex(8),
            release=settings.release or release.release(),
        )
        if settings.endpoint_file is not None:
            endpoint.write(settings.endpoint_file)
        log.info(
            "finelog serves %s on %s, %d lines, boot %s",
            settings.data_dir, _address(settings.host, port), store.last_seq, endpoint.boot_id,
        )  # fmt: skip
        if shipper is not None:
            shipper.start()
        await stopping.wait()
        log.info("finelog stops: finishing what is under way")
        await healthy.enter_graceful_shutdown()
        service.end_waits()
        await server.stop(STOP_SECONDS)
    finally:
        if shipper is not None:
            await asyncio.to_thread(shipper.close)
        await service.close()
        await stats.close()
    log.info("finelog stopped; everything acknowledged is on disk")


def _reclaim(folder: Path, store: Store, tables: TableStore, remote: ObjectStore | None) -> None:
    """If a controller was told to take over: before anything is stored. Raises IrisError, OSError: it does not start."""
    if not is_asked(folder):
        return
    if remote is not None:
        reclaim(folder, store.marker, (LogOwner(store), TablesOwner(tables, lambda: None)), remote)
    settle(folder)


def _catalog(folder: Path) -> Catalog:
    return Catalog(folder / "tables")


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    address = _address(host, port)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise IrisError(
            f"finelog cannot listen on {address}: the port is in use, or the address is not of this machine",
            hint="give another --port, or 0 for any free one",
        )
    return bound


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
