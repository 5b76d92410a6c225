"""Keeps a node's labels true while the daemon runs: made after the first list, and again when GPUs or settings change.

Files are read and written in a worker thread, and what makes the labels is imported there: the start waits for none of
it. Not here: the Kubernetes API; whoever speaks to it hears of labels by `on_change` and `on_features`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.base.errors import os_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.inventory import Inventory
    from plugin.devices.observer import Observation
    from plugin.publication.labels.features import Features
    from plugin.settings.model import LabelSettings
    from plugin.settings.node_config import NodeConfig

    ForFeatures = tuple[str, Mapping[str, str], Features | None]

_AFTER_START_S = 1.0
_TOPIC = "labels"


@dataclass(frozen=True)
class _Wanted:
    """What labels are made of. Without `inventory` there has been no driver since the start."""

    inventory: Inventory | None
    config: NodeConfig

    def labelled(self) -> tuple[object, ...]:
        """Return all that labels depend on; health, for example, is not among it."""
        config, seen = self.config, self.inventory
        if seen is None:
            return config.settings.labels, config.offer_rules, config.sys_root
        gpus = tuple((device.gpu, device.memory_bytes) for device in seen.devices)
        facts = seen.driver_version, seen.cuda_version, gpus, seen.topology.facts.gpus
        of_mps = config.mps_root, config.settings.driver_root
        return config.settings.labels, config.offer_rules, config.sys_root, of_mps, facts


class LabelKeeper:
    """`current` is None until the driver was asked, and nothing is known: leave labels alone. {}: there is no driver.

    Made in the event loop, and used there. `on_change` is called there with all labels that the Node itself is to have,
    each time they change, and `on_features` with namespace, labels and features of a NodeFeature object; namespace "":
    there is to be none any more.
    """

    def __init__(self, logger: Logger, now: Callable[[], float] = time.time, after_s: float = _AFTER_START_S) -> None:
        self.current: Mapping[str, str] | None = None
        self.on_change: Callable[[Mapping[str, str]], None] = lambda _: None
        self.on_features: Callable[[str, Mapping[str, str], Features | None], None] = lambda *_: None
        self._log = logger
        self._now = now
        self._after_s = after_s
        self._wanted: _Wanted | None = None
        self._changed = asyncio.Event()
        self._made_at = 0
        self._on_node: Mapping[str, str] | None = None  # what was told last
        self._in_object: ForFeatures = ("", {}, None)
        self._written: Path | None = None
        self._is_closed = False
        self._writing = threading.Lock()  # a thread cannot be cancelled: it must not write behind `close`

    def observed(self, observation: Observation, config: NodeConfig) -> None:
        """Take note of what the driver said. While it does not answer, the GPUs of before are labelled."""
        known = None if self._wanted is None else self._wanted.inventory
        if observation.waiting_for and known is None and observation.has_driver:
            return
        wanted = _Wanted(known if observation.waiting_for else observation.inventory, config)
        is_same = self._wanted is not None and wanted.labelled() == self._wanted.labelled()
        if is_same or self._is_done(config):
            return
        self._wanted = wanted
        self._changed.set()

    def _is_done(self, config: NodeConfig) -> bool:
        """Whether labels are made once, and have been, with these settings."""
        was = self._wanted
        is_once = config.settings.labels.pause_s is None
        return (
            is_once and bool(self.current) and was is not None and was.config.settings.labels == config.settings.labels
        )

    async def follow(self) -> None:
        """Make the labels whenever it is time, until cancelled."""
        await self._changed.wait()
        await asyncio.sleep(self._after_s)
        while True:
            self._changed.clear()
            wanted = self._wanted
            assert wanted is not None  # set before the event
            labels, features = await asyncio.to_thread(self._show, wanted)
            self.current = labels
            self._tell(labels, features, wanted.config.settings.labels)
            try:
                await asyncio.wait_for(self._changed.wait(), wanted.config.settings.labels.pause_s)
            except asyncio.TimeoutError:
                continue

    def _tell(self, labels: Mapping[str, str], features: Features | None, settings: LabelSettings) -> None:
        """Tell what is new, the object first: what is to replace the Node's own labels is there before they go."""
        namespace = settings.feature_namespace
        in_object: ForFeatures = (namespace, labels, features) if namespace else ("", {}, None)
        if in_object != self._in_object:
            self._in_object = in_object
            self.on_features(*in_object)
        on_node = labels if settings.is_on_node else {}
        if on_node != self._on_node:
            self._on_node = on_node
            self.on_change(on_node)

    def _show(self, wanted: _Wanted) -> tuple[Mapping[str, str], Features | None]:
        labels, features = self._make(wanted)
        with self._writing:
            if not self._is_closed:
                self._write(labels, wanted)
        return labels, features

    def _make(self, wanted: _Wanted) -> tuple[Mapping[str, str], Features | None]:
        """Return labels and features; the same labels keep the time at which they were made."""
        from plugin.publication.labels.features import make_features
        from plugin.publication.labels.host import read_host
        from plugin.publication.labels.node_labels import label_notes, make_labels
        from plugin.sharing.mps.plan import refusals_of_node

        inventory, settings = wanted.inventory, wanted.config.settings.labels
        if inventory is None:
            return {}, None
        config, rules = wanted.config, wanted.config.offer_rules
        refused = refusals_of_node(config, inventory)
        self._log.standing(_TOPIC, "; ".join(label_notes(inventory, rules, refused=refused)))
        addresses = [device.gpu.pci_address for device in inventory.devices]
        host = read_host(config.sys_root, addresses, settings.machine_file, proc_root=config.proc_root)

        def made_at(moment: int) -> dict[str, str]:
            timestamp = moment if settings.has_timestamp else None
            return make_labels(inventory, host, rules, refused=refused, timestamp=timestamp)

        if made_at(self._made_at) != self.current:
            self._made_at = int(self._now())
        return made_at(self._made_at), make_features(inventory, host)

    def _write(self, labels: Mapping[str, str], wanted: _Wanted) -> None:
        from plugin.publication.labels.file import write_labels

        settings = wanted.config.settings.labels
        path = settings.file
        if self._written != path:
            self._remove()
        problem = ""
        if path is not None and (settings.is_file_wanted or path.parent.is_dir()):
            try:
                is_changed = write_labels(path, labels)
                self._written = path if labels else None
            except OSError as error:
                problem = f"{path} cannot be written: {os_reason(error)}"
            else:
                if is_changed:
                    self._log.info("labels", file=path, count=len(labels))
        self._log.standing(f"{_TOPIC} file", problem, **({"hint": _HINT} if problem else {}))

    def _remove(self) -> None:
        from plugin.publication.labels.file import remove_labels

        path, self._written = self._written, None
        if path is None:
            return
        try:
            remove_labels(path)
        except OSError as error:
            problem = f"{path} cannot be removed: {os_reason(error)}"
            self._log.warning(problem, hint="Node Feature Discovery goes on with what it says")

    def close(self, *, stays: bool) -> None:
        """Take the file away, as NVIDIA's feature discovery does; not where labels are made once, nor if it `stays`."""
        with self._writing:
            self._is_closed = True
            is_once = self._wanted is not None and self._wanted.config.settings.labels.pause_s is None
            if not (stays or is_once):
                self._remove()


_HINT = "labels reach no Node through Node Feature Discovery: make its folder, or name another outputFile"
