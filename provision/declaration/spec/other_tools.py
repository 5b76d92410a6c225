"""Recognizes files of other tools where a declaration was expected, and says how to go on from each.

By their first lines and keys alone: such a file needs to be no YAML, and nothing of it is used. Pure.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

_FREE: Final = "gpu-nodes.yaml"  # a name for the declaration: the default one may be that of the file that is not one
_HERE: Final = f"`grapnel init -f {_FREE}` writes a declaration to start from"
_OWN: Final = re.compile(r"^kind:\s*[\"']?GpuStack\b", re.MULTILINE)
_OPERATOR: Final = re.compile(r"^[ -]*[\"']?kind[\"']?:\s*[\"']?(?P<kind>ClusterPolicy|NVIDIADriver)\b", re.MULTILINE)
_OPERATORS_API: Final = re.compile(r"^[ -]*[\"']?apiVersion[\"']?:\s*[\"']?nvidia\.com/", re.MULTILINE)
_KEY: Final = re.compile(r"^(?P<key>[A-Za-z][\w-]*):", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*([#;].*)?$")
_OURS: Final = frozenset(("apiVersion", "kind", "spec"))
_HOST: Final = re.compile(r"^\S+\s+(.*\s)?ansible_\w+=")
_GROUPS: Final = re.compile(r"^[A-Za-z][\w-]*:[ \t]*\n([ \t]*#.*\n)*[ \t]+(hosts|children):", re.MULTILINE)
_GROUP: Final = re.compile(r"^\[[\w.-]+(:(vars|children))?\]$")
_GRES: Final = re.compile(r"^(autodetect=|(nodename=\S+\s+)?name=gpu\b)", re.IGNORECASE)
# Top-level keys in the values of NVIDIA's chart (deployments/gpu-operator/values.yaml); the second set is common.
_CHART: Final = frozenset(
    ("operator", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager", "nodeStatusExporter", "validator")
)
_CHART_AND_OTHERS: Final = _CHART | {"driver", "nfd", "cdi", "dcgm", "daemonsets"}
_ENOUGH: Final = 2
# Groups and variables that these two alone have: kubespray's inventory/sample, DeepOps' config.example.
_SLURM_GROUP: Final = re.compile(r"^(\[slurm-(node|master|cluster)\b|[ \t]*slurm-(node|master|cluster):)", re.MULTILINE)
_KUBE_GROUP: Final = re.compile(r"^(\[kube[_-]node\b|[ \t]*kube[_-]node:)", re.MULTILINE)
_OF_DEEPOPS: Final = re.compile(r"^(deepops_\w+|slurm_(manage_gpus|install_\w+|cluster_install_\w+)):", re.MULTILINE)
_OF_KUBESPRAY: Final = frozenset(
    ("kube_network_plugin", "kube_service_addresses", "kube_pods_subnet", "container_manager", "etcd_deployment_type")
)


@dataclass(frozen=True)
class OtherFile:
    """What a file is, and what to do with it."""

    what: str
    hint: str


def recognize(text: str, name: str) -> OtherFile | None:
    """Return what a text is if it is another tool's; ``name`` is the file's, for commands."""
    if _OWN.search(text):
        return None
    if _OPERATORS_API.search(text) and (found := _OPERATOR.search(text)) is not None:
        command = _init("--from-gpu-operator", name)
        hint = f"{command} writes the GpuStacks of it, and says what of it is not kept"
        return OtherFile(f"the {found['kind']} of NVIDIA's GPU operator", hint)
    keys = {match["key"] for match in _KEY.finditer(text)}
    if keys & _CHART and len(keys & _CHART_AND_OTHERS) >= _ENOUGH and not keys & _OURS:
        hint = "what it has made of them is read: `grapnel init --from-gpu-operator cluster`, before it is uninstalled"
        return OtherFile("the values of the GPU operator's chart", hint)
    if "mig-configs" in keys:
        hint = f"a declaration names it, as `spec.mig.configFile`, and a layout of it by group; {_HERE}"
        return OtherFile("a configuration of NVIDIA's mig-parted", hint)
    first = next((line.strip() for line in text.splitlines() if not _COMMENT.match(line)), "")
    if _GRES.match(first):
        hint = f"it stays where it is; a declaration for its nodes has `spec.scheduler.kind: slurm`; {_HERE}"
        return OtherFile("a gres.conf of Slurm", hint)
    if keys & _OURS:
        return None
    if _GROUP.match(first) or _HOST.match(first) or _GROUPS.search(text):
        hint = (
            f"it goes beside the declaration: `--inventory {shlex.quote(name)}`; "
            f"{_init('-i', name)} looks at its machines and declares what they are"
        )
        return OtherFile(_whose(text), hint)
    return _variables(text, keys)


def _init(option: str, name: str) -> str:
    """Return the command that makes a declaration of a file: beside it, where it has the name of a declaration."""
    beside = f" -f {_FREE}" if PurePath(name).name == "grapnel.yaml" else ""
    return f"`grapnel init {option} {shlex.quote(name)}{beside}`"


def _whose(text: str) -> str:
    if _SLURM_GROUP.search(text):
        return "an inventory of DeepOps"
    return "an inventory of kubespray" if _KUBE_GROUP.search(text) else "an inventory of Ansible"


def _variables(text: str, keys: set[str]) -> OtherFile | None:
    """Return whose variables of a group these are."""
    whose = "DeepOps" if _OF_DEEPOPS.search(text) else "kubespray"
    if whose == "kubespray" and len(keys & _OF_KUBESPRAY) < _ENOUGH:
        return None
    hint = f"it stays where it is, and docs/migrate/{whose.lower()}.md says how both go together; {_HERE}"
    return OtherFile(f"variables of {whose}", hint)
