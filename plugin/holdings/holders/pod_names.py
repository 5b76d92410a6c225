"""What pods and containers are called: from the folders of logs that the kubelet makes, which are root's alone.

The pod resources interface has no uid of a pod and no id of a container; these names have:

    /var/log/pods/NAMESPACE_NAME_UID/CONTAINER/RESTARTS.log
    /var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log -> one of those

Source: kubelet, pkg/kubelet/kuberuntime/{helpers,legacy}.go (BuildPodLogsDirectory, legacyLogSymlink). The links are
always there, wherever `podLogsDir` has the logs. None is made for a container whose log is elsewhere (journald under
cri-dockerd), and a name of over 255 characters loses its id: then the pod's folder is all there is.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from plugin.kubelet.pod_resources.attribution import PodContainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from plugin.holdings.holders.cgroup import Place

_LINK = re.compile(r"(?P<pod>[^_/]+)_(?P<namespace>[^_/]+)_(?P<container>[^_/]+)-(?P<id>[0-9a-f]{64})\.log")
_POD_FOLDER = re.compile(r"(?P<namespace>[^_/]+)_(?P<pod>[^_/]+)_(?P<uid>[^_/]+)")
_MAX_ENTRIES = 50_000  # a kubelet removes what it made; a folder that others fill is not read to its end


class PodNames:
    """Names by places, below `/var/log`. Folders are read only for a place that was not known the last time."""

    def __init__(self, log_root: Path) -> None:
        self._links = f"{log_root}/containers"
        self._pods = f"{log_root}/pods"
        self._known: Mapping[Place, PodContainer] = {}

    def look_up(self, places: Iterable[Place]) -> Mapping[Place, PodContainer]:
        """Return the names of those places that have one; `container` is empty where the pod alone is known."""
        wanted = frozenset(places)
        found = {place: name for place, name in self._known.items() if place in wanted and name.container}
        missing = wanted - found.keys()
        if missing:
            found.update(self._by_links(missing))
            found.update(self._by_folders(place for place in missing if place not in found))
        self._known = found
        return found

    def _by_links(self, places: Iterable[Place]) -> Iterator[tuple[Place, PodContainer]]:
        by_id = {place.container_id: place for place in places if place.container_id}
        for name in _names(self._links) if by_id else ():
            match = _LINK.fullmatch(name)
            place = by_id.get(match["id"]) if match else None
            if match and place and self._is_of(name, place):
                yield place, PodContainer(match["namespace"], match["pod"], match["container"])

    def _is_of(self, link: str, place: Place) -> bool:
        """Whether the log is in the folder of the pod that the control group names, where it names one."""
        if place.pod_uid is None:
            return True
        try:
            target = os.readlink(f"{self._links}/{link}")  # where it leads, not what is there
        except OSError:
            return False
        folders = (_POD_FOLDER.fullmatch(part) for part in target.split("/"))
        return any(folder["uid"] == place.pod_uid for folder in folders if folder)

    def _by_folders(self, places: Iterable[Place]) -> Iterator[tuple[Place, PodContainer]]:
        by_uid: dict[str, list[Place]] = {}
        for place in places:
            if place.pod_uid:
                by_uid.setdefault(place.pod_uid, []).append(place)
        for name in _names(self._pods) if by_uid else ():
            match = _POD_FOLDER.fullmatch(name)
            if match is None or match["uid"] not in by_uid:
                continue
            containers = tuple(islice(_names(f"{self._pods}/{name}"), 2))
            only = containers[0] if len(containers) == 1 else ""
            for place in by_uid[match["uid"]]:
                yield place, PodContainer(match["namespace"], match["pod"], only)


def _names(folder: str) -> Iterator[str]:
    """Yield the names in a folder; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                yield entry.name
    except OSError:
        return
