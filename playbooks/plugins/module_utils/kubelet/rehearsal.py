"""Has the node's own kubelet judge its settings before any of them is written, without starting one.

The kubelet has no option for that. But `--exit-on-lock-contention` without `--lock-file` is a contradiction that it
finds after it has read, merged and validated its configuration, and before it does anything else
(cmd/kubelet/app/server.go, `run`; seen with 1.36). So its complaint about the contradiction means that the settings are
valid. An answer that is neither is no verdict, and whether the kubelet stays up has the last word anyway.

The flags of its command line it judges as well, with `--version`, before which it reads all of them: a kubelet that was
updated on the disk since it was started may know some no more (those of cAdvisor, from Kubernetes 1.37 on).
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import KubeletError
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference, FileText
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import Place
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

VALID = "cannot exit on lock file contention"
_REFUSALS = ("failed to validate kubelet", "failed to load", "failed to merge", "unrecognized feature gate")
_UNKNOWN_FLAG = re.compile(r"unknown flag: --([A-Za-z0-9_-]{1,64})")
_ERROR = re.compile(r'\berr="((?:[^"\\]|\\.)*)"')
_LONGEST = 1000
_TIMEOUT_S = 20.0


def rehearse(host: Host, place: Place, changes: list[FileDifference], *, restarts: bool) -> None:
    """Let the kubelet judge its settings as they would be, and its flags before a restart; raises `KubeletError`."""
    flag = unknown_flag(host, place) if restarts else ""
    if flag:
        raise KubeletError(
            f"nothing was changed: {place.program} does not know --{flag}, with which the kubelet was started, and "
            "would not start again: take it out of the service (often in /etc/default/kubelet or "
            "/var/lib/kubelet/kubeadm-flags.env)"
        )
    complaint = refusal(host, place, changes) if changes else ""
    if complaint:
        raise KubeletError(f"nothing was changed: the kubelet refuses these settings: {complaint}")


def refusal(host: Host, place: Place, changes: list[FileDifference]) -> str:
    """Return what the kubelet has against its settings as they are to be, empty where it says nothing."""
    if not _can_judge(place):
        return ""
    with tempfile.TemporaryDirectory(prefix="grapnel-kubelet-") as folder:
        done = host.run(_command(host, place, changes, Path(folder)), _TIMEOUT_S)
    said = f"{done.stdout}\n{done.stderr}"
    if VALID in said or not any(words in said for words in _REFUSALS):
        return ""
    lines = [line for line in said.splitlines() if any(words in line for words in _REFUSALS)]
    quoted = _ERROR.search(lines[-1])
    return printable(quoted[1].replace('\\"', '"') if quoted else lines[-1], _LONGEST)


def unknown_flag(host: Host, place: Place) -> str:
    """Return a flag of the kubelet's command line that its program does not know, empty where it says nothing."""
    if not (place.flags and _can_judge(place)):
        return ""
    flags = (f"--{name}={value}" if value else f"--{name}" for name, value in place.flags)
    done = host.run([place.program, "--version", *flags], _TIMEOUT_S)  # first: nothing may take it for its value
    found = _UNKNOWN_FLAG.search(f"{done.stdout}\n{done.stderr}")
    return found[1] if found else ""


def _can_judge(place: Place) -> bool:
    """Tell whether it is a program of its own: not a part of another one, such as k3s."""
    return place.program.startswith("/") and posixpath.basename(place.program) == "kubelet"


def _command(host: Host, place: Place, changes: list[FileDifference], folder: Path) -> list[str]:
    command = [place.program, "--exit-on-lock-contention", f"--cert-dir={folder / 'pki'}"]
    gates = place.flag("feature-gates")
    wanted = {change.after.path: change.after for change in changes}
    if gates:
        command.append(f"--feature-gates={gates}")
    if place.config:
        command.append(f"--config={_copy(host, place.config, folder, wanted)}")
    if place.config_dir:
        beside = folder / "conf.d"
        beside.mkdir()
        names = {*host.names(place.config_dir), *(path.rpartition("/")[2] for path in wanted if _is_in(path, place))}
        for name in sorted(name for name in names if name.endswith(".conf")):
            _copy(host, f"{place.config_dir}/{name}", beside, wanted)
        command.append(f"--config-dir={beside}")
    return command


def _is_in(path: str, place: Place) -> bool:
    return path.rpartition("/")[0] == place.config_dir


def _copy(host: Host, path: str, folder: Path, wanted: dict[str, FileText]) -> Path:
    """Write a file as it is to be into the folder, none for one that is taken away."""
    copy = folder / path.rpartition("/")[2]
    change = wanted.get(path)
    if change is None:
        shutil.copyfile(host.path(path), copy)
    elif not change.is_absent:
        copy.write_text(change.content, encoding="utf-8")
    return copy
