"""An operation as a generator of what it needs next, so that one description serves threads and event loops.

A generator yields `Ask` (gets the answer, or the failure is raised where it stands) and `Pause`, yields anything else as a result on the way,
and returns its outcome. Must never know who runs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from iris_core.contracts import IrisError, R

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.contracts import AsyncClient, Client

T = TypeVar("T")
Operation = Generator[Any, Any, T]


@dataclass(frozen=True, slots=True)
class Ask(Generic[R]):
    """One call of an RPC."""

    method: str
    request: Message
    response: type[R]
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


def run(client: Client, operation: Operation[T]) -> T:
    """Runs it to its end; results on the way are dropped. Raises what it raises."""
    results = iterate(client, operation)
    while True:
        try:
            next(results)
        except StopIteration as end:
            outcome: T = end.value
            return outcome


def iterate(client: Client, operation: Operation[T]) -> Generator[Any, None, T]:
    """Its results on the way, as they come."""
    answer: Any = None
    failure: IrisError | None = None
    while True:
        try:
            step = operation.throw(failure) if failure is not None else operation.send(answer)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        answer, failure = None, None
        if isinstance(step, Ask):
            try:
                answer = client.call(step.method, step.request, step.response, timeout_s=step.timeout_s)
            except IrisError as error:
                failure = error
        elif isinstance(step, Pause):
            time.sleep(step.seconds)
        else:
            yield step


async def run_async(client: AsyncClient, operation: Operation[T]) -> T:
    """As `run`, on the running event loop."""
    outcome: list[T] = []
    async for _ in iterate_async(client, operation, outcome):
        pass
    return outcome[0]


async def iterate_async(
    client: AsyncClient, operation: Operation[T], outcome: list[T] | None = None
) -> AsyncIterator[Any]:
    """As `iterate`; the outcome is put into `outcome`."""
    answer: Any = None
    failure: IrisError | None = None
    while True:
        try:
            step = operation.throw(failure) if failure is not None else operation.send(answer)
        except StopIteration as end:
            if outcome is not None:
                outcome.append(end.value)
            return
        answer, failure = None, None
        if isinstance(step, Ask):
            try:
                answer = await client.call(step.method, step.request, step.response, timeout_s=step.timeout_s)
            except IrisError as error:
                failure = error
        elif isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        else:
            yield step
