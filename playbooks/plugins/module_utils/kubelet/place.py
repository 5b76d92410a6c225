"""Finds where a node's kubelet reads its settings: its command line says it.

While grapnel has it stopped, there is no command line: what it said is kept in a note until the kubelet runs again.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import data_of
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import DISTRIBUTIONS, MICROK8S
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import is_restart_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

RECORD = "/etc/grapnel/kubelet.json"  # which settings are grapnel's (provision.planning.render.kubelet_record)
NOTE = "/var/lib/grapnel/kubelet-place.json"
_ROOT_DIR = "/var/lib/kubelet"
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,127}\.service")
_FLAG = re.compile(r"[a-z0-9-]{1,64}")
# An entry of a list such as `kubelet-arg`: none of the kubelet's flags that matter here is another program's, too.
_EXTRA = re.compile(r"""(?:[-\[,]\s*|kubelet-arg["']?\s*:\s*)["']?(?:--)?([a-z][a-z0-9-]{1,63})=""")
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_KUBELITE = "snap.microk8s.daemon-kubelite.service"
_KUBELITE_ARGS = "/var/snap/microk8s/current/args/kubelet"  # a flag a line
_SNAP = (("${SNAP_DATA}", "/var/snap/microk8s/current"), ("${SNAP_COMMON}", "/var/snap/microk8s/common"))
_WORDS = re.compile(r"""--([a-z][a-z0-9-]{0,63})[= ]["']?([^\s"';]*)""")
_VERSION = re.compile(r"Kubernetes v([0-9][0-9A-Za-z.+-]{0,63})")
_GROUPS = "/sys/fs/cgroup"
_V1_ALLOWED = re.compile(r"""(?m)^[\s{,]*["']?failCgroupV1["']?\s*:\s*["']?(true|false)\b""")
_USUAL_UNIT = "kubelet.service"
_USUAL_CONFIG = "/var/lib/kubelet/config.yaml"  # kubeadm's
_MAX_FLAGS = 256
_MAX_DROP_INS = 32
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Place:
    """Where a kubelet reads its settings and keeps its state; ``flags`` are those of its command line, by name."""

    program: str = ""
    config: str = ""
    config_dir: str = ""
    root_dir: str = _ROOT_DIR
    flags: tuple[tuple[str, str], ...] = ()

    def flag(self, name: str) -> str:
        """Return the value of a flag, empty where it is not given."""
        return dict(self.flags).get(name, "")


@dataclass(frozen=True)
class Inside:
    """A kubelet that another program runs: a distribution of Kubernetes, in its service."""

    distribution: str
    unit: str
    place: Place


def read_kubelet(host: Host, unit: str) -> dict[str, Any] | None:
    """Return the facts ``kubelet`` of a service; without one, of that whose settings grapnel has changed, if any."""
    unit = unit or _recorded_unit(host)
    if not _UNIT.fullmatch(unit):
        return None
    properties = unit_state(host, unit)
    inside = find_inside(host, unit, is_missing=properties.get("LoadState") != "loaded")
    if inside is not None and inside.unit != unit:
        unit, properties = inside.unit, unit_state(host, inside.unit)
    place = read_place(host, properties.get("MainPID", "")) if inside is None else inside.place
    return {
        "distribution": "" if inside is None else inside.distribution,
        "unit": unit,
        "load": properties.get("LoadState", "not-found"),
        "active": properties.get("ActiveState", "inactive"),
        "program": place.program,
        "config": place.config,
        "config_dir": place.config_dir,
        "root_dir": place.root_dir,
        "flags": sorted({name for name, _ in place.flags if _FLAG.fullmatch(name)})[:_MAX_FLAGS],
        "restart_due": is_restart_due(host, unit),
    }


def read_cgroup_v1(host: Host, unit: str) -> dict[str, Any] | None:
    """Return the facts ``cgroup_v1``: what its kubelet makes of a node that has not cgroup v2 alone; None elsewhere.

    A kubelet asks the same of the file system (k8s.io/kubernetes, `IsCgroup2UnifiedMode`). One that a distribution runs
    is told by that.
    """
    unit = unit if _UNIT.fullmatch(unit) else _USUAL_UNIT
    if not host.names(_GROUPS) or host.path(f"{_GROUPS}/cgroup.controllers").is_file():
        return None
    properties = unit_state(host, unit)
    place = read_place(host, properties.get("MainPID", ""))
    program = place.program if place.program.startswith("/") else host.find_command("kubelet")
    if not program or find_inside(host, unit, is_missing=properties.get("LoadState") != "loaded") is not None:
        return None
    version = _VERSION.search(host.run([program, "--version"], _TIMEOUT_S).stdout)
    files = settings_files(host, {"config": place.config, "config_dir": place.config_dir}) or [_USUAL_CONFIG]
    said = [each for path in files for each in _V1_ALLOWED.findall(host.read_text(path) or "")]
    flag = place.flag("fail-cgroupv1")
    return {"kubelet": version[1] if version else "", "allowed": (flag or (said or [""])[-1]) == "false"}


def find_inside(host: Host, unit: str, *, is_missing: bool) -> Inside | None:
    """Return the kubelet that a distribution runs, where its service is meant, or the one that is meant is missing.

    k3s and RKE2 give it a folder for settings from 1.32 on, into which they write a file of their own at every start
    (docs.k3s.io, "Kubelet Configuration"). What they and others say by `kubelet-arg` are flags. k0s and microk8s give
    it none, but the flags that they are told to, of which one may name a folder.
    """
    for name, each in DISTRIBUTIONS.items():
        units = (_KUBELITE,) if each is MICROK8S else each.units
        if not (is_missing or unit in units):
            continue
        loaded = [one for one in units if unit_state(host, one).get("LoadState") == "loaded"]
        if not loaded:
            continue
        place = _PLACES.get(name, _by_folder)(host, name, loaded[0])
        return Inside(name, loaded[0], place)
    return None


def _by_folder(host: Host, name: str, _unit: str) -> Place:
    """Return the place of k3s or RKE2."""
    folder = f"{data_of(host, name)}/agent/etc/kubelet.conf.d"
    has_folder = host.path(f"{folder}/00-{name}-defaults.conf").is_file()
    flags = tuple((flag, "") for flag in _extra_flags(host, DISTRIBUTIONS[name].settings))
    return Place(program=name, config_dir=folder if has_folder else "", flags=flags)


def _by_k0s(host: Host, name: str, unit: str) -> Place:
    """Return the place of k0s, whose command line has the kubelet's flags in `--kubelet-extra-args`.

    It is read from the unit, which says it also while nothing runs. The file beside the data k0s writes at every start
    (docs.k0sproject.io, "Worker node configuration").
    """
    command = host.run(["systemctl", "show", "--property", "ExecStart", unit], _TIMEOUT_S).stdout
    flags = _WORDS.findall(command.replace("--kubelet-extra-args", " "))
    given = dict(flags)
    data = _absolute(given.get("data-dir", "")) or "/var/lib/k0s"
    folder, config = _absolute(given.get("config-dir", "")), f"{data}/kubelet-config.yaml"
    return Place(
        program=name,
        config=config if folder and host.path(config).is_file() else "",  # no place for settings by itself
        config_dir=folder,
        root_dir=_absolute(given.get("root-dir", "")) or f"{data}/kubelet",
        flags=tuple(flags),
    )


def _by_snap(host: Host, name: str, _unit: str) -> Place:
    """Return the place of microk8s, which has the kubelet's flags in a file (microk8s.io, "Configuring services")."""
    text = _COMMENT.sub("", host.read_text(_KUBELITE_ARGS) or "")
    for variable, folder in _SNAP:
        text = text.replace(variable, folder)
    flags = _WORDS.findall(text)
    given = dict(flags)
    folder = _absolute(given.get("config-dir", ""))
    return Place(
        program=name,
        config=_absolute(given.get("config", "")) if folder else "",
        config_dir=folder,
        root_dir=_absolute(given.get("root-dir", "")) or _ROOT_DIR,
        flags=tuple(flags),
    )


_PLACES = {"k0s": _by_k0s, "microk8s": _by_snap}


def _extra_flags(host: Host, settings: str) -> list[str]:
    """Return the flags that k3s or RKE2 is told to give to programs, by its file and those of the folder beside it."""
    if not settings:
        return []
    beside = (f"{settings}.d/{name}" for name in host.names(f"{settings}.d") if name.endswith((".yaml", ".yml")))
    texts = (host.read_text(path) or "" for path in (settings, *beside))
    return [flag for text in texts for flag in _EXTRA.findall(_COMMENT.sub("", text))]


def unit_state(host: Host, unit: str) -> dict[str, str]:
    """Return what systemd says of a service."""
    command = ["systemctl", "show", "--property", "LoadState,ActiveState,MainPID", unit]
    lines = host.run(command, _TIMEOUT_S).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def settings_files(host: Host, told: dict[str, Any] | None) -> list[str]:
    """Return the files that a kubelet reads its settings from, as many as are looked at."""
    if told is None:
        return []
    folder = told["config_dir"]
    names = [name for name in host.names(folder) if is_drop_in(name)] if folder else []
    return [*filter(None, [told["config"]]), *(f"{folder}/{name}" for name in names[:_MAX_DROP_INS])]


def is_drop_in(name: str) -> bool:
    """Tell whether the kubelet reads a file of that name in its folder; ours are written under other names first."""
    return name.endswith(".conf")


def read_place(host: Host, pid: str) -> Place:
    """Return where the kubelet of a process reads its settings; of one that does not run, what was noted."""
    arguments = _arguments(host, pid)
    return parse_place(arguments) if arguments else _noted(host)


def parse_place(arguments: Sequence[str]) -> Place:
    """Return what a command line says: flags are ``--name=value``, ``--name value`` or ``--name``."""
    flags: list[tuple[str, str]] = []
    for index, argument in enumerate(arguments[1:], 1):
        if not argument.startswith("--"):
            continue
        name, has_value, value = argument[2:].partition("=")
        follows = arguments[index + 1] if index + 1 < len(arguments) else ""
        # The kubelet takes _ for - in the names of its flags.
        flags.append((name.replace("_", "-"), value if has_value else ("" if follows.startswith("-") else follows)))
    given = dict(flags)
    return Place(
        program=arguments[0],
        config=_absolute(given.get("config", "")),
        config_dir=_absolute(given.get("config-dir", "")),
        root_dir=_absolute(given.get("root-dir", "")) or _ROOT_DIR,
        flags=tuple(flags),
    )


def note_place(host: Host, place: Place) -> None:
    """Keep what the command line says for whoever continues while the kubelet is stopped."""
    note = host.path(NOTE)
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    note.write_text(json.dumps(asdict(place)), encoding="utf-8")


def forget_place(host: Host) -> None:
    """Remove the note: the kubelet runs."""
    host.path(NOTE).unlink(missing_ok=True)


def _absolute(path: str) -> str:
    return posixpath.normpath(path) if path.startswith("/") and path.isprintable() else ""


def _arguments(host: Host, pid: str) -> list[str]:
    if not pid.isdecimal() or pid == "0":
        return []
    text = host.read_text(f"/proc/{pid}/cmdline") or ""
    return [part for part in text.split("\0") if part]


def _noted(host: Host) -> Place:
    try:
        noted = json.loads(host.read_text(NOTE) or "{}")
        flags = tuple((str(name), str(value)) for name, value in noted.get("flags", ()))
        paths = {name: _absolute(str(noted.get(name, ""))) for name in ("config", "config_dir", "root_dir")}
        return Place(program=str(noted.get("program", "")), flags=flags, **paths)
    except (ValueError, TypeError, AttributeError):
        return Place()


def _recorded_unit(host: Host) -> str:
    try:
        return str(json.loads(host.read_text(RECORD) or "{}").get("unit", ""))
    except (ValueError, AttributeError):
        return ""
