"""The speedscope file format (https://www.speedscope.app/file-format-schema.json), as far as profilers write it.

Sampled profiles alone: py-spy writes no others. Pure.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from iris_core.analysis.stacks import Frame, Stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def parse(data: bytes) -> Stacks:
    """The stacks and how many seconds (or samples) each was seen. Raises ValueError: it is no such file."""
    document = _document(data)
    try:
        frames = [Frame(str(frame["name"]), str(frame.get("file") or "")) for frame in document["shared"]["frames"]]
        found: Stacks = {}
        for profile in document["profiles"]:
            if profile.get("type") != "sampled":
                raise ValueError(f"it has a profile of the type {profile.get('type')!r}, only sampled ones are read")
            for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
                stack = tuple(frames[index] for index in sample)
                if stack:
                    found[stack] = found.get(stack, 0.0) + float(weight)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not in the speedscope format ({type(error).__name__}: {error})") from None
    return found


def join(documents: Sequence[bytes]) -> bytes:
    """One file with the profiles of all. Raises ValueError."""
    frames: list[Any] = []
    profiles: list[Any] = []
    for data in documents:
        document = _document(data)
        first = len(frames)
        frames += document["shared"]["frames"]
        for profile in document["profiles"]:
            profile["samples"] = [[first + index for index in sample] for sample in profile["samples"]]
            profiles.append(profile)
    whole = {"$schema": SCHEMA, "shared": {"frames": frames}, "profiles": profiles, "activeProfileIndex": None}
    return json.dumps(whole, separators=(",", ":")).encode()


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(document, dict) or "shared" not in document or "profiles" not in document:
        raise ValueError("it is not in the speedscope format")
    return document
