"""What serves under a name right now: registrations of tasks whose lease is not over, and the cluster's own services.

Must never dial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.http.proxy_target import Place
from iris_controller.state.endpoints import EndpointAccess, path_name
from iris_core.config.endpoints import SystemEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_controller.leases import Leases
    from iris_controller.loop import ControllerLoop
    from iris_controller.state.endpoints import Endpoint

LOG_SERVER: Final = "/system/log-server"


class Places:
    """See the module. `log_server` is finelog's `host:port`, "" while it does not serve."""

    def __init__(
        self,
        loop: ControllerLoop,
        leases: Leases,
        configured: Mapping[str, SystemEndpoint],
        log_server: Callable[[], str],
    ) -> None:
        self._endpoints = loop.model.endpoints
        self._leases = leases
        self._configured = configured
        self._log_server = log_server

    def system(self) -> dict[str, SystemEndpoint]:
        """The cluster's own, by name; one in the cluster file stands before the controller's."""
        address = self._log_server()
        own = {LOG_SERVER: SystemEndpoint(f"http://{address}")} if address else {}
        return own | dict(self._configured)

    def alive(self, name: str) -> list[Endpoint]:
        """The registrations of a name whose lease is not over, the latest first."""
        rows = [self._endpoints.by_id[endpoint_id] for endpoint_id in self._endpoints.by_name.get(name, ())]
        return sorted(
            (row for row in rows if not self._leases.expired(row)),
            key=lambda row: (-row.registered_at_ms, row.endpoint_id),
        )

    def at(self, segment: str) -> dict[str, list[Place]]:
        """What a segment of a proxy path may mean, by name."""
        found = {
            name: [Place(name, row.address, row.access) for row in self.alive(name)]
            for name in self._endpoints.names_at(segment)
        }
        for name, system in self.system().items():
            if segment in (name, path_name(name)):
                found[name] = [Place(name, system.uri, EndpointAccess.PRIVATE)]
        return found
