"""What a real containerd reads of a distribution's recorded configuration with our file in it.

The distributions themselves are in no package source. Their containerd is; a template is rendered here as far as our
part of it goes: the recorded file in the place of k3s's base, microk8s's variables replaced as its start script does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab.cri.engine import packages, unpack
from lab.golang import containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.kubernetes.template import BASE_TEMPLATE
from tests.provision.planner.test_kubernetes_engines import NODES, recorded, stack_of, written
from tests.provision.render.test_containerd_itself import dump, take_runtimes
from tests.provision.samples import plan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

MICROK8S = {
    "${SNAPSHOTTER}": "overlayfs",
    "${RUNTIME}": "runc",
    "${RUNTIME_TYPE}": "io.containerd.runc.v2",
    "${SNAP_DATA}": "/var/snap/microk8s/7964",
    "${SNAP}": "/snap/microk8s/7964",
}


@dataclass(frozen=True)
class Case:
    """A node of the tables, what its distribution has recorded, and the containerd that it brings."""

    node: str
    recorded: str
    program: str


CASES = [
    Case("k3s that imports drop-ins", "k3s-1.35-imports.toml", "2"),
    Case("k3s with containerd 2 before it imported drop-ins", "k3s-1.32.toml", "2"),
    Case("k3s with containerd 1.7", "k3s-1.28.toml", "trixie"),
    Case("k0s with containerd 2, a controller that works", "k0s-1.36.toml", "2"),
    Case("microk8s", "microk8s-template.toml", "trixie"),
    Case("microk8s", "microk8s-template.toml", "2"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders of programs: Debian 13's containerd 1.7, and 2 from its modules."""
    return {
        "trixie": unpack(packages("trixie"), tmp_path_factory.mktemp("containerd")),
        "2": containerd(),
    }


def replaced(text: str) -> str:
    for name, value in MICROK8S.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.node}, containerd {case.program}")
def test_the_handler_is_new_and_everything_else_as_the_distribution_has_it(
    case: Case, programs: dict[str, Path], tmp_path: Path
) -> None:
    facts, path, _, _ = NODES[case.node]
    (engine,) = facts.engines
    text, base = written(plan(facts, stack_of(engine)), path), replaced(recorded(case.recorded))
    before_path, main_path = tmp_path / "before.toml", tmp_path / "config.toml"
    before_path.write_text(base)
    if path.endswith("99-nvidia.toml"):
        folder = tmp_path / "drop-ins"
        folder.mkdir()
        (folder / "99-nvidia.toml").write_text(text)
        main_path.write_text(base.replace(path.rpartition("/")[0], str(folder)))
    else:
        main_path.write_text(replaced(text).replace(BASE_TEMPLATE, base))

    before, after = dump(programs[case.program], before_path), dump(programs[case.program], main_path)
    runtimes_before, runtimes_after = take_runtimes(before), take_runtimes(after)

    handler: dict[str, Any] = runtimes_after.pop("nvidia")
    assert handler["base_runtime_spec"] == BASE_SPEC_PATH
    assert handler["options"] == runtimes_before["runc"]["options"]
    assert (after, runtimes_after) == (before, runtimes_before)
