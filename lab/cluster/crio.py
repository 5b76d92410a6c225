"""Adds a node with CRI-O from the path in ``CRIO``, as no package source has it.

``pinns``, with which CRI-O pins a pod's namespaces, is built together with it and expected in the same folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster.errors import ClusterError
from lab.cluster.spec import DEFAULT, ClusterNode, ClusterSpec, Engine

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "CRIO"
NODE = "n4"
WITHOUT = f"there is no CRI-O: no package source has it; {VARIABLE}=PATH names its program"


def stage_spec(environment: Mapping[str, str]) -> ClusterSpec:
    """Return the default nodes, and one more if the environment names a CRI-O.

    Raises `ClusterError` if it names something else.
    """
    named = environment.get(VARIABLE)
    if not named:
        return DEFAULT
    crio, _ = crio_programs(named)
    return ClusterSpec((*DEFAULT.nodes, ClusterNode(NODE, engine=Engine.CRIO, program=str(crio))))


def crio_programs(named: str) -> tuple[Path, Path]:
    """Return the absolute paths of crio and pinns. Raises `ClusterError`."""
    crio = Path(named).absolute()
    for program in (crio, pinns := crio.with_name("pinns")):
        if not (program.is_file() and os.access(program, os.X_OK)):
            hint = f"{VARIABLE} is the path of CRI-O's program, with pinns in the same folder; unset it for none"
            raise ClusterError(f"{VARIABLE}={named}: {program} is not an executable file", hint=hint)
    return crio, pinns
