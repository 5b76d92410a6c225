"""CRI-O only: the hook file, matched by annotations, starts the hook only for containers with a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.visitors import ENTITLED, VISITORS

if TYPE_CHECKING:
    from tests.e2e.stage import LabNode, Stage
    from tests.e2e.visits import Visit, Visits

pytestmark = pytest.mark.e2e

HOOK = "/usr/lib/grapnel/hook/grapnel-hook"
# CRI-O lets annotations of the pod take part in the match: whoever forges ours has the hook started, for nothing.
STARTED = {*ENTITLED, "forged annotations", "privileged, and forged annotations", "beside a container with one GPU"}


@pytest.fixture(scope="module")
def crio_node(stage: Stage) -> LabNode:
    """The node whose engine is CRI-O."""
    found = [node for node in stage.lab_nodes if node.engine == "crio"]
    if not found:
        pytest.skip("no node of this cluster has CRI-O")
    return found[0]


def hooks_of(visit: Visit) -> dict[str, list[str]]:
    """Return the programs of each stage in a container's configuration."""
    hooks = visit.config.get("hooks") or {}
    return {stage: [hook["path"] for hook in entries] for stage, entries in hooks.items()}


@pytest.mark.parametrize("title", VISITORS)
def test_the_hook_is_started_for_containers_with_a_gpu_alone(title: str, crio_node: LabNode, visits: Visits) -> None:
    (visit,) = [each for each in visits.of(title) if each.node.name == crio_node.name]

    assert hooks_of(visit) == ({"createRuntime": [HOOK]} if title in STARTED else {})
