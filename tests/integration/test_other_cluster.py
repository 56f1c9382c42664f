"""Two cluster files that name one address: whoever is meant by the one is never served by the controller of the other."""

from __future__ import annotations

import asyncio
import functools
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.connect import open_async_client, open_client, resolve
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.integration.port_env import run, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_core.connect import Target, Transport

READ = ("ControllerService/ListJobs", pb.ListJobsRequest(), pb.ListJobsResponse)
CHANGE = ("ControllerService/LaunchJob", pb.LaunchJobRequest(), pb.LaunchJobResponse)
FOLLOW = ("ControllerService/Watch", pb.WatchRequest(), pb.WatchResponse)


def named(folder: Path, name: str, port: int) -> Target:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"name: {name}\nplatform: {{local: }}\ncontroller: {{local: {{port: {port}}}}}\nworker_provider: {{}}\n"
    )
    return resolve(config=str(path), environ={})


@contextmanager
def attempts(target: Target, transport: Transport) -> Iterator[list[Callable[[], object]]]:
    with open_client(target, transport=transport) as client:
        yield [
            functools.partial(client.call, *READ),
            functools.partial(client.call, *CHANGE),
            lambda: list(client.stream(*FOLLOW)),
        ]


@pytest.mark.parametrize("transport", ["grpc", "http", "auto"])
def test_the_controller_of_another_cluster_refuses_reads_changes_and_streams(
    tmp_path: Path, transport: Transport
) -> None:
    asked: list[str] = []

    async def note(request: Any, _: object) -> Any:
        asked.append(type(request).__name__)
        return pb.ListJobsResponse() if isinstance(request, pb.ListJobsRequest) else pb.LaunchJobResponse()

    async def main() -> None:
        handlers = {READ[0]: note, CHANGE[0]: note}
        async with serving(handlers, cluster="lab") as env:
            wrong = named(tmp_path, "lab2", env.port.port)
            with attempts(wrong, transport) as refused:
                for attempt in refused:
                    with pytest.raises(RpcFailed) as caught:
                        await asyncio.to_thread(attempt)
                    assert (caught.value.status, caught.value.code) == ("FAILED_PRECONDITION", "other_cluster")
                    assert "is that of cluster lab, not of lab2" in caught.value.message
                    assert "controller.local.port" in caught.value.hint
            assert asked == []
            with attempts(named(tmp_path, "lab", env.port.port), transport) as served:
                for attempt in served[:2]:
                    await asyncio.to_thread(attempt)
            assert asked == ["ListJobsRequest", "LaunchJobRequest"]

    run(main())


def test_so_it_does_the_console_and_serves_who_names_an_address_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(cluster="lab") as env:
            wrong = open_async_client(named(tmp_path, "lab2", env.port.port))
            with pytest.raises(RpcFailed, match="is that of cluster lab, not of lab2"):
                await wrong.call(*READ)
            with pytest.raises(RpcFailed, match="is that of cluster lab, not of lab2"):
                async for _ in wrong.stream(*FOLLOW):
                    pass
            await wrong.close()
            client = open_async_client(resolve(controller_url=env.port.url, cluster="lab2", environ={}))
            await client.call(*READ)
            await client.close()

    run(main())
