"""Image registries that speak the OCI distribution API (`contracts.Registry`), and the builder that pushes to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from iris_core.contracts import Registry


def open_registry() -> Registry:
    """A client for every registry, with the credentials that `docker login` has kept. Nothing is asked yet. Raises UsageFailed: the
    package that it needs is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("httpx") is None:
        raise UsageFailed(
            "image registries need the package httpx, which is not installed", hint="pip install 'iris-ops[controller]'"
        )
    from providers.registry.client import RegistryClient

    return RegistryClient()
