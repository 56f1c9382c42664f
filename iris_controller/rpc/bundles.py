"""Bundles: workspaces as content-addressed zips, stored once and streamed to the workers that need them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

from iris_controller.rpc.call import Call
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.errors import RpcError, exhausted, invalid, not_found, unavailable
from iris_controller.rpc.launch import SHA256
from iris_core.contracts import IrisError, ObjectMissing, ObjectStore
from iris_core.wire.gen.iris.v1 import controller_pb2, worker_pb2

MAX_BUNDLE_BYTES = 25 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


class Bundles:
    """`store` is rooted at the bundles folder; names are `<sha256>.zip` (DESIGN §5.19). `may_write` raises RpcError when this
    controller is not to write there."""

    def __init__(self, store: ObjectStore, may_write: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._may_write = may_write
        self._known: dict[str, int] = {}
        # Found to be damaged when they were read: as good as not stored, until they are sent again.
        self._damaged: set[str] = set()

    def register(self, router: Router) -> None:
        router.add("ControllerService/StatBundle", self.stat_bundle)
        router.add("ControllerService/PutBundle", self.put_bundle)
        router.add("WorkerService/GetBundle", self.get_bundle)

    def size(self, bundle_id: str) -> int | None:
        """Bytes of a stored bundle, None when it is not here."""
        if bundle_id in self._damaged:
            return None
        known = self._known.get(bundle_id)
        if known is None:
            info = self._store.stat(f"{bundle_id}.zip")
            if info is None:
                return None
            known = self._known[bundle_id] = info.size_bytes
        return known

    async def stored(self, bundle_id: str) -> bool:
        """Whether the bundle is here. Asks the store off the loop, once for each that is. Raises RpcError."""
        return bundle_id in self._known or await self._stat(bundle_id) is not None

    async def still_stored(self, bundle_id: str) -> bool:
        """The same, asked of the store anew: it may be cleaned up by others."""
        self._known.pop(bundle_id, None)
        return await self.stored(bundle_id)

    async def _stat(self, bundle_id: str) -> int | None:
        try:
            return await asyncio.to_thread(self.size, bundle_id)
        except (OSError, IrisError) as error:
            raise unavailable(f"the store of bundles does not answer: {error}", code="bundle_store") from error

    async def stat_bundle(
        self, request: controller_pb2.StatBundleRequest, call: Call
    ) -> controller_pb2.StatBundleResponse:
        check_id(request.bundle_id)
        size = await self._stat(request.bundle_id)
        return controller_pb2.StatBundleResponse(exists=size is not None, size_bytes=size or 0)

    async def put_bundle(
        self, request: controller_pb2.PutBundleRequest, call: Call
    ) -> controller_pb2.PutBundleResponse:
        check_id(request.bundle_id)
        if len(request.data) > MAX_BUNDLE_BYTES:
            raise invalid("data", f"the bundle has {len(request.data)} bytes, at most {MAX_BUNDLE_BYTES} are allowed")
        self._may_write()
        call.audit(entity=request.bundle_id, bytes=len(request.data))
        existed = await asyncio.to_thread(self._put, request.bundle_id, request.data)
        return controller_pb2.PutBundleResponse(existed=existed)

    async def keep(self, blob_id: str, data: bytes) -> None:
        """Stores what has that sha256, unless it is here. Raises RpcError."""
        await asyncio.to_thread(self._put, blob_id, data)

    def _put(self, bundle_id: str, data: bytes) -> bool:
        if hashlib.sha256(data).hexdigest() != bundle_id:
            raise invalid("bundle_id", "bundle_id is not the sha256 of the data", code="bundle_mismatch")
        if self.size(bundle_id) is not None:
            return True
        try:
            self._store.put(f"{bundle_id}.zip", data)
        except (OSError, IrisError) as error:
            raise exhausted(
                f"the bundle cannot be stored: {error}", code="bundle_store", retry_after_ms=5_000
            ) from error
        self._known[bundle_id] = len(data)
        self._damaged.discard(bundle_id)
        return False

    def _read(self, bundle_id: str) -> bytes:
        """The bytes whose sha256 that is. Raises ObjectMissing, RpcError: they are damaged."""
        data = self._store.get(f"{bundle_id}.zip")
        if hashlib.sha256(data).hexdigest() != bundle_id:
            self._damaged.add(bundle_id)
            self._known.pop(bundle_id, None)
            raise not_found(bundle_id, f"bundle {bundle_id} is damaged where it is stored")
        return data

    async def get_bundle(
        self, request: worker_pb2.GetBundleRequest, call: Call
    ) -> AsyncIterator[worker_pb2.GetBundleResponse]:
        check_id(request.bundle_id)
        try:
            data = await asyncio.to_thread(self._read, request.bundle_id)
        except ObjectMissing:
            # Whoever submits it again is asked for it again.
            self._known.pop(request.bundle_id, None)
            raise not_found(request.bundle_id, f"bundle {request.bundle_id} is not stored here") from None
        except (OSError, IrisError) as error:
            raise RpcError("UNAVAILABLE", f"the bundle cannot be read: {error}", code="bundle_store") from error
        for start in range(0, len(data), CHUNK_BYTES):
            yield worker_pb2.GetBundleResponse(chunk=data[start : start + CHUNK_BYTES], total_bytes=len(data))


def check_id(bundle_id: str) -> None:
    if not SHA256.fullmatch(bundle_id):
        raise invalid("bundle_id", "bundle_id is not a sha256 in hex")
