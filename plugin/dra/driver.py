"""What each driver of claims does alike, whatever its devices are: from its start until it has nothing more to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from plugin.dra.cluster_api import ClusterApi
from plugin.dra.devices import DRIVER
from plugin.dra.keeper import SliceKeeper
from plugin.dra.registration import Registration
from plugin.dra.service import ClaimService, Health
from plugin.dra.store import FOLDER, CdiFile, ClaimStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.dra import messages as api
    from plugin.dra.claims import ClaimName
    from plugin.dra.devices import DraDevice
    from plugin.dra.store import Published, Record
    from plugin.settings.node_config import NodeConfig


class DriverContext(NamedTuple):
    """What a driver of claims gets of the daemon.

    `where` is through which API, and as which Node, it publishes. `prepared` hears of each new claim, `changed` that
    claims have come or gone, `registered` that a kubelet took the driver, `report` what it waits for.
    """

    config: NodeConfig
    where: Published
    logger: Logger
    environment: Mapping[str, str]
    registered: Callable[[], None]
    prepared: Callable[[Record], None] = lambda _record: None
    changed: Callable[[], None] = lambda: None
    report: Callable[[str], None] = lambda _waits: None


class ClaimDriver:
    """Of one configuration. Made and used in the event loop. `named`, `noted`: see `ClaimService`."""

    driver: ClassVar[str] = DRIVER  # its name for the kubelet and in slices
    folder: ClassVar[str] = FOLDER  # of the state folder: has its claims
    cdi_file: ClassVar[str]  # what engines read

    def __init__(
        self,
        context: DriverContext,
        *,
        named: Callable[[Record], tuple[api.Device, ...]] | None = None,
        noted: Callable[[Record], Record] = lambda record: record,
    ) -> None:
        config, where, logger, environment = context[:4]
        driver = self.driver
        self._config = config
        self._where = where
        self._log = logger
        self._on_registered = context.registered
        self.prepared = context.prepared
        self.changed = context.changed
        self._cdi = CdiFile(config.cdi_folder / self.cdi_file)
        self._api = ClusterApi(where.api, environment)
        self._health = Health()
        self.store = ClaimStore(config.state_folder, logger, self.folder)
        self.store.load()
        self.devices: dict[str, DraDevice] = {}
        self.service = ClaimService(
            self, self.store, self._health, self._read_claim, logger, driver=driver, named=named, noted=noted
        )
        self._registration = Registration(
            config.kubelet_root, self.service.methods(), self._registered, context.report, logger, driver=driver
        )
        self._slices = SliceKeeper(
            where.node, where.api, environment, lambda: self._registration.is_registered, logger, driver=driver
        )
        self._task = asyncio.ensure_future(self._registration.run())

    def problem(self, *, is_offered: bool) -> str:
        """Return why claims cannot be given what was shown last, or still can where nothing is offered; "" when so."""
        if is_offered and not self._registration.is_registered:
            return f"the kubelet has not taken the driver {self.driver}"
        why = self._slices.problem
        return why if self.driver == DRIVER or not why else f"{self.driver}: {why}"

    def prepare(self) -> None:
        """Have the CDI file say what there is, and be there; raises ClaimError."""
        raise NotImplementedError  # each driver overrides it; no abstract class, as hooks below do nothing

    async def ready(self, record: Record) -> Record:
        """Return it: nothing is made for a claim."""
        return record

    async def shared(self, record: Record) -> None:
        """Wait for nothing: devices are shared by being published so."""

    def holder(self, device: DraDevice) -> str:
        """Return "": no device plugin gives these devices."""
        return ""

    async def look_again(self) -> None:
        """Do nothing: no device plugin gives these devices."""

    def _registered(self) -> None:
        self._slices.check()
        self._on_registered()

    def _read_claim(self, claim: ClaimName) -> dict[str, Any]:
        """Return what the API says of a claim; called in a thread; raises ClaimError, ClusterError."""
        raise NotImplementedError  # each driver overrides it, as it does `prepare`

    @property
    def is_done(self) -> bool:
        """Whether no claim is prepared, and the API has no slice any more: for a driver that offers nothing.

        A pod whose claim was refused ends only when the kubelet has given that back to a driver.
        """
        return not (self.store or self.service.pending) and self._slices.is_settled

    def remove(self) -> None:
        """Take back what engines and the next start would find: no claim is prepared any more."""
        self._cdi.remove()
        self.store.remove_folder()

    async def close(self) -> None:
        """End. Claims stay prepared, and slices stay published."""
        self._registration.stop()
        self._slices.close()
        await asyncio.wait({self._task})
        self._api.close()
