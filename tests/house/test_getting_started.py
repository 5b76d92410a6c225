"""The page keeps its promise: five commands, and what they need is on it."""

from __future__ import annotations

from tests.e2e.getting_started import read_guide


def test_a_cluster_has_a_pod_with_a_gpu_after_five_commands() -> None:
    guide = read_guide()

    assert len(guide.first) == 5
    assert [command.split()[1] for command in guide.later] == ["upgrade", "rollback", "uninstall"]


def test_every_file_that_a_command_names_is_on_the_page() -> None:
    guide = read_guide()
    named = {word for command in guide.first for word in command.split() if word.endswith(".yaml")}

    assert named == set(guide.files)
