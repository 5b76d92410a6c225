"""The collection's modules on a booted node: real dpkg, apt, systemd and containerd, reached over ssh."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest

from lab.nodes import NodeSpec, Site
from provision.declaration.fleet.facts.node import parse_facts
from provision.planning.driver_change import DriverChange, ModuleTarget
from provision.planning.engines.containerd.base_spec import render_base_spec
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.sources import find_sources
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "contracts" / "node-facts" / "schema.json"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
CRI = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd'
BASE_SPEC = {"path": BASE_SPEC_PATH, "content": render_base_spec(hook_timeout_s=30)}
TIMEOUT_S = 180


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site of these tests' own, gone before and after."""
    made = Site(of_this_worker("playbooks"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def node(site: Site) -> Node:
    """A node with containerd, as its distribution packages it, that reads drop-ins."""
    made = site.up(NodeSpec("n1", suite="trixie", gpus=2))
    made.run(["apt-get", "-qq", "update"])
    made.run(["sh", "-ec", "DEBIAN_FRONTEND=noninteractive apt-get -qq --no-install-recommends install containerd"])
    config = made.root / "etc/containerd/config.toml"
    config.write_text('imports = ["/etc/containerd/conf.d/*.toml"]\n' + config.read_text())
    made.run(["systemctl", "restart", "containerd"])
    return made


def run_module(site: Site, module: str, **arguments: Any) -> dict[str, Any]:
    """Run one module of the collection on n1 and return its result."""
    command = [str(Path(sys.executable).parent / "ansible"), "n1", "-m", f"grapnel.node.{module}"]
    done = subprocess.run(
        [*command, "-i", str(site.inventory_path), *(["-a", json.dumps(arguments)] if arguments else [])],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "playbooks" / "collections")},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    match = re.search(r"^n1 \| ([A-Z]+)!? => ", done.stdout, re.MULTILINE)
    assert match, done.stdout + done.stderr
    result: dict[str, Any] = json.JSONDecoder().raw_decode(done.stdout, match.end())[0]
    return {**result, "failed": match[1] == "FAILED"}


def configure(
    site: Site,
    text: str,
    base_spec: dict[str, str] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    arguments = {"unit": "containerd.service", "engine": "containerd", "restart": True, **arguments}
    files = [{**BASE_SPEC, **(base_spec or {})}, {"path": DROP_IN, "content": text}]
    return run_module(site, "configuration", files=files, **arguments)


def handler_of(node: Node) -> str:
    """Return our drop-in for what the node's containerd is configured with."""
    main = (node.root / "etc/containerd/config.toml").read_text()
    return render_containerd(main=main, drop_ins={}, handlers=("nvidia",), engine_version="1.7.24").drop_in


def facts_of(site: Site) -> dict[str, Any]:
    facts: dict[str, Any] = run_module(site, "facts")["facts"]
    return facts


def runs_containerd(node: Node) -> bool:
    listed = node.run(["ctr", "plugins", "ls"], check=False).stdout
    return any(row.split()[1:2] == ["cri"] and row.endswith("ok") for row in map(str.rstrip, listed.splitlines()))


def test_facts_keep_the_contract(site: Site, node: Node) -> None:
    facts = facts_of(site)

    jsonschema.validate(facts, json.loads(SCHEMA.read_text()))
    parsed = parse_facts(facts, node="n1")
    assert parsed.node.os.codename == "trixie"
    assert [gpu.address for gpu in parsed.gpus] == sorted(gpu.pci_address for gpu in node.gpus)
    assert parsed.packages["containerd"].version == node.run(["dpkg-query", "-Wf${Version}", "containerd"]).stdout
    assert {"535.309.01", "550.163.01"} <= {one.version.split("-")[0] for one in parsed.available["libcuda1"]}
    assert parsed.service("containerd.service").active == "active"
    assert parsed.engines["containerd"] is not None
    assert parsed.package_manager.lists_error is None
    assert not parsed.package_manager.interrupted


def test_facts_see_an_interrupted_dpkg_and_a_hold(site: Site, node: Node) -> None:
    node.run(["apt-mark", "hold", "containerd"])
    node.run(["dpkg", "--unpack", *_package(node, "libnvidia-ptxjitcompiler1")], check=False)
    try:
        facts = facts_of(site)
    finally:
        node.run(["dpkg", "--purge", "--force-all", "libnvidia-ptxjitcompiler1"])
        node.run(["apt-mark", "unhold", "containerd"])

    assert facts["package_manager"]["interrupted"] is True
    assert facts["packages"]["libnvidia-ptxjitcompiler1"]["status"] == "unpacked"
    assert facts["packages"]["containerd"]["hold"] is True
    assert facts_of(site)["package_manager"]["interrupted"] is False


def _package(node: Node, name: str) -> list[str]:
    """Download a package to the node; returns its file there."""
    node.run(["sh", "-ec", f"cd /root && apt-get -qq download {name}"])
    return [node.run(["sh", "-ec", f"ls /root/{name}_*.deb"]).stdout.strip()]


def test_a_change_is_in_force_and_the_second_run_changes_nothing(site: Site, node: Node) -> None:
    first = configure(site, handler_of(node))
    second = configure(site, handler_of(node), restart=False)

    assert first["changed"] is True, first
    assert second["changed"] is False
    assert "runtimes.nvidia]" in node.run(["containerd", "config", "dump"]).stdout
    assert runs_containerd(node)


@pytest.mark.parametrize(
    ("text", "base_spec", "message"),
    [
        ("version = 2\n[plugins\n", {}, f"nothing was changed: containerd: failed to load TOML: {DROP_IN}: (2, 2)"),
        (f"{CRI}]\ndefault_runtime_name = 3\n", {}, "nothing was changed: containerd: (3, 1): Can't convert 3"),
        (f'{CRI}]\ndefault_runtime_name = "x"\n', {}, "default_runtime_name would go from runc to x"),
        ("", {"content": "{"}, "and containerd.service works with them"),
    ],
    ids=[
        "no TOML",
        "a wrong type in a plugin's table",
        "another setting than the handler",
        "a file that only the started plugin finds wrong",
    ],
)
def test_a_configuration_that_containerd_does_not_take_leaves_all_as_it_was(
    text: str, base_spec: dict[str, str], message: str, site: Site, node: Node
) -> None:
    before = node.run(["sh", "-ec", "find /etc/containerd /etc/grapnel -type f | sort | xargs sha256sum"]).stdout

    result = configure(site, text or handler_of(node), base_spec, timeout_s=5)

    assert result["failed"] is True
    assert message in result["msg"]
    assert (
        node.run(["sh", "-ec", "find /etc/containerd /etc/grapnel -type f | sort | xargs sha256sum"]).stdout == before
    )
    assert node.run(["sh", "-ec", "ls -A /run/grapnel/restart"]).stdout == ""
    assert runs_containerd(node)


DEBIAN_NAMES = """
cd /usr/lib/modules/$(uname -r)/updates && mv nvidia.ko nvidia-current.ko && depmod
echo 'install nvidia modprobe -i nvidia-current $CMDLINE_OPTS' > /etc/modprobe.d/nvidia.conf
"""


def swap_module(site: Site, version: str) -> dict[str, Any]:
    """Let the program on the node load a version of the module; it has no packages to install."""
    change = DriverChange(
        version=version, flavour="none", manager="apt", packages=(), module=ModuleTarget(version=version)
    )
    document = msgspec.to_builtins(change)
    staged = run_module(site, "driver", verb="stage", change=document)
    assert not staged["failed"], staged
    return run_module(site, "driver", verb="swap", change=document)


def test_the_kernel_module_is_found_loaded_and_exchanged_under_debian_s_names(
    site: Site, node: Node, tmp_path: Path
) -> None:
    archive, _ = write_archive(tmp_path, "driver", find_sources(ROOT).driver_entries())
    home = node.root / "usr/lib/grapnel/driver"
    home.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(home)], check=True)
    node.install_module("535.309.01")
    node.run(["sh", "-ec", DEBIAN_NAMES])
    try:
        on_disk = facts_of(site)["module"]
        first = swap_module(site, "535.309.01")
        loaded = node.run(["ls", "/sys/module"]).stdout.split()
        before = facts_of(site)["module"]
        node.install_module("550.163.01")
        node.run(["sh", "-ec", DEBIAN_NAMES])
        exchanged = swap_module(site, "550.163.01")
        again = swap_module(site, "550.163.01")
        module = facts_of(site)["module"]
    finally:
        node.run(["rm", "/etc/modprobe.d/nvidia.conf"])

    assert (on_disk["loaded"], on_disk["on_disk"]) == (False, "535.309.01")
    assert first["status"]["run"]["state"] == "done", first
    assert {"nvidia", "nvidia_uvm"} <= {*loaded}
    assert (before["version"], before["on_disk"]) == ("535.309.01", "535.309.01")
    assert (exchanged["changed"], exchanged["status"]["run"]["state"]) == (True, "done"), exchanged
    assert again["changed"] is False
    assert (module["version"], module["on_disk"]) == ("550.163.01", "550.163.01")


