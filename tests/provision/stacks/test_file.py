"""A GpuStack of a cluster in a file, before it is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.controller.stacks.file import judge_stack, read_stack_file
from provision.controller.stacks.model import WhenDeleted
from provision.declaration.spec.errors import DeclarationError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\n"
GOOD = f"""{HEAD}metadata:
  name: training
  labels: {{team: ml}}
  resourceVersion: "7"
spec:
  nodeSelector:
    matchLabels: {{pool: training}}
  driver: {{version: "550.163.01"}}
status: {{state: AsDeclared}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "stack.yaml"
    path.write_text(text)
    return path


def errors(folder: Path, text: str) -> list[tuple[int, str, str]]:
    document = read_stack_file(write(folder, text))
    assert document is not None
    with pytest.raises(DeclarationError) as caught:
        judge_stack(document)
    return [(each.place.line, each.key, each.message) for each in caught.value.findings]


def test_an_object_that_was_read_from_a_cluster_is_a_file_as_well(tmp_path: Path) -> None:
    document = read_stack_file(write(tmp_path, GOOD))
    assert document is not None
    stack, warnings = judge_stack(document)
    assert (stack.name, stack.spec.driver.version, warnings) == ("training", "550.163.01", [])
    assert stack.selector.matches({"pool": "training"})
    assert not stack.selector.matches({})


def test_rules_are_judged_beside_errors_that_they_have_nothing_to_do_with(tmp_path: Path) -> None:
    wrong = GOOD.replace("  driver:", "  runtime: {engine: podman, adopt: 5}\n  driver:")
    assert [key for _, key, _ in errors(tmp_path, wrong)] == ["spec.runtime.entitlement", "spec.runtime.adopt"]


def test_what_becomes_of_nodes_of_a_deleted_stack_is_read_and_judged(tmp_path: Path) -> None:
    """`check` and `plan` took it for an unknown key."""
    document = read_stack_file(write(tmp_path, GOOD.replace("  driver:", "  whenDeleted: Remove\n  driver:")))
    assert document is not None
    assert judge_stack(document)[0].when_deleted is WhenDeleted.REMOVE
    wrong = GOOD.replace("  driver:", "  whenDeleted: Purge\n  driver:")
    assert errors(tmp_path, wrong) == [(10, "spec.whenDeleted", "is Keep or Remove")]


@pytest.mark.parametrize("text", [f"{HEAD}spec: {{}}\n", "[]\n", ": : :\n"])
def test_a_file_without_a_selector_is_somebody_elses(tmp_path: Path, text: str) -> None:
    assert read_stack_file(write(tmp_path, text)) is None


def test_errors_have_places(tmp_path: Path) -> None:
    text = f"{HEAD}metadata: {{name: a}}\nspec:\n  nodeSelector: {{matchNames: x}}\n  driver:\n    verzion: '1'\n"
    assert errors(tmp_path, text) == [
        (5, "spec.nodeSelector", "is no label selector: it has matchLabels, matchExpressions, or both"),
        (7, "spec.driver.verzion", "unknown key"),
    ]


def test_what_only_the_machine_of_an_operator_has_is_refused_at_its_place(tmp_path: Path) -> None:
    text = GOOD.replace("status: {state: AsDeclared}\n", "  rollout:\n    waves:\n    - groups: [a]\n    - {}\n")
    assert errors(tmp_path, text) == [
        (13, "spec.rollout.waves[0].groups", "a cluster has no groups of an inventory (list hosts, or a size)")
    ]


def test_a_name_is_needed(tmp_path: Path) -> None:
    text = f"{HEAD}spec:\n  nodeSelector: {{}}\n  driver: {{branch: '550'}}\n"
    assert [key for _line, key, _message in errors(tmp_path, text)] == ["metadata.name"]
