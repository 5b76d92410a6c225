"""The pages for people who come from other products, tried on nodes that are prepared as the product leaves them.

A node is a temporary folder: the files of the product are in it, the collection's own code reads the facts, the
declaration is the page's, and what the plan writes is written before it is planned again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.files.of_products import read_product_files
from ansible_collections.grapnel.node.plugins.module_utils.files.watched import read_files
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
from ansible_collections.grapnel.node.plugins.module_utils.preflight.foreign_driver import read_foreign_driver

from provision.declaration.fleet.facts.node import Engine, NodeFacts, parse_facts
from provision.declaration.fleet.load import without_inventory
from provision.declaration.spec.load import load_declaration
from provision.planning.draft.node import draft_node
from provision.planning.engines.containerd.base_spec import base_spec
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.planner.plan import plan_node
from provision.planning.products.recognise import recognise
from provision.planning.render.hook_config import HOOK_TIMEOUT_S
from tests.provision.samples import DEBIAN_CONFIG, PAYLOAD, RUNNING, as_json, make_facts, replace, simulate_apply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan

PAGES = Path(__file__).parents[2] / "docs/migrate"
V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
IMPORT = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
HOOK = '{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}, "when": {"always": true}}\n'


def handler(plugin: str, name: str, program: str) -> str:
    at = f'[plugins."{plugin}".containerd.runtimes.{name}'
    options = f'BinaryName = "{program}"\nSystemdCgroup = true\n'
    return f'{at}]\nruntime_type = "io.containerd.runc.v2"\n{at}.options]\n{options}'


CTK = "version = 2\n" + handler(V2, "nvidia", "/usr/bin/nvidia-container-runtime")
TOOLKIT = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
OPERATOR = "version = 3\n" + "".join(handler(V3, name, TOOLKIT) for name in ("nvidia", "nvidia-cdi", "nvidia-legacy"))
DOCKER = """\
{
    "default-runtime": "nvidia",
    "runtimes": {
        "nvidia": {
            "path": "/usr/bin/nvidia-container-runtime",
            "runtimeArgs": []
        }
    }
}
"""
KUBESPRAY = f"""\
version = 3
{{extra}}
root = "/var/lib/containerd"
oom_score = 0
[plugins]
  [plugins."{V3}".containerd]
    default_runtime_name = "runc"
    [plugins."{V3}".containerd.runtimes]
      [plugins."{V3}".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
{{spec}}        [plugins."{V3}".containerd.runtimes.runc.options]
          SystemdCgroup = true
          BinaryName = "/usr/local/bin/runc"
"""
SPEC = '        base_runtime_spec = "/etc/containerd/cri-base.json"\n'
# As `ctr oci spec` prints it, with a limit on open files, which is what kubespray writes.
LIMITED = base_spec(hook_timeout_s=30) | {"hooks": {}}
LIMITED["process"] |= {"rlimits": [{"type": "RLIMIT_NOFILE", "hard": 65535, "soft": 65535}]}
CONTAINERD, CONTAINERD_2, DOCKERD = ("containerd", "1.7.24"), ("containerd", "2.1.4"), ("docker", "26.1.5")


@dataclass(frozen=True)
class Left:
    """What a product leaves, with an engine, and what else it is recognised as."""

    engine: tuple[str, str] | None
    files: Mapping[str, str]
    also: tuple[str, ...] = ()
    removed: tuple[str, ...] = field(default=())
    """Files that the page says to remove before apply."""


LEFT: dict[str, Left] = {
    "nvidia-container-toolkit": Left(
        CONTAINERD,
        {
            "/etc/containerd/config.toml": IMPORT + DEBIAN_CONFIG,
            "/etc/containerd/conf.d/99-nvidia.toml": CTK,
            "/etc/nvidia-container-runtime/config.toml": "[nvidia-container-runtime]\n",
            "/usr/bin/nvidia-ctk": "",
            "/usr/bin/nvidia-container-runtime": "",
            "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json": HOOK,
        },
        removed=("/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",),
    ),
    "nvidia-docker2": Left(
        DOCKERD,
        {"/usr/bin/nvidia-docker": "#!/bin/sh\n", "/etc/docker/daemon.json": DOCKER},
        also=("nvidia-container-toolkit",),
    ),
    "gpu-operator": Left(
        CONTAINERD_2,
        {
            "/etc/containerd/config.toml": f"version = 3\n{IMPORT}",
            "/etc/containerd/conf.d/99-nvidia.toml": OPERATOR,
            TOOLKIT: "",
            "/run/nvidia/validations/driver-ready": "",
            "/run/nvidia/toolkit/toolkit.pid": "7",
        },
    ),
    "runfile": Left(
        None,
        {
            "/usr/bin/nvidia-uninstall": "",
            "/var/log/nvidia-installer.log": "installer version: 570.86.15\n",
            "/var/lib/nvidia/log": "570.86.15\n",
        },
    ),
    "deepops": Left(
        DOCKERD,
        {
            "/etc/ansible/facts.d/gpus.fact": "",
            "/etc/systemd/system/nvidia-persistenced.service.d/override.conf": "[Service]\n",
            "/etc/docker/daemon.json": DOCKER,
        },
        also=("nvidia-container-toolkit",),
    ),
    "kubespray": Left(
        CONTAINERD_2,
        {
            "/etc/containerd/cri-base.json": json.dumps(LIMITED),
            "/etc/kubernetes/kubelet.env": "",
            "/etc/containerd/config.toml": KUBESPRAY.format(extra=IMPORT, spec=""),
        },
    ),
}
CASES = pytest.mark.parametrize("code", list(LEFT))


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def look(root: Path, engine: tuple[str, str] | None, known: NodeFacts | None = None) -> NodeFacts:
    """Return the facts of a node of files, as the collection reads them."""
    host = Host(root, lambda _command, _timeout: Finished(1))
    facts = known or make_facts()
    if engine is not None and known is None:
        name, version = engine
        facts = replace(
            facts,
            engines={name: Engine(binary=f"/usr/bin/{name}", version=version)},
            services={f"{name}.service": RUNNING, "kubelet.service": RUNNING},
        )
    files = {path: state and {**state, "uid": 0, "gid": 0} for path, state in read_files(host, []).items()}
    read = {
        "files": files,
        "product_files": read_product_files(host),
        "foreign_driver": read_foreign_driver(host, lambda _host, _path: True),
    }
    return parse_facts(json.dumps({**as_json(facts), **read}))


def declared(code: str, folder: Path) -> StackSpec:
    """Return the declaration that stands on a page."""
    (block,) = re.findall(r"```yaml\n(apiVersion.*?)```", (PAGES / f"{code}.md").read_text(), re.DOTALL)
    file = folder / "grapnel.yaml"
    file.write_text(block)
    return without_inventory(load_declaration(file)).stack


def plan(facts: NodeFacts, stack: StackSpec) -> NodePlan:
    return plan_node(facts, stack, PAYLOAD)


@CASES
def test_the_product_is_recognised(code: str, tmp_path: Path) -> None:
    write(tmp_path, LEFT[code].files)

    found = [each.product.code for each in recognise(look(tmp_path, LEFT[code].engine))]
    assert sorted(found) == sorted({code, *LEFT[code].also})


@CASES
def test_what_init_writes_changes_nothing(code: str, tmp_path: Path) -> None:
    write(tmp_path, LEFT[code].files)

    assert draft_node(look(tmp_path, LEFT[code].engine), plan).plan.is_empty


@CASES
def test_the_page_s_declaration_converges_and_keeps_what_it_replaces(code: str, tmp_path: Path) -> None:
    left, root = LEFT[code], tmp_path / "node"
    write(root, left.files)
    for path in left.removed:
        assert f"rm {path}" in (PAGES / f"{code}.md").read_text()
        (root / path.lstrip("/")).unlink()
    stack = declared(code, tmp_path)
    stack = msgspec.structs.replace(stack, driver=msgspec.structs.replace(stack.driver, enabled=False))
    facts = look(root, left.engine)
    first = plan(facts, stack)
    assert not first.problems

    after = facts
    for _ in range(3):
        planned = plan(after, stack)
        if planned.is_empty:
            break
        after = simulate_apply(after, planned)
        there = {path: state for path, state in after.files.items() if state is not None}
        write(root, {path: state.content or "" for path, state in there.items()})
        for path, state in there.items():
            (root / path.lstrip("/")).chmod(int(state.mode, 8))
        after = look(root, left.engine, after)
    assert plan(after, stack).is_empty
    theirs = "/etc/containerd/conf.d/99-nvidia.toml"
    if theirs in left.files:
        assert after.content("/etc/containerd/conf.d/99-nvidia-adopted.toml") == left.files[theirs]


def test_kubespray_s_own_base_specification_is_inherited_as_the_page_says(tmp_path: Path) -> None:
    node = dict(LEFT["kubespray"].files) | {"/etc/containerd/config.toml": KUBESPRAY.format(extra="", spec=SPEC)}
    write(tmp_path / "node", node)

    planned = plan(look(tmp_path / "node", CONTAINERD_2), declared("kubespray", tmp_path))

    assert (planned.problems, [each.code for each in planned.warnings]) == ((), ["product-kubespray"])
    assert planned.roles.runtime is not None
    (ours,) = (each for each in planned.roles.runtime.runtime_files if each.path == BASE_SPEC_PATH)
    assert json.loads(ours.content) == LIMITED | {"hooks": base_spec(hook_timeout_s=HOOK_TIMEOUT_S)["hooks"]}
    assert "grapnel's handler has the same limits" in " ".join((PAGES / "kubespray.md").read_text().split())


def test_kubespray_s_next_run_takes_the_import_away_and_the_plan_gives_it_back(tmp_path: Path) -> None:
    root, stack = tmp_path / "node", declared("kubespray", tmp_path)
    without = {"/etc/containerd/config.toml": KUBESPRAY.format(extra="", spec="")}
    write(root, {**LEFT["kubespray"].files, **without})

    facts = look(root, CONTAINERD_2)
    assert ("write", "/etc/containerd/config.toml") in [
        (item.action.value, item.target) for item in plan(facts, stack).items
    ]
    write(root, LEFT["kubespray"].files)
    assert ("write", "/etc/containerd/config.toml") not in [
        (item.action.value, item.target) for item in plan(look(root, CONTAINERD_2), stack).items
    ]
