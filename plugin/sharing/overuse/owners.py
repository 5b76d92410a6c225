"""Whose the processes on GPUs are, with the uids that the control groups name: /proc and the kubelet's folders.

Not here: what becomes of it (`measure`). A process that is not surely the one that was meant has no owner, nor has one
whose control group does not name pod and container, or for which the kubelet has no name of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.sharing.overuse.measure import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.holdings.holders.cgroup import Place
    from plugin.holdings.holders.pod_names import PodNames
    from plugin.holdings.holders.processes import ProcessTable

_MAX_PROCESSES = 4096


class OwnerReader:
    """Used in one thread at a time; may hang on a broken disk."""

    def __init__(self, processes: ProcessTable, names: PodNames) -> None:
        self._processes = processes
        self._names = names

    def read(self, pids: Mapping[int, float]) -> dict[int, Owner] | None:
        """Return owners by process, of those that had their ids at a time (CLOCK_BOOTTIME) and have them still.

        None where process ids are not the machine's own, so that none of them means anything.
        """
        if not self._processes.has_the_machines_ids():
            return None
        places: dict[int, Place] = {}
        for pid, before_s in list(pids.items())[:_MAX_PROCESSES]:
            place = self._processes.place(pid, before_s)
            if place is not None and place.pod_uid and place.container_id:
                places[pid] = place
        names = self._names.look_up(places.values())
        return {
            pid: Owner(names[place], place.pod_uid or "", place.container_id or "")
            for pid, place in places.items()
            if place in names and names[place].container
        }
