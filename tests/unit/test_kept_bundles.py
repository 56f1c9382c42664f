"""A bundle that the store lost or damaged is not there: no worker is given it, and it is asked for again when it is submitted again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

import pytest

from iris_controller.rpc.bundles import Bundles
from iris_controller.rpc.errors import RpcError
from iris_core.wire.gen.iris.v1 import controller_pb2, worker_pb2
from providers.objects import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.rpc.call import Call

DATA = b"a workspace"
ID = hashlib.sha256(DATA).hexdigest()
NOBODY = cast("Call", None)
"""Neither of these calls looks at who makes it."""


async def there(bundles: Bundles) -> bool:
    return (await bundles.stat_bundle(controller_pb2.StatBundleRequest(bundle_id=ID), NOBODY)).exists


async def fetched(bundles: Bundles) -> bytes:
    answers = bundles.get_bundle(worker_pb2.GetBundleRequest(bundle_id=ID), NOBODY)
    return b"".join([answer.chunk async for answer in answers])


@pytest.mark.asyncio
@pytest.mark.parametrize(("left", "said"), [(None, "is not stored here"), (b"a work", "is damaged where it is stored")])
async def test_what_the_store_lost_or_damaged_is_to_be_sent_again(
    tmp_path: Path, left: bytes | None, said: str
) -> None:
    bundles = Bundles(open_store(f"file://{tmp_path}"))
    await bundles.keep(ID, DATA)
    assert await there(bundles) and await fetched(bundles) == DATA
    file = tmp_path / f"{ID}.zip"
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    with pytest.raises(RpcError, match=said) as refused:
        await fetched(bundles)
    assert refused.value.status == "NOT_FOUND"
    assert not await there(bundles) and not await bundles.stored(ID)
    await bundles.keep(ID, DATA)
    assert await there(bundles) and await fetched(bundles) == DATA
