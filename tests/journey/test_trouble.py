"""Failures of real fleets: nothing is lost, nothing is half done, and the reason is reported."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from tests.journey.conftest import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes

CONTAINERD_CONFIG = "etc/containerd/config.toml"
WAIT_S = 120.0


def test_a_version_that_does_not_exist_is_found_before_anything_is_changed(
    gpu_node: Node, controller: Controller
) -> None:
    controller.declare("550.999.99")
    before = fingerprint(gpu_node)

    planned = controller.grapnel("plan", "n1")
    applied = controller.grapnel("apply", "--yes", "n1")

    assert (planned.returncode, applied.returncode) == (1, 1)
    assert "550.999.99" in planned.stdout
    assert "550.163.01" in planned.stdout  # what there is instead
    assert fingerprint(gpu_node) == before


def test_an_unreachable_node_does_not_stop_the_others(gpu_node: Node, controller: Controller, site: Site) -> None:
    inventory = controller.folder / "inventory.yaml"
    inventory.unlink()
    inventory.write_text(
        site.inventory_path.read_text().replace(
            "  hosts:\n", "  hosts:\n    ghost:\n      ansible_host: 127.0.0.99\n", 1
        )
    )
    gpu_node.run(["apt-mark", "unhold", "libcuda1"])

    done = controller.grapnel("apply", "--yes", "n1,ghost")

    assert done.returncode == 1
    assert "unreachable" in done.stdout
    assert "converged" in done.stdout
    assert "libcuda1" in gpu_node.run(["apt-mark", "showhold"]).stdout


@pytest.fixture
def person(gpu_node: Node) -> Iterator[str]:
    """Somebody on the node who logs in with the lab's key and may become root with a password."""
    gpu_node.run(["useradd", "--create-home", "--groups", "sudo", "ada"])
    gpu_node.run(["sh", "-c", "cp -r /root/.ssh /home/ada/ && chown -R ada /home/ada && echo ada:right | chpasswd"])
    yield "ada"
    gpu_node.run(["userdel", "--remove", "ada"], check=False)


def connect(site: Site, controller: Controller, known_hosts: Path, **variables: object) -> None:
    """Have the controller reach n1 in a way of its own, not by the connection that the lab keeps open."""
    settings = (word for word in site.access.options() if word != "-o" and not word.startswith("Control"))
    told = (word.replace(str(site.access.known_hosts), str(known_hosts)) for word in settings)
    words = [word for each in told for word in ("-o", each)]
    own = controller.folder / "host_vars" / "n1.yaml"
    own.parent.mkdir(exist_ok=True)
    own.write_text(json.dumps({"ansible_ssh_args": shlex.join(["-F", "none", *words]), **variables}))


@pytest.mark.parametrize(
    ("password", "said", "code"),
    [
        pytest.param("wrong", "the password for sudo is wrong: check ansible_become_password", 1, id="wrong"),
        pytest.param(None, "sudo asks for a password, and none is given: set ansible_become_password", 1, id="missing"),
        pytest.param("right", "as declared", 0, id="right"),
    ],
)
def test_what_is_wrong_with_a_password_is_said(  # noqa: PLR0917 - three of them are a case
    password: str | None, said: str, code: int, site: Site, controller: Controller, person: str
) -> None:
    become = {"ansible_become": True, "ansible_become_password": password} if password else {"ansible_become": True}
    connect(site, controller, site.access.known_hosts, ansible_user=person, **become)

    done = controller.grapnel("plan", "n1")

    assert said in " ".join(done.stdout.split()), done.stdout + done.stderr
    assert done.returncode == code


def test_a_host_key_that_has_changed_is_told_with_its_line(
    gpu_node: Node, site: Site, controller: Controller, tmp_path: Path
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"{gpu_node.address} {(tmp_path / 'other.pub').read_text()}")
    connect(site, controller, known_hosts)

    done = controller.grapnel("plan", "n1")

    words = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert (
        f"its host key is not the one in {known_hosts}:1: remove that line if the machine was installed again" in words
    )


@pytest.mark.parametrize(
    ("place", "options", "said"),
    [
        pytest.param(
            "/etc/grapnel",
            "",
            "/etc/grapnel/hook.json could not be written: Read-only file system; all files are as they were",
            id="read-only",
        ),
        pytest.param(
            "/usr/lib/grapnel",
            "size=1m",
            "its disk is full (/usr/lib/grapnel/releases): `df -h` and `df -i` on the machine show where; make room",
            id="full",
        ),
    ],
)
def test_a_disk_that_takes_no_more_is_told_and_the_next_apply_has_it(
    place: str, options: str, said: str, gpu_node: Node, controller: Controller
) -> None:
    hold = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place] if options else ["mount", "--bind", place, place]
    gpu_node.run(["chmod", "0600", "/etc/grapnel/hook.json"])
    before = fingerprint(gpu_node)
    gpu_node.run(hold)
    try:
        if not options:
            gpu_node.run(["mount", "-o", "remount,bind,ro", place])
        done = controller.grapnel("apply", "--yes", "n1")
    finally:
        gpu_node.run(["umount", place])

    words = " ".join(done.stdout.split())
    assert done.returncode == 1, words
    assert said in words
    assert fingerprint(gpu_node) == before
    controller.converge("n1")
    assert controller.plan_items("n1") == []


def test_a_broken_engine_configuration_is_refused_with_the_parsers_words(
    gpu_node: Node, controller: Controller
) -> None:
    config = gpu_node.root / CONTAINERD_CONFIG
    good = config.read_text()
    broken = good + "\n[plugins\n"
    config.write_text(broken)
    try:
        before = fingerprint(gpu_node)
        done = controller.grapnel("apply", "--yes", "n1")
        after = fingerprint(gpu_node)
    finally:
        config.write_text(good)

    assert done.returncode == 1
    assert "/etc/containerd/config.toml" in done.stdout
    assert "line" in done.stdout
    assert after == before
    assert controller.plan_items("n1") == []


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="kill -9"),
        pytest.param(signal.SIGINT, id="control-c", marks=pytest.mark.long),
    ],
)
def test_a_killed_apply_converges_when_it_is_run_again(how: signal.Signals, site: Site, controller: Controller) -> None:
    name = f"cut-{how.value}"
    node = site.up(NodeSpec(name, suite="trixie", gpus=1))
    with subprocess.Popen(
        ["grapnel", "apply", "-i", "inventory.yaml", "--yes", name],
        cwd=controller.folder,
        env=controller.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as killed:
        wait_for_dpkg(node)
        os.kill(killed.pid, how)

    controller.converge(name)

    assert node.run(["dpkg", "--audit"]).stdout == ""
    assert node.run(["nvidia-smi", "--help"]).stdout.startswith("NVIDIA System Management Interface")
    site.remove(name)


def wait_for_dpkg(node: Node) -> None:
    """Return when the node is in the middle of installing packages."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        # Not any dpkg: facts are gathered by short ones. The brackets keep ssh's own shell from being found.
        if node.run(["pgrep", "-f", "[d]pkg .*--(unpack|configure)"], check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"no dpkg was seen on {node.name} within {WAIT_S:g} s")
