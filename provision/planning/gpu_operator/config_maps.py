"""Carries over what the GPU operator keeps in ConfigMaps: device plugin, MIG layouts, module parameters.

Pure, but for the parser of YAML that is handed in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from provision.planning.draft.model import Said
from provision.planning.gpu_operator.model import Key, Verdict
from provision.planning.gpu_operator.verdicts import NODE_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PARAMETER: Final = re.compile(r"(?:options\s+nvidia\s+)?(NVreg_[A-Za-z0-9_]+)=(\S+)")
_BY_LABEL: Final = "nodes choose it by label nvidia.com/device-plugin.config: give those a stack of their own"


class Carried:
    """What becomes of the entries of one ConfigMap."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.said: list[Said] = []
        self.keys: list[Key] = []
        self.choices: frozenset[str] = frozenset()  # what a default may name

    def carry(self, path: str, value: object, key: str) -> None:
        """Have an entry become a key of a GpuStack."""
        self.said.append(Said(tuple(key.split(".")), value, f"{self.source}, {path}"))
        self.keys.append(Key(source=self.source, path=path, value=value, verdict=Verdict.CARRIED, became=(key,)))

    def miss(self, path: str, value: object, why: str) -> None:
        """Note an entry that has no counterpart."""
        self.keys.append(Key(source=self.source, path=path, value=value, verdict=Verdict.MISSING, why=why))


def device_plugin(name: str, data: Mapping[str, str], default: str, parse: Callable[[str], object]) -> Carried:
    """Return what becomes of configurations of the device plugin, of which ``default`` is that of most nodes."""
    found = Carried(f"ConfigMap {name}")
    found.choices = frozenset(data)
    chosen = default if default in data else next(iter(data)) if len(data) == 1 else ""
    for entry, text in data.items():
        if entry != chosen:
            found.miss(entry, "…", _BY_LABEL)
            continue
        content = parse(text)
        if not isinstance(content, dict):
            found.miss(entry, "…", "it is no YAML")
            continue
        for path, value in _entries(content):
            key = _PLUGIN_KEYS.get(path)
            if path == "version" or value in (None, "", [], {}):
                continue
            if key is None:
                found.miss(f"{entry}: {path}", value, why_not_carried(path))
            else:
                found.carry(f"{entry}: {path}", value, key)
    return found


def why_not_carried(path: str) -> str:
    """Return why a setting of the device plugin is not carried over: the node daemon reads it, or nobody ever did.

    NVIDIA's plugin skips a key that it does not know where it stands, without a word
    (https://github.com/NVIDIA/k8s-device-plugin/issues/1433); the node daemon refuses a file that has one.
    """
    if path in NODE_FILE_KEYS:
        return NODE_FILE
    last = path.rpartition(".")[2]
    if last in _OF_SHARING:
        ways = " or ".join(f"`plugin.sharing.{way}.{last}`" for way in ("timeSlicing", "mps"))
        return f"the device plugin skips it here, so that it had no effect: to have one, declare {ways}"
    home = next((key for key in NODE_FILE_KEYS if key.rpartition(".")[2] == last), "")
    where = f": it would be {home}" if home else ""
    return f"the device plugin does not know it here, and skips it, so that it had no effect{where}"


_OF_SHARING: Final = frozenset({"renameByDefault", "failRequestsGreaterThanOne"})
NODE_FILE_KEYS: Final = (  # what the node daemon takes of a file of NVIDIA's form, beside resources and sharing
    *(
        f"flags.{key}"
        for key in (
            *("migStrategy", "failOnInitError", "nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled", "gdsEnabled"),
            *("mofedEnabled", "deviceDiscoveryStrategy", "mpsRoot", "useNodeFeatureAPI"),
            *(f"gfd.{each}" for each in ("oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile")),
            *("plugin.passDeviceSpecs", "plugin.deviceListStrategy", "plugin.deviceIDStrategy"),
            *("plugin.cdiAnnotationPrefix", "plugin.containerDriverRoot", "plugin.sharedDevicesAllocationPolicy"),
            "plugin.nvidiaCTKPath",
        )
    ),
    *("imex.channelIDs", "imex.required"),
)
_PLUGIN_KEYS: Final = {
    "flags.migStrategy": "plugin.migStrategy",
    "flags.plugin.sharedDevicesAllocationPolicy": "plugin.sharedDevicesAllocationPolicy",
    "sharing.timeSlicing": "plugin.sharing.timeSlicing",
    "sharing.mps": "plugin.sharing.mps",
    "resources.gpus": "plugin.resources.gpus",
    "resources.mig": "plugin.resources.mig",
}


def _entries(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in _PLUGIN_KEYS:
            yield from _entries(value, f"{path}.")
        else:
            yield path, value


def mig_layouts(name: str, data: Mapping[str, str], default: str, parse: Callable[[str], object]) -> Carried:
    """Return what becomes of a file of mig-parted; ``default`` is the layout of nodes that name none."""
    found = Carried(f"ConfigMap {name}")
    for entry, text in data.items():
        content = parse(text)
        layouts = content.get("mig-configs") if isinstance(content, dict) else None
        if not isinstance(layouts, dict) or not layouts:
            found.miss(entry, "…", "it has no mig-configs")
            continue
        found.choices |= set(layouts)
        found.carry(entry, {"version": "v1", "mig-configs": layouts}, "mig.config")
        if default and default in layouts:
            found.said.append(Said(("mig", "layout"), default, "migManager.config.default"))
    return found


def module_parameters(name: str, data: Mapping[str, str]) -> Carried:
    """Return what becomes of files of kernel module parameters, one for each module."""
    found = Carried(f"ConfigMap {name}")
    parameters: dict[str, int | str] = {}
    for entry, text in data.items():
        if entry != "nvidia.conf":
            found.miss(entry, text.strip(), "`driver.moduleParameters` is about the module nvidia alone")
            continue
        for line in text.replace("\n", " ").split():
            match = _PARAMETER.fullmatch(line)
            if match is None:
                if line not in ("options", "nvidia"):
                    found.miss(entry, line, "it is no parameter of the module nvidia")
                continue
            parameters[match[1]] = int(match[2]) if match[2].isdecimal() else match[2]
    if parameters:
        found.carry("nvidia.conf", parameters, "driver.moduleParameters")
    return found
