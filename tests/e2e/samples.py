"""What an engine gave runc for a container, cut down to what decides about GPUs and freed of what differs every time.

Pure. ``docs/contracts/allocation/engines`` holds one such sample for each engine and visitor; its README says what is
in one. Numbers of devices become those of NVIDIA's driver: the lab's nodes have stand-ins.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = "grapnel.dev/engine-sample/v1alpha1"
FOLDER = Path(__file__).parents[2] / "docs" / "contracts" / "allocation" / "engines"
TELLING_CAPABILITIES = ("CAP_MKNOD", "CAP_SYS_ADMIN")
KEPT_ANNOTATIONS = ("grapnel.dev/allocation", "io.kubernetes.cri.container-type", "io.kubernetes.cri.container-name")
CRIO_CONTAINER_ANNOTATIONS = "io.kubernetes.cri-o.Annotations"
# Where a container comes from, and by which engine; what else an engine notes of it differs from release to release.
TELLING_ANNOTATIONS = (
    CRIO_CONTAINER_ANNOTATIONS,
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.cri.sandbox-name",
)
NOTES = ("io.kubernetes.cri-o.", "io.kubernetes.cri.", "io.container.manager", "platform-runtime-path.crio.io")
# Of whom and when a sample was taken; a patch release that changes nothing else is no difference.
SEEN_WITH = ("version", "kubernetes")
NVIDIA_MAJOR, UVM_MAJOR = 195, 510
CONTROL_NUMBERS = {
    "/dev/nvidiactl": (NVIDIA_MAJOR, 255),
    "/dev/nvidia-modeset": (NVIDIA_MAJOR, 254),
    "/dev/nvidia-uvm": (UVM_MAJOR, 0),
    "/dev/nvidia-uvm-tools": (UVM_MAJOR, 1),
}

Json = dict[str, Any]
Numbers = tuple[int, int]


@dataclass(frozen=True)
class Names:
    """Stable names for the GPUs of one container: those that it was given come first, then the rest of its node."""

    uuids: Mapping[str, str]
    paths: Mapping[str, str]
    numbers: Mapping[Numbers, Numbers]

    @classmethod
    def of(cls, config: Json, gpus: Mapping[str, str], numbers: Mapping[str, Numbers]) -> Names:
        """Name the GPUs of a node as one container of it knows them.

        ``gpus`` are the paths of the node's GPUs by UUID, ``numbers`` the numbers of its devices by path.
        """
        text = " ".join([*config.get("annotations", {}).values(), *config["process"].get("env", ())])
        ordered = sorted(gpus, key=lambda uuid: (uuid not in text, gpus[uuid]))
        known = {numbers[path]: stable for path, stable in CONTROL_NUMBERS.items() if path in numbers}
        known |= {numbers[gpus[uuid]]: (NVIDIA_MAJOR, place) for place, uuid in enumerate(ordered)}
        return cls(
            {uuid: f"GPU-00000000-0000-0000-0000-{place:012}" for place, uuid in enumerate(ordered)},
            {gpus[uuid]: f"/dev/nvidia{place}" for place, uuid in enumerate(ordered)},
            known,
        )

    def text(self, value: str) -> str:
        """Return a text with stable UUIDs; a list of them is in the order of their names."""
        words = sorted(self.uuids.get(word, word) for word in value.split(","))
        return ",".join(words)

    def device(self, entry: Json) -> Json:
        """Return a device, or a rule about one, with stable names; file modes and owners are those of the node."""
        path, numbers = entry.get("path"), (entry.get("major"), entry.get("minor"))
        kept = {key: value for key, value in entry.items() if key in {"path", "type", "allow", "access"}}
        if path is not None:
            kept["path"] = self.paths.get(path, path)
        if entry.get("major") is not None:
            kept["major"], kept["minor"] = self.numbers[numbers]  # type: ignore[index] # both are set
        return kept

    def is_known(self, entry: Json) -> bool:
        """Tell whether a device or rule is about the driver, or about no device in particular."""
        return entry.get("major") is None or (entry["major"], entry["minor"]) in self.numbers


def reduce_config(config: Json, names: Names) -> Json:
    """Return what decides about GPUs in a ``config.json``, in the shape that it has there."""
    linux, process = config["linux"], config["process"]
    env = (entry.partition("=") for entry in process.get("env", ()))
    nvidia = [(name, names.text(value)) for name, _, value in env if name.startswith("NVIDIA_")]
    bounding = process["capabilities"]["bounding"]
    return {
        "process": {
            # A pod's own variables come in any order; of two with one name the order decides, so it stays.
            "env": [f"{name}={value}" for name, value in sorted(nvidia, key=itemgetter(0))],
            "capabilities": {"bounding": [each for each in TELLING_CAPABILITIES if each in bounding]},
        },
        "root": {"path": "rootfs"},
        "annotations": {key: _annotation(key, value, names) for key, value in sorted(config["annotations"].items())},
        "hooks": config.get("hooks", {}),
        "linux": {
            "devices": _stable(linux.get("devices"), names),
            "resources": {"devices": _stable(linux["resources"].get("devices"), names)},
        },
    }


def _annotation(key: str, value: str, names: Names) -> str:
    """Keep what is compared; the rest are names and ids."""
    if key == CRIO_CONTAINER_ANNOTATIONS:
        own = {each: names.text(text) for each, text in json.loads(value).items() if each in KEPT_ANNOTATIONS}
        return json.dumps(own)
    return names.text(value) if key in KEPT_ANNOTATIONS else f"<{key.rpartition('/')[2].rpartition('.')[2]}>"


def _stable(entries: list[Json] | None, names: Names) -> list[Json]:
    """Return devices or rules about the driver, those about nothing in particular first, each once."""
    kept = [names.device(entry) for entry in entries or () if names.is_known(entry)]
    ordered = sorted(kept, key=lambda each: (each.get("major", -1), each.get("minor", -1), str(each)))
    return [each for place, each in enumerate(ordered) if place == 0 or each != ordered[place - 1]]


def reduce_hook(line: Mapping[str, str] | None, names: Names) -> Json | None:
    """Return what the hook said of the container in its journal line; None: it had nothing to say."""
    if line is None:
        return None
    said: Mapping[str, Callable[[str], str]] = {"DECISION": str, "SOURCE": str, "GPUS": names.text, "REASON": str}
    return {key.lower(): shown(line[name]) for key, shown in said.items() if line.get(name := f"GRAPNEL_{key}")}


def deciding(sample: Json) -> Json:
    """Return what two versions of an engine are compared by: not of whom and when a sample is, nor notes of the engine.

    CRI-O notes something new in patch releases too: the image's digests since 1.34.10, 1.35.5 and 1.36.1.
    """
    config = sample["config"]
    kept = {key: value for key, value in config["annotations"].items() if not _is_note(key)}
    told = {key: value for key, value in sample.items() if key not in SEEN_WITH}
    return told | {"config": config | {"annotations": kept}}


def _is_note(key: str) -> bool:
    """Tell whether an annotation is the engine's note of a container, which nobody decides by."""
    return key.startswith(NOTES) and key not in {*KEPT_ANNOTATIONS, *TELLING_ANNOTATIONS}


