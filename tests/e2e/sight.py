"""What a container said that it sees of GPUs: the output of `manifests.LOOK` as values."""

from __future__ import annotations

import re
from dataclasses import dataclass

UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
GPU_NODE = re.compile(r"/dev/nvidia\d+$")


@dataclass(frozen=True)
class Sight:
    """GPUs by UUID as ``nvidia-smi -L`` lists them; paths of device nodes and of the driver's libraries."""

    uuids: frozenset[str]
    nodes: frozenset[str]
    libraries: frozenset[str]
    has_tool: bool
    environment: str

    @property
    def gpu_nodes(self) -> frozenset[str]:
        """The nodes of GPUs, without those that all GPUs share."""
        return frozenset(path for path in self.nodes if GPU_NODE.match(path))

    @property
    def is_blind(self) -> bool:
        """Whether the container has nothing of the driver: no node, no library, no program."""
        return not (self.uuids or self.nodes or self.libraries or self.has_tool)

    @property
    def has_no_driver_files(self) -> bool:
        """Whether nothing was injected, whatever nodes a privileged container has of its host."""
        return not (self.uuids or self.libraries or self.has_tool)


def parse_sight(log: str) -> Sight:
    """Return what a log of ``LOOK`` says; a log without its first line is an error."""
    lines = log.splitlines()
    environment = next(line.removeprefix("env ") for line in lines if line.startswith("env"))
    return Sight(
        uuids=frozenset(uuid for line in lines if line.startswith("GPU ") for uuid in UUID.findall(line)),
        nodes=_after("node ", lines),
        libraries=_after("library ", lines),
        has_tool="tool nvidia-smi" in lines,
        environment=environment,
    )


def _after(word: str, lines: list[str]) -> frozenset[str]:
    return frozenset(line.removeprefix(word) for line in lines if line.startswith(word))