OLDER = "#!/bin/sh\necho \"grapnel-node: error: invalid choice: '$1' (choose from run, devices)\" >&2\nexit 2\n"


def test_a_node_without_a_daemon_or_with_an_older_one_says_so(site: Site, node: Node) -> None:
    absent = run_module(site, "daemon", verb="release")
    optional = run_module(site, "daemon", verb="release", optional=True)
    launcher = node.root / "usr/lib/grapnel/node/grapnel-node"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(OLDER)
    launcher.chmod(0o755)
    older = run_module(site, "daemon", verb="release", optional=True)
    launcher.unlink()

    assert absent["failed"] is True
    assert "this node has no grapnel-node" in absent["msg"]
    assert (optional["failed"], optional["installed"]) == (False, False)
    assert optional["daemon"] == {"released": True, "holders": []}
    assert older["failed"] is True
    assert "does not know `release`" in older["msg"]
    assert "--tags node_daemon" in older["msg"]


def test_the_daemon_is_not_ended_under_claims(site: Site, node: Node) -> None:
    claim = node.root / "var/lib/grapnel/node/claims/1.json"
    claim.parent.mkdir(parents=True)
    claim.write_text(json.dumps({"namespace": "ml", "name": "train"}))
    found = run_module(site, "daemon", verb="unclaimed")
    claim.unlink()
    assert found["failed"]
    assert "ml/train" in found["msg"]
    assert not run_module(site, "daemon", verb="unclaimed")["failed"]