def folder_of(engine: str, home: Path = FOLDER) -> Path:
    """Return where samples of an engine's minor version belong: ``containerd://1.7.24`` has those of containerd-1.7."""
    name, minor = _minor_version(engine)
    return home / f"{name}-{'.'.join(map(str, minor))}"


def stored_for(engine: str, home: Path = FOLDER) -> Path:
    """Return the samples to compare with: those of the engine's minor version, else of the nearest one, older first."""
    name, wanted = _minor_version(engine)
    folders = [path for path in home.iterdir() if re.fullmatch(rf"{re.escape(name)}-\d+\.\d+", path.name)]
    known = {_minor_version(f"{path.name.replace(f'{name}-', f'{name}://')}.0")[1]: path for path in folders}
    assert known, f"no version of {name} has samples below {home}"
    older = [minor for minor in known if minor <= wanted]
    return known[max(older) if older else min(known)]


def _minor_version(engine: str) -> tuple[str, Numbers]:
    found = re.fullmatch(r"([a-z-]+)://v?(\d+)\.(\d+)\..*", engine)
    assert found, f"an engine without a version: {engine}"
    return found[1], (int(found[2]), int(found[3]))


def kind_of(*, is_entitled: bool) -> str:
    """Return the folder's name for samples of containers that were given a GPU, or were not."""
    return "good" if is_entitled else "bad"
