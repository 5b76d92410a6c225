"""Interfaces of others that grapnel names: those of the page, by its tables, and those of the sources."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.golang.definitions import KUEUE_VERSION
from lab.golang.programs import known_versions
from plugin.dra.service import HEALTH_SERVICES, PLUGIN_SERVICES
from plugin.kubelet.device_plugin.service import SERVICE as DEVICE_PLUGIN
from plugin.kubelet.pod_resources.allocatable import METHOD as ALLOCATABLE
from plugin.kubelet.pod_resources.client import METHOD as PODS
from plugin.kubelet.registration.call import METHOD as REGISTER
from plugin.kubelet.registration.watcher import SERVICE as REGISTRATION
from plugin.publication.metrics.catalogue import GPU_LABELS
from provision.cluster.kubernetes.tenancy.served import GANGS
from provision.planning.engines.containerd.base_spec import base_spec
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.crio import render_crio
from provision.planning.engines.docker import render_docker
from provision.planning.render.kueue import KUEUE_KINDS
from provision.planning.render.tenancy import KINDS
from runtime_hook.engines.cdi import FORMATS
from tests.house.named_tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PAGE: Final = ROOT / "docs" / "interfaces.md"
STAGE, CLUSTER, OF_OTHERS = "Versions that the tests run with", "API of Kubernetes", "API of others in a cluster"
KUBELET, ENGINES, DRIVER, TOOLS = "The kubelet", "Engines", "NVIDIA's driver", "Names of other tools"
_NAME: Final = re.compile(r"`([^`]+)`")
_SOURCES: Final = ("provision", "plugin", "runtime_hook", "playbooks/plugins", "deploy")
_VERSION: Final = r"[a-z0-9.-]+/v\d+(?:(?:alpha|beta)\d+)?"
_BEFORE: Final = r"""(?:(?<!pkg)/apis/|apiVersion["']?\s*[:=]\s*["']?|(?<=")(?=[a-z.]+\.k8s\.io/))"""
_API: Final = re.compile(rf"{_BEFORE}({_VERSION})\b")
_GROUP: Final = re.compile(r'"/apis/([a-z0-9.-]+)"')
_NVML: Final = re.compile(r'(?:pynvml\.|")(nvml[A-Z]\w+)')
_NO_FUNCTION: Final = re.compile(r"nvml(ClocksEventReason|EventType|Memory_v2$|Lib$)")
_OPTION: Final = re.compile(r'"(--[a-z]+)')
_OURS: Final = "grapnel.dev"
_GIVEN: Final = frozenset({"nvidia", "runc", "crun"})  # names of handlers


class Row(NamedTuple):
    """A row of a table: the names in its cell that has them, and its other cells."""

    names: tuple[str, ...]
    cells: tuple[str, ...]


def rows(heading: str, column: int = 0) -> list[Row]:
    """Return the rows of the table below a heading of the page; ``column`` has their names."""
    part = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    found = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return [Row(tuple(_NAME.findall(cells[column])), cells) for cells in found]


def names(heading: str, column: int = 0) -> set[str]:
    """Return all names of a table."""
    return {name for row in rows(heading, column) for name in row.names}


def apis() -> set[str]:
    """Return the API versions, and the groups that are asked for theirs, of a cluster and of the kubelet."""
    texts = list(_texts(".py", ".yaml", ".yml", ".tpl"))
    found = {api for text in texts for api in _API.findall(text)}
    found |= {group for text in texts for group in _GROUP.findall(text)} | {GANGS}
    found |= {kind.api_version for kind in (*KINDS, *KUEUE_KINDS) if kind.group}
    return {api for api in found if not api.startswith(_OURS)}


def of_kubelet() -> set[str]:
    """Return the services and methods that are called by a kubelet, or of one."""
    claims = {*PLUGIN_SERVICES.values(), *HEALTH_SERVICES}
    return {DEVICE_PLUGIN, ALLOCATABLE, PODS, REGISTER, REGISTRATION} | claims


def of_engines() -> set[str]:
    """Return the keys of what is written for engines, on a node where nobody else has written anything."""
    found = set(FORMATS) | {base_spec(hook_timeout_s=1)["ociVersion"]}
    for engine_version, main in (("1.7.24", "version = 2\n"), ("2.2.1", "version = 3\n"), ("2.4.2", "version = 4\n")):
        files = render_containerd(main=main, drop_ins={}, handlers=("nvidia",), engine_version=engine_version)
        for text in (files.main, files.drop_in):
            tree = tomllib.loads(text)
            found |= {str(tree.pop("version")), *_keys(tree)}
    found |= _keys(tomllib.loads(render_crio(main=None, drop_ins={}, handlers=("nvidia",), engine_version="1.36.3")))
    found |= _keys(json.loads(render_docker(main=None, handlers=("nvidia",), engine_version="27.0.0")))
    return found


def of_driver() -> set[str]:
    """Return the functions of NVML."""
    found = {name for text in _texts(".py") for name in _NVML.findall(text)}
    return {name for name in found if not _NO_FUNCTION.match(name)}


def of_tools() -> set[str]:
    """Return labels of DCGM-exporter, and commands and options of Slurm."""
    texts = [path.read_text() for path in (ROOT / "provision/cluster/schedulers/slurm").glob("*.py")]
    options = {option for text in texts for option in _OPTION.findall(text)}
    commands = {name for name in ("scontrol", "squeue", "sinfo", "sacct") if any(f'"{name}"' in text for text in texts)}
    return {*GPU_LABELS, *options, *commands}


def of_stage() -> set[str]:
    """Return the versions of programs that the lab can build."""
    return {*known_versions("kubernetes"), *known_versions("containerd"), KUEUE_VERSION}


def _texts(*suffixes: str) -> Iterator[str]:
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.read_text()


def _keys(tree: Mapping[str, Any]) -> set[str]:
    """Return the keys of a tree, but for names that people and other files give: those of handlers."""
    inner = [_keys(each) for each in _tables(tree.values())]
    return {key for key in tree if key not in _GIVEN and not key.startswith(_OURS)}.union(*inner)


def _tables(values: Iterable[Any]) -> list[Mapping[str, Any]]:
    return [each for each in values if isinstance(each, dict)]
