"""The stored samples match what engines pass on today, also in neighbouring versions.

``GRAPNEL_UPDATE_SAMPLES=1 make e2e`` rewrites them; review the difference.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.e2e.samples import (
    SCHEMA,
    Json,
    Names,
    deciding,
    folder_of,
    kind_of,
    reduce_config,
    reduce_hook,
    stored_for,
)
from tests.e2e.visitors import VISITORS

if TYPE_CHECKING:
    from tests.e2e.stage import LabNode, Stage
    from tests.e2e.visits import Visit, Visits

pytestmark = pytest.mark.e2e

UPDATE = "GRAPNEL_UPDATE_SAMPLES"
SAMPLED = [title for title, visitor in VISITORS.items() if visitor.sample]


@pytest.fixture(scope="module")
def hook_lines(lab_nodes: tuple[LabNode, ...], visits: Visits) -> dict[str, dict[str, str]]:
    """What the hooks of all nodes said, by container, once every visitor has been there."""
    assert visits
    return {container: line for node in lab_nodes for container, line in node.hook_lines().items()}


@pytest.mark.parametrize("title", SAMPLED)
def test_engines_hand_over_what_the_samples_say(
    title: str, visits: Visits, hook_lines: dict[str, dict[str, str]], stage: Stage
) -> None:
    visitor = VISITORS[title]
    for visit in visits.of(title):
        fresh = sample_of(title, visit, hook_lines.get(visit.container_id), stage)
        name = f"{kind_of(is_entitled=visitor.is_entitled)}/{visitor.sample}.json"
        if UPDATE in os.environ:
            path = folder_of(visit.node.engine) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(fresh, indent=2) + "\n")
        path = stored_for(visit.node.engine) / name
        assert deciding(fresh) == deciding(json.loads(path.read_text())), f"{path}: set {UPDATE}=1 to rewrite it"


def sample_of(title: str, visit: Visit, hook_line: dict[str, str] | None, stage: Stage) -> Json:
    """Return the sample of one visit."""
    node = visit.node.lab
    assert node is not None
    names = Names.of(visit.config, node.gpu_paths(), node.device_numbers())
    engine, _, version = visit.node.engine.partition("://")
    node_info = stage.api.node(visit.node.name).status.node_info
    return {
        "schema": SCHEMA,
        "engine": engine,
        "version": version.partition("+")[0],
        "kubernetes": node_info.kubelet_version,
        "container": title,
        "hook": reduce_hook(hook_line, names),
        "config": reduce_config(visit.config, names),
    }
