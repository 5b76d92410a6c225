"""``site.yml`` with a branch in the place of a version: one version for all nodes that declare the same."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.attack.attacks import HONEST
from tests.attack.stand_ins import StandIns, recorded
from tests.journey.conftest import ROOT, Controller

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{{driver}, kernelModule: none}}
  runtime: {{enabled: false}}
  plugin: {{enabled: false}}
"""
# The plan fails, and says which version the node was given: the module of another driver is on the disk.
GIVEN = re.compile(r"fatal: \[(\w+)\].*?driver (\S+) needs kernel module", re.DOTALL)
OLDER, NEWER = "535.261.03", "535.309.01"
DECLARED, NEWEST = "550.163.01", "550.190.01"  # the first one is on the nodes


def without(version: str) -> dict[str, Any]:
    """Return the facts of a node whose package sources do not have a version."""
    answer = recorded("n2")
    available = answer["facts"]["available"]
    for name, packages in available.items():
        available[name] = [each for each in packages if not each["version"].startswith(version)]
    return answer


def play(
    folder: Path, others: dict[str, dict[str, Any]], *, branch: str = "", driver: str = "", **variables: object
) -> str:
    """Run the playbook on a node that can have both versions, then on others, and return what it says."""
    controller = Controller(folder)
    folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(driver=driver or f'branch: "{branch}"'))
    fleet = StandIns(controller)
    fleet.prepare((), {}, {name: {"facts": facts} for name, facts in others.items()})
    given = {"grapnel_stack_file": str(folder / "grapnel.yaml"), **variables}
    argv = ["ansible-playbook", str(ROOT / "playbooks/site.yml"), "-i", "inventory.yaml", "--check", "-v"]
    done = controller.run(*argv, "-e", json.dumps(given))
    return done.stdout + done.stderr


def test_all_nodes_are_given_the_newest_version_that_each_can_have(tmp_path: Path) -> None:
    said = play(tmp_path, {"n2": without(NEWER)}, branch="535")
    assert dict(GIVEN.findall(said)) == {HONEST: OLDER, "n2": OLDER}


def with_newer(*, is_all: bool) -> dict[str, Any]:
    """Return the facts of a node whose package sources have a newer version too, or it alone."""
    answer = recorded("n2")
    for packages in answer["facts"]["available"].values():
        newer = [{**each, "version": each["version"].replace(DECLARED, NEWEST)} for each in packages]
        packages[:] = newer if is_all else [*packages, *newer]
    return answer


@pytest.mark.parametrize(
    ("is_all", "said"),
    [
        pytest.param(
            False,
            "the version of branch 550 that nodes with the same declaration were given",
            id="has it",
            marks=pytest.mark.long,
        ),
        pytest.param(True, f"were given {DECLARED}, and n2 can have {NEWEST} of driver branch 550", id="has it not"),
    ],
)
def test_a_later_batch_is_given_what_the_first_one_was(is_all: bool, said: str, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    assert said in play(tmp_path, {"n2": with_newer(is_all=is_all)}, branch="550", grapnel_serial=1)


@pytest.mark.parametrize("declares", ['version: "550.163.01"', 'branch: "550"'])
def test_a_bundle_is_left_to_grapnel_apply(declares: str, tmp_path: Path) -> None:
    """A playbook hands no files of bundles to nodes, and does not take packages from anywhere else instead."""
    source = f"{declares}, source: bundle, repository: {{folder: /srv/grapnel/drivers.bundle}}"
    said = play(tmp_path, {}, driver=source)
    assert "driver.source is bundle, which playbooks do not hand to nodes" in said
    assert "use `grapnel apply` for these nodes" in said
