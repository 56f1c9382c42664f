"""An object store in a Google Cloud Storage bucket (`contracts.ObjectStore`), for `gs://bucket/prefix`.

Compare-and-set is the bucket's own: a write names the generation that it replaces, 0 for none. Large objects travel in
pieces, so that memory stays bounded, and each download is pinned to one generation. Every request has a time limit and
every failure is one line: a store that does not answer is a normal state. `STORAGE_EMULATOR_HOST` is honoured, without
credentials, as the library itself does. Must never make a bucket.
"""

from __future__ import annotations

import contextlib
import http.client
import os
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import GenerationMismatch, IrisError, ObjectInfo, ObjectMissing
from iris_core.model.text import one_line
from providers.objects.names import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from google.cloud.storage import Blob, Bucket

PIECE_BYTES: Final = 8 << 20
"""Of one request of a large upload or download; a multiple of 256 KiB, as the protocol wants."""
TIMEOUT_S: Final = (10.0, 60.0)
"""To connect, and without a byte."""
RETRY_S: Final = 15.0


class GcsStore:
    """Objects below `prefix` of a bucket. The connection is made with the first request; safe for several threads."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._name = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._opened: Bucket | None = None

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        """Durable when it returns. `if_generation=""` = only if absent. Raises GenerationMismatch, IrisError."""
        import io

        return self._upload(name, io.BytesIO(data), len(data), if_generation)

    def put_file(self, name: str, path: Path, *, if_generation: str | None = None) -> ObjectInfo:
        """As `put`, with the contents of a file, piece by piece. Raises GenerationMismatch, IrisError."""
        try:
            with open(path, "rb") as file:
                info = self._upload(name, file, os.fstat(file.fileno()).st_size, if_generation)
            path.unlink()
        except OSError as error:
            raise IrisError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
        return info

    def get(self, name: str) -> bytes:
        """The object. Raises ObjectMissing, IrisError."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The object in pieces, all of one generation. Raises ObjectMissing, IrisError."""
        info = self.stat(name)
        if info is None:
            raise ObjectMissing(f"there is no {name} in {self.url}")
        for start in range(0, info.size_bytes, PIECE_BYTES):
            end = min(start + PIECE_BYTES, info.size_bytes) - 1
            with self._failures("read", name):
                piece = self._blob(name).download_as_bytes(
                    start=start,
                    end=end,
                    if_generation_match=int(info.generation),
                    # The store knows the checksum of the whole object only.
                    checksum=None,
                    raw_download=True,
                    timeout=TIMEOUT_S,
                    retry=_retry(),
                )
            if len(piece) != end + 1 - start:
                raise IrisError(f"cannot read {name} in {self.url}: the store sent {len(piece)} bytes too few or many")
            yield piece

    def stat(self, name: str) -> ObjectInfo | None:
        """What is known of the object, None if there is none. Raises IrisError."""
        blob = self._blob(name)
        try:
            with self._failures("read", name):
                blob.reload(timeout=TIMEOUT_S, retry=_retry())
        except ObjectMissing:
            return None
        return self._info(blob)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose name starts with `prefix`, by name. Raises IrisError."""
        with self._failures("list", prefix or "/"):
            found = self._bucket().list_blobs(prefix=self._prefix + prefix, timeout=TIMEOUT_S, retry=_retry())
            for blob in found:
                # Folders that a console made are objects of no bytes that end in a slash.
                if not blob.name.endswith("/"):
                    yield self._info(blob)

    def delete(self, name: str) -> None:
        """Deleting what is absent is no error. Raises IrisError."""
        with contextlib.suppress(ObjectMissing), self._failures("delete", name):
            self._blob(name).delete(timeout=TIMEOUT_S, retry=_retry())

    def _upload(self, name: str, file: Any, size: int, if_generation: str | None) -> ObjectInfo:
        blob = self._blob(name)
        blob.chunk_size = PIECE_BYTES
        with self._failures("write", name):
            blob.upload_from_file(
                file,
                size=size,
                content_type="application/octet-stream",
                if_generation_match=None if if_generation is None else _number(if_generation),
                timeout=TIMEOUT_S,
                retry=_retry(),
            )
        return self._info(blob)

    def _info(self, blob: Blob) -> ObjectInfo:
        return ObjectInfo(blob.name[len(self._prefix) :], int(blob.size or 0), str(blob.generation))

    def _blob(self, name: str) -> Blob:
        return self._bucket().blob("".join((self._prefix, "/".join(parts_of(name)))))

    def _bucket(self) -> Bucket:
        if self._opened is None:
            import google.cloud.storage

            # For its traces the library asks for the bucket itself, from a thread of its own that outlives the store and
            # needs a permission that nothing here needs.
            os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
            with self._failures("open", self._name):
                self._opened = google.cloud.storage.Client().bucket(self._name)
        return self._opened

    @contextlib.contextmanager
    def _failures(self, verb: str, name: str) -> Iterator[None]:
        """Whatever the library raises, as one of ours."""
        import google.api_core.exceptions as api
        import google.auth.exceptions as auth
        import requests
        from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

        place = f"{name} in {self.url}"
        try:
            yield
        except (api.NotFound, api.PreconditionFailed, api.GoogleAPICallError, InvalidResponse) as error:
            code = error.response.status_code if isinstance(error, InvalidResponse) else error.code
            if code == http.client.NOT_FOUND:
                raise ObjectMissing(f"there is no {place}") from error
            if code == http.client.PRECONDITION_FAILED:
                raise GenerationMismatch(f"{place} was written by somebody else") from error
            reason = error.message if isinstance(error, api.GoogleAPICallError) else f"the store answered {code}"
            raise IrisError(f"cannot {verb} {place}: {_line(reason)}") from error
        except auth.DefaultCredentialsError as error:
            raise IrisError(
                f"cannot {verb} {place}: no Google credentials were found",
                hint="run: gcloud auth application-default login",
            ) from error
        except (api.RetryError, auth.GoogleAuthError, requests.RequestException, DataCorruption, OSError) as error:
            cause = error.cause if isinstance(error, api.RetryError) else error
            raise IrisError(f"cannot {verb} {place}: {_line(str(cause))}") from error


def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_timeout(RETRY_S)


def _number(generation: str) -> int:
    return int(generation) if generation else 0


def _line(text: str) -> str:
    return one_line(text)[:400] or "no reason was given"
