"""An engine's configuration that somebody edited, and an engine that does not come back with ours."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import ROOT, fingerprint

if TYPE_CHECKING:
    import subprocess

    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes

DROP_IN = "etc/containerd/conf.d/99-nvidia.toml"
OVERRIDE = "etc/systemd/system/containerd.service.d/refuse.conf"
REASON = "it does not like this file"


def playbook(controller: Controller, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["ansible-playbook", str(ROOT / "playbooks/site.yml"), "-i", "inventory.yaml", "--limit", "n1", *words]
    return controller.run(*command, "-e", f"grapnel_stack_file={controller.folder / 'grapnel.yaml'}")


def edit(node: Node) -> str:
    """Have somebody edit our drop-in; return what it says then."""
    place = node.root / DROP_IN
    text = place.read_text().replace("container_annotations = [", "snapshotter = 'native'\ncontainer_annotations = [")
    place.write_text(text)
    return text


def kept(node: Node) -> list[str]:
    """Return the edited files that were kept, and take them away."""
    found = sorted(Path(node.root, "etc/containerd").glob("99-nvidia.toml.edited-*"))
    texts = [path.read_text() for path in found]
    for path in found:
        path.unlink()
    return texts


def test_an_edited_drop_in_is_left_alone_until_somebody_says_to_overwrite_it(
    gpu_node: Node, controller: Controller
) -> None:
    edited = edit(gpu_node)
    before = fingerprint(gpu_node)

    refused = controller.grapnel("apply", "--yes", "n1")
    by_playbook = playbook(controller)
    after = fingerprint(gpu_node)
    report = json.loads(controller.grapnel("report", "--json").stdout)
    forced = controller.run(*shlex.split(report["troubles"][0]["command"]), "--yes")

    assert (refused.returncode, by_playbook.returncode) == (1, 2), refused.stdout + by_playbook.stdout
    for done in (refused, by_playbook):
        words = " ".join(done.stdout.split())
        assert f"/{DROP_IN}" in words
        assert "snapshotter is added" in words
    assert after == before
    assert forced.returncode == 0, forced.stdout + forced.stderr
    assert kept(gpu_node) == [edited]
    assert controller.plan_items("n1") == []


def test_a_playbook_overwrites_an_edited_drop_in_with_its_variable(gpu_node: Node, controller: Controller) -> None:
    edited = edit(gpu_node)

    done = playbook(controller, "-e", "grapnel_force=true")

    assert done.returncode == 0, done.stdout + done.stderr
    assert kept(gpu_node) == [edited]
    assert controller.plan_items("n1") == []


def test_an_engine_that_does_not_come_back_gets_its_files_back_and_is_quoted(
    gpu_node: Node, controller: Controller
) -> None:
    drop_in, override = gpu_node.root / DROP_IN, gpu_node.root / OVERRIDE
    drop_in.unlink()
    gpu_node.run(["systemctl", "restart", "containerd"])
    override.parent.mkdir(exist_ok=True)
    override.write_text(
        f"[Service]\nExecStartPre=/bin/sh -c 'test ! -e /{DROP_IN} || {{ echo \"{REASON}\"; exit 1; }}'\nRestart=no\n"
    )
    gpu_node.run(["systemctl", "daemon-reload"])

    failed = controller.grapnel("apply", "--yes", "n1")
    still_runs = gpu_node.run(["systemctl", "is-active", "containerd"]).stdout.strip()
    was_put_back = not drop_in.exists()
    override.unlink()
    gpu_node.run(["systemctl", "daemon-reload"])

    words = " ".join(failed.stdout.split())
    assert failed.returncode == 1, words
    assert REASON in words
    assert "the files were put back, and containerd.service works with them" in words
    assert (still_runs, was_put_back) == ("active", True)
    controller.converge("n1")
