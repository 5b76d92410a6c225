"""The driver of other devices than GPUs: publishes what files describe, and gives it to claims.

As with GPUs, what a pod has by the device plugin is withheld until it is free, and the other way round. Nothing has to
be made or set for a claim, so all of it is the service's, the store's and the slices' work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClaimError
from plugin.devices.other.parse import MAX_UNITS
from plugin.dra.claims import read_claim
from plugin.dra.driver import ClaimDriver, DriverContext
from plugin.dra.others.devices import (
    FILE,
    Held,
    find_others,
    names_of,
    noted,
    refuse_configs,
    render_others,
    without_held,
)
from plugin.dra.service import answer
from plugin.kubelet.cdi_names import OTHERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.other.offered import OtherPlan
    from plugin.dra import messages as api
    from plugin.dra.claims import ClaimName
    from plugin.dra.devices import DraDevice
    from plugin.dra.others.devices import OtherDevice
    from plugin.dra.store import PreparedDevice, Record
    from plugin.kubelet.pod_resources.holdings import HoldingsView

FOLDER = "other-claims"  # of the state folder
_TOPIC_CDI = "cdi file of other devices"


class OtherDriver(ClaimDriver):
    """A driver of what files describe. `view` knows which pods have what by device plugins."""

    driver, folder, cdi_file = OTHERS, FOLDER, FILE

    def __init__(self, context: DriverContext, view: HoldingsView) -> None:
        super().__init__(
            context,
            named=self._named,
            noted=lambda record: noted(record, self._found, self.store.records()),
        )
        self._view = view
        self._plan: OtherPlan | None = None
        self._found: Mapping[str, OtherDevice] = {}
        self.is_waiting = False  # for pods that have any of what is published, by the device plugin, or another claim

    def show(self, plan: OtherPlan, *, is_offered: bool) -> None:
        """Publish what there is. `is_offered` False: nothing, as the device plugin offers it; claims are served on."""
        if plan is not self._plan:
            self._plan, self._found = plan, find_others(plan)
        taken = {name: self._taken(name) for name in self._found}
        has_shares = self._slices.features.shares
        self.devices = {name: each.shown(taken[name] or 0, has_shares=has_shares) for name, each in self._found.items()}
        self._health.show(self._where.node, tuple(self.devices.values()))
        if self._found:
            try:
                self.prepare()
            except ClaimError as error:
                self._log.standing(_TOPIC_CDI, error.message, **({"hint": error.hint} if error.hint else {}))
                if is_offered:
                    return  # no claim could be prepared: the slices stay as they are
        if is_offered and None in taken.values():
            return  # the kubelet has not said yet who has what: the slices stay as they are
        withheld = {each.uuid for each in self.devices.values() if self.holder(each)}
        withheld |= {each.uuid for _, each in self.store.held() if self._is_of_another_kind(each)}
        self.is_waiting = is_offered and (bool(withheld) or any(taken.values()))
        shown = tuple(each for each in self.devices.values() if each.uuid not in withheld) if is_offered else ()
        if shown and not self.store.note_published(self._where):
            return
        self._slices.publish(shown)

    def _taken(self, name: str) -> int | None:
        """Return how many of a device's units pods have by the device plugin, None until the kubelet has said so."""
        found = self._found[name]
        ids = self._view.units_of(found.seen.uuid)
        if ids is None:
            return None
        return found.units if found.seen.uuid in ids else len(ids)  # whoever has it whole has all of it

    def _is_of_another_kind(self, prepared: PreparedDevice) -> bool:
        """Whether a claim has a device whole that is shared by now, or a share of one that is not."""
        device = self.devices.get(prepared.device)
        return device is not None and (device.share is None) == bool(prepared.share_id)

    def left(self, plan: OtherPlan) -> OtherPlan:
        """Return what is left to the device plugin: it gives no pod what a claim has."""
        held: dict[str, Held] = {}
        for claim, each in self.store.held():
            is_known = self._view.units_of(each.uuid) is not None  # which of the units pods have
            units = each.shares if each.share_id and is_known else MAX_UNITS
            held[each.uuid] = Held(str(claim), units + (held[each.uuid].units if each.uuid in held else 0))
        unknown = f"{self.store.unknown} cannot be read: a claim may have it" if self.store.unknown else ""
        pods = {unit for uuid in held for unit in self._view.units_of(uuid) or ()}
        return without_held(plan, held, pods, unknown)

    def prepare(self) -> None:
        """Have the CDI file say what there is, and be there; raises ClaimError."""
        records = self.store.records()
        if not self._found and any(each.edits is None for record in records for each in record.devices):
            if self._cdi.is_there:  # of before: it still says what claims have
                return
            raise ClaimError("the devices of this node are not known yet", "it is asked for again")
        content = render_others(self._found, records)
        if content is None:
            self._cdi.remove()
        else:
            self._cdi.write(content)
        self._log.standing(_TOPIC_CDI)

    def _named(self, record: Record) -> tuple[api.Device, ...]:
        names = names_of(noted(record, self._found, self.store.records()))
        return tuple(map(answer, record.devices, names))

    def holder(self, device: DraDevice) -> str:
        """Return who has any of what claims are to have of a device by a device plugin; "" where no pod has."""
        units = self._found[device.name].units
        left = units - (self._taken(device.name) or 0)
        is_free = left >= (units if device.share is None else device.share.parts)
        return "" if is_free else self._view.holder_of((device.uuid,)) or ""

    async def look_again(self) -> None:
        """Ask the kubelet who has devices by its device plugins; raises KubeletError."""
        await self._view.look_again()

    def _read_claim(self, claim: ClaimName) -> dict[str, Any]:
        document = self._api.ask(read_claim(claim))
        refuse_configs(document, claim)
        return document
