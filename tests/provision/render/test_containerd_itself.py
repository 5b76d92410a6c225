"""What a real containerd understands when it reads our files: the handler is new, everything else is as it was."""

from __future__ import annotations

import json
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from lab import golang, images
from lab.cri.engine import Handler, containerd, default_spec, packages, unpack
from lab.golang.programs import NEWEST_CONTAINERD_VERSION
from provision.planning.engines.containerd.base_spec import base_spec, inherit_base_spec
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import PLUGINS
from provision.planning.engines.files.hook import HOOK_PATH
from provision.planning.render.errors import EngineConfigError
from tests.provision.samples import DEBIAN_CONFIG

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 60

pytestmark = pytest.mark.functional
CUSTOMISED = DEBIAN_CONFIG.replace(
    '      bin_dir = "/usr/lib/cni"',
    '      bin_dir = "/opt/cni/bin"',
) + (
    '  [plugins."io.containerd.grpc.v1.cri".containerd]\n'
    '    snapshotter = "native"\n'
    '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
    '    runtime_type = "io.containerd.runc.v2"\n'
    '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\n'
    "    SystemdCgroup = true\n"
)


@pytest.fixture(scope="module", params=["bookworm", "trixie", pytest.param("2.4", marks=pytest.mark.long)])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a suite's containerd, 1.6 and 1.7, and of the newest, which is built from its module."""
    if request.param == "2.4":
        return golang.containerd(NEWEST_CONTAINERD_VERSION)
    return unpack(packages(request.param), tmp_path_factory.mktemp("containerd"))


def output_of(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return done.stdout


def dump(programs: Path, config: Path) -> dict[str, Any]:
    """Return the configuration that containerd would run with."""
    return tomllib.loads(output_of(programs / "containerd", "--config", config, "config", "dump"))


def engine_version(programs: Path) -> str:
    return output_of(programs / "containerd", "--version").split()[2].removeprefix("v").partition("~")[0]


def take_runtimes(tree: dict[str, Any]) -> dict[str, Any]:
    """Take the runtime handlers out of a configuration and return them, without what is empty in them."""
    (cri,) = [table for name, table in tree["plugins"].items() if "containerd" in table and "cri" in name]
    runtimes = cri["containerd"].pop("runtimes")
    tree.pop("imports")
    return {
        name: {key: value for key, value in runtime.items() if value} | {"options": set_options(runtime)}
        for name, runtime in runtimes.items()
    }


def set_options(runtime: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in runtime.get("options", {}).items() if value}


@pytest.mark.parametrize("main", [DEBIAN_CONFIG, CUSTOMISED], ids=["Debian's own file", "an administrator's file"])
def test_only_the_handler_is_new(main: str, programs: Path, tmp_path: Path) -> None:
    files = render_containerd(main=main, drop_ins={}, handlers=("nvidia",), engine_version=engine_version(programs))
    before_path, main_path, drop_in_path = (
        tmp_path / name for name in ("before.toml", "config.toml", "conf.d/99-nvidia.toml")
    )
    drop_in_path.parent.mkdir()
    before_path.write_text(main)
    main_path.write_text(files.main.replace("/etc/containerd", str(tmp_path)))
    drop_in_path.write_text(files.drop_in)

    before, after = dump(programs, before_path), dump(programs, main_path)
    runtimes_before, runtimes_after = take_runtimes(before), take_runtimes(after)

    handler = runtimes_after.pop("nvidia")
    assert handler["base_runtime_spec"] == BASE_SPEC_PATH
    assert handler["container_annotations"] == ["grapnel.dev/*"]
    assert handler["options"] == runtimes_before["runc"]["options"]
    assert after == before
    assert runtimes_after["runc"]["runtime_type"] == runtimes_before["runc"]["runtime_type"]
    assert runtimes_after["runc"]["options"] == runtimes_before["runc"]["options"]


def test_the_command_of_a_hint_prints_an_older_file_in_the_version_that_it_says(programs: Path, tmp_path: Path) -> None:
    old = '[plugins.cri.containerd.runtimes.site]\nruntime_type = "io.containerd.runc.v2"\n'
    (tmp_path / "config.toml").write_text(old)
    with pytest.raises(EngineConfigError) as raised:
        render_containerd(main=old, drop_ins={}, handlers=("nvidia",), engine_version=engine_version(programs))
    said = "version 2" if engine_version(programs).startswith("1.") else "the newest version"
    assert f"bring it to {said}, " in raised.value.hint
    command = raised.value.hint.rpartition(": containerd ")[2].split()

    words = [str(tmp_path / "config.toml") if word == "FILE" else word for word in command]
    printed = tomllib.loads(output_of(programs / "containerd", "--config", tmp_path / "config.toml", *words))

    version = printed["version"]
    assert version in PLUGINS
    assert (said == "version 2") == (version == 2)
    assert "site" in printed["plugins"][PLUGINS[version]]["containerd"]["runtimes"]


def test_the_base_specification_hides_and_mounts_what_the_engine_s_own_does(programs: Path) -> None:
    wanted, found = json.loads(output_of(programs / "ctr", "oci", "spec")), base_spec(hook_timeout_s=30)

    assert found["process"]["capabilities"] == wanted["process"]["capabilities"]
    assert found["mounts"] == wanted["mounts"]
    assert set(wanted["linux"]["maskedPaths"]) <= set(found["linux"]["maskedPaths"])
    assert found["linux"]["resources"] == wanted["linux"]["resources"]


def test_a_container_has_the_default_s_limits_and_our_hook_starts_before_others(programs: Path, tmp_path: Path) -> None:
    """As with Amazon's images, which limit open files, and kind's, which have a hook of their own."""
    said, hooks = tmp_path / "said", {}
    for stage, name in (("prestart", "first"), ("createContainer", "later")):
        hooks[stage] = [{"path": "/bin/sh", "args": ["sh", "-c", f"echo {name} >> {said}"]}]
    theirs = {**default_spec(programs), "hooks": hooks}
    theirs["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "hard": 777, "soft": 555}]
    ours = tmp_path / "hook"
    ours.write_text(f"#!/bin/sh\necho ours >> {said}\n")
    ours.chmod(0o755)
    inherited = inherit_base_spec("/etc/containerd/cri-base.json", json.dumps(theirs), hook_timeout_s=30)
    spec = tmp_path / "base-spec.json"
    spec.write_text(inherited.text.replace(HOOK_PATH, str(ours)))

    with containerd(tmp_path, programs, {"nvidia": Handler(base_runtime_spec=spec)}) as engine, engine.cri() as cri:
        for name in ("pause", "gpu-shell"):
            engine.import_image(images.archive(name))
        pod = cri.run_pod("work", handler="nvidia")
        done = cri.run(pod, images.reference("gpu-shell"), ["sh", "-c", "ulimit -Sn; ulimit -Hn"])
        cri.remove_pod(pod)

    assert done.log.split() == ["555", "777"]
    assert said.read_text().split() == ["ours", "first", "later"]
