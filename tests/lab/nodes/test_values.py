"""What nodes are asked to be, their files and their inventory: nothing is booted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from lab.machine.errors import SiteError
from lab.nodes import NodeSpec, Site
from lab.nodes.boot import INOTIFY_INSTANCES, raise_inotify_limit
from lab.nodes.inventory import render_inventory
from lab.nodes.layer import Layer
from lab.nodes.prepare import write_pci
from lab.nodes.spec import gpu_line
from lab.nodes.ssh import SshAccess


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"name": "N1"}, id="upper case"),
        pytest.param({"name": "a-name-too-long"}, id="too long for an interface"),
        pytest.param({"name": "../n1"}, id="a path"),
        pytest.param({"name": "n1", "suite": "sid"}, id="unknown suite"),
        pytest.param({"name": "n1", "gpus": 17}, id="more GPUs than stand-in numbers"),
        pytest.param({"name": "n1", "model": "voodoo"}, id="unknown model"),
        pytest.param({"name": "n1", "last_model": "voodoo"}, id="unknown model of the last GPU"),
        pytest.param({"name": "n1", "gpus": 0, "last_model": "t4"}, id="a model for the last of no GPUs"),
    ],
)
def test_a_node_that_cannot_be_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SiteError):
        NodeSpec(**wrong)  # type: ignore[arg-type]  # the table mixes types


@pytest.mark.parametrize(("before", "after"), [(128, INOTIFY_INSTANCES), (1 << 20, 1 << 20)])
def test_the_limit_of_inotify_instances_is_raised_and_never_lowered(tmp_path: Path, before: int, after: int) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(f"{before}\n")
    raise_inotify_limit(limit)
    assert int(limit.read_text()) == after


def test_a_site_and_a_node_always_have_the_same_gpus() -> None:
    first, again = (NodeSpec("n1", gpus=2).machine("demo").gpus for _ in range(2))
    other = NodeSpec("n1", gpus=2).machine("test").gpus
    assert first == again
    assert not {gpu.uuid for gpu in first} & {gpu.uuid for gpu in other}


def test_the_last_gpu_of_a_node_may_be_of_another_model(tmp_path: Path) -> None:
    gpus = NodeSpec("n1", gpus=3, model="t4", last_model="v100-32gb").machine("demo").gpus
    write_pci(tmp_path / "pci", gpus)

    devices = [(tmp_path / "pci" / gpu.pci_address / "device").read_text().strip() for gpu in gpus]
    assert [gpu.name for gpu in gpus] == ["Tesla T4", "Tesla T4", "Tesla V100-SXM2-32GB"]
    assert devices == ["0x1eb8", "0x1eb8", "0x1db5"]
    assert len({gpu.uuid for gpu in gpus}) == 3


def test_module_pci_and_nvml_show_the_same_gpu(tmp_path: Path) -> None:
    gpu = NodeSpec("n1", gpus=1).machine("demo").gpus[0]
    write_pci(tmp_path / "pci", (gpu,))
    assert gpu_line(gpu) == f"0000:10:00.0 0 {gpu.uuid} NVIDIA A100-SXM4-40GB"
    function = tmp_path / "pci" / "0000:10:00.0"
    values = {path.name: path.read_text().strip() for path in function.iterdir()}
    assert values == {"vendor": "0x10de", "device": "0x20b0", "class": "0x030200", "numa_node": "0"}


def test_the_inventory_is_ordinary_yaml() -> None:
    access = SshAccess(Path("/a folder"), "gn-x")
    tree = yaml.safe_load(render_inventory({"n2": "10.177.1.12", "n1": "10.177.1.11"}, access))
    assert tree["gpu_nodes"]["hosts"] == {
        "n1": {"ansible_host": "10.177.1.11"},
        "n2": {"ansible_host": "10.177.1.12"},
    }
    assert tree["gpu_nodes"]["vars"]["ansible_ssh_private_key_file"] == "/a folder/ssh/id_ed25519"
    assert "'IdentityFile=/a folder/ssh/id_ed25519'" in tree["gpu_nodes"]["vars"]["ansible_ssh_args"]


def test_an_inventory_without_nodes_is_valid() -> None:
    tree = yaml.safe_load(render_inventory({}, SshAccess(Path("/s"), "gn-x")))
    assert tree["gpu_nodes"]["hosts"] == {}


def test_folders_of_a_layer_look_like_the_base_trees(tmp_path: Path) -> None:
    base, upper = tmp_path / "base", tmp_path / "upper"
    (base / "root").mkdir(parents=True)
    (base / "root").chmod(0o700)
    upper.mkdir()
    Layer(upper, base).write("/root/new/file", "text", 0o600)
    assert (upper / "root").stat().st_mode & 0o777 == 0o700
    assert (upper / "root/new").stat().st_mode & 0o777 == 0o755
    assert (upper / "root/new/file").stat().st_mode & 0o777 == 0o600


def test_a_folder_of_a_layer_does_not_take_over_what_would_make_it_opaque(tmp_path: Path) -> None:
    base, upper = tmp_path / "base", tmp_path / "upper"
    (base / "etc/dnf").mkdir(parents=True)
    upper.mkdir()
    os.setxattr(base / "etc/dnf", "user.overlay.opaque", b"y")
    Layer(upper, base).write("/etc/dnf/file", "text")
    assert os.listxattr(upper / "etc/dnf") == []


def test_a_layer_never_hides_a_symbolic_link_of_the_base_tree(tmp_path: Path) -> None:
    base, upper = tmp_path / "base", tmp_path / "upper"
    (base / "usr/lib").mkdir(parents=True)
    (base / "lib").symlink_to("usr/lib")
    upper.mkdir()
    with pytest.raises(ValueError, match="symbolic link"):
        Layer(upper, base).write("/lib/file", "text")


def test_a_site_without_nodes_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(SiteError, match="site none has no node n1"):
        Site("none").node("n1")
