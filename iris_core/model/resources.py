"""What a task asks for and what a worker has: CPU, memory, disk, accelerators.

Units are fixed: millicores, bytes, bytes, whole devices. One type serves
requests, totals and what is left; ``capacity.fits(request)`` is the only
comparison. Differences may be negative (a worker that shrank is over-committed
for a while); a request may not, which ``check_request`` says.

Texts of sizes, CPUs and durations are parsed in ``quantities`` and TPU types in ``tpu``;
both are re-exported here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.quantities import (
    MAX_INT64,
    format_age,
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_size,
)
from iris_core.model.tpu import TpuSpec, parse_tpu_spec, parse_tpu_specs

__all__ = [
    "GPU_VARIANTS",
    "NO_RESOURCES",
    "Device",
    "DeviceKind",
    "Resources",
    "TpuSpec",
    "format_age",
    "format_cpu",
    "format_duration",
    "format_size",
    "parse_cpu",
    "parse_duration",
    "parse_gpu_spec",
    "parse_size",
    "parse_tpu_spec",
    "parse_tpu_specs",
    "tpu_device",
]

DeviceKind = Literal["gpu", "tpu"]

MAX_DEVICES: Final = 4096
"""Most devices one task may ask for."""

GPU_VARIANTS: Final = (
    "A100",
    "A10G",
    "B100",
    "B200",
    "GB200",
    "H100",
    "H200",
    "L4",
    "L40",
    "L40S",
    "RTX4090",
    "T4",
    "V100",
)
"""GPU variants that may be asked for by name (cli-auth-logs §1.2)."""


@dataclass(frozen=True, slots=True)
class Device:
    """``count`` accelerators of one variant, on one worker.

    ``variant`` is kept in lower case; ``""`` in a request means any. For a TPU it is the slice type
    (``v5litepod-16``) and ``count`` the chips per worker.
    """

    kind: DeviceKind
    variant: str
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "variant", self.variant.lower())

    def is_like(self, other: Device) -> bool:
        """Whether both can be counted together: same kind, and variants that do not differ."""
        return self.kind == other.kind and (not self.variant or not other.variant or self.variant == other.variant)

    def __str__(self) -> str:
        if self.kind == "tpu":
            return self.variant or f"tpu x{self.count}"
        return f"{self.variant.upper()}x{self.count}" if self.variant else f"gpu x{self.count}"


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of everything a task can use on one worker."""

    cpu_millicores: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    device: Device | None = None

    def __add__(self, other: Resources) -> Resources:
        """Sum. Raises ``ModelError`` for devices that cannot be counted together."""
        return self._combine(other, 1)

    def __sub__(self, other: Resources) -> Resources:
        """Difference, which may be negative. Raises ``ModelError`` as ``+`` does."""
        return self._combine(other, -1)

    def _combine(self, other: Resources, sign: int) -> Resources:
        return Resources(
            self.cpu_millicores + sign * other.cpu_millicores,
            self.memory_bytes + sign * other.memory_bytes,
            self.disk_bytes + sign * other.disk_bytes,
            _combine_devices(self.device, other.device, sign),
        )

    def fits(self, request: Resources) -> bool:
        """Whether ``request`` fits into this capacity, disk included.

        A request without a device fits anywhere; one for zero devices too.
        """
        if (
            request.cpu_millicores > self.cpu_millicores
            or request.memory_bytes > self.memory_bytes
            or request.disk_bytes > self.disk_bytes
        ):
            return False
        wanted = request.device
        if wanted is None or wanted.count <= 0:
            return True
        have = self.device
        return have is not None and have.is_like(wanted) and wanted.count <= have.count

    @property
    def gpu_count(self) -> int:
        """GPUs, 0 without."""
        return self.device.count if self.device is not None and self.device.kind == "gpu" else 0

    @property
    def tpu_count(self) -> int:
        """TPU chips, 0 without."""
        return self.device.count if self.device is not None and self.device.kind == "tpu" else 0

    def check_request(self) -> None:
        """Check that a task may ask for this.

        Raises:
            ModelError: a negative or oversized amount; ``field`` names it.
        """
        for field, amount, limit in (
            ("cpu_millicores", self.cpu_millicores, 2**31 - 1),
            ("memory_bytes", self.memory_bytes, MAX_INT64),
            ("disk_bytes", self.disk_bytes, MAX_INT64),
        ):
            if not 0 <= amount <= limit:
                raise ModelError(f"{field} {amount} is outside 0..{limit}", field=field)
        if self.device is not None and not 1 <= self.device.count <= MAX_DEVICES:
            raise ModelError(
                f"{self.device.count} {self.device.kind}s is outside 1..{MAX_DEVICES}",
                field="device",
            )


NO_RESOURCES: Final = Resources()


def parse_gpu_spec(text: str) -> Device:
    """Parse ``H100x8``, ``H100`` (one) or ``8`` (of any variant); case does not matter.

    Raises:
        ModelError: not of these forms, an unknown variant (the hint has the
            closest), or a count outside 1..``MAX_DEVICES``.
    """
    spec = text.strip().upper()
    if spec.isascii() and spec.isdigit():
        return Device("gpu", "", _device_count(spec, text))
    if spec in GPU_VARIANTS:
        return Device("gpu", spec, 1)
    match = re.fullmatch(r"([A-Z0-9]{1,32})X([0-9]{1,9})", spec)
    if match is not None and match[1] in GPU_VARIANTS:
        return Device("gpu", match[1], _device_count(match[2], text))
    hint = did_you_mean(spec, GPU_VARIANTS)
    if match is not None and not hint:
        hint = did_you_mean(match[1], GPU_VARIANTS)
    raise ModelError(
        f"{shown(text)} is not a GPU spec",
        field="gpu",
        hint=hint or f"write VARIANTxN, VARIANT or N; variants are {', '.join(GPU_VARIANTS)}",
    )


def tpu_device(spec: TpuSpec) -> Device:
    """What one task on one VM of the slice ``spec`` uses: all its chips."""
    return Device("tpu", spec.name, spec.chips_per_vm)


def _device_count(digits: str, text: str) -> int:
    count = int(digits) if len(digits) < 10 else MAX_DEVICES + 1
    if not 1 <= count <= MAX_DEVICES:
        raise ModelError(f"{shown(text)} asks for a number of GPUs outside 1..{MAX_DEVICES}", field="gpu")
    return count


def _combine_devices(left: Device | None, right: Device | None, sign: int) -> Device | None:
    if right is None:
        return left
    if left is None:
        return Device(right.kind, right.variant, sign * right.count)
    if not left.is_like(right):
        raise ModelError(f"cannot count {left} and {right} together", field="device")
    return Device(left.kind, left.variant or right.variant, left.count + sign * right.count)
