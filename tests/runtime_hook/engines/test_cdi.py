"""The CDI file: what it names, what it leaves out, and that it is one by the specification's own schema."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from runtime_hook.base.errors import InventoryError
from runtime_hook.engines.cdi import render_cdi
from runtime_hook.engines.cdifile import CdiError, remake_cdi, write_cdi
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.inventory import (
    ControlDevice,
    Fingerprint,
    Gpu,
    Inventory,
    MigDevice,
    Node,
)
from tests.runtime_hook.containers import run_hook
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.drivertree import DriverTree

SCHEMA = Path(__file__).with_name("cdi_schema")
# Specification, "CDI JSON Specification": names of devices.
DEVICE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
HOOK = "/usr/lib/grapnel/hook/grapnel-hook"


def gpu(index: int, **fields: Any) -> Gpu:
    return Gpu(index, uuid(index), index, f"0000:1{index}:00.0", f"/dev/nvidia{index}", 195, index, **fields)


def control(name: str, kind: str) -> ControlDevice:
    return ControlDevice(f"/dev/{name}", 195, 255, kind)


def inventory(*gpus: Gpu, mig: tuple[MigDevice, ...] = ()) -> Inventory:
    kinds = [("nvidiactl", "ctl"), ("nvidia-uvm", "uvm"), ("nvidia-modeset", "modeset"), ("nvidia-fs0", "nvidia-fs")]
    nothing = Fingerprint("550.163.01", (), (), ())
    return Inventory("550.163.01", tuple(control(*each) for each in kinds), gpus, (), (), nothing, mig)


def mig(index: int, gpu_index: int) -> MigDevice:
    nodes = tuple(Node(f"/dev/nvidia-caps/nvidia-cap{number}", 240, number) for number in (index + 10, index + 20))
    return MigDevice(uuid(gpu_index), index + 1, 0, nodes, f"MIG-0000-{index}", index)


DRM = (Node("/dev/dri/card1", 226, 1), Node("/dev/dri/renderD128", 226, 128))
TWO = inventory(gpu(0, drm=DRM), gpu(1))
DIVIDED = inventory(gpu(0), gpu(1), mig=(mig(0, 1), mig(1, 1)))


def render(found: Inventory, root: str = "/") -> dict[str, Any]:
    return render_cdi(found, HostTree(root).host_path, HOOK)


def devices(document: dict[str, Any]) -> dict[str, list[str]]:
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in document["devices"]
    }


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    schema, definitions = (json.loads((SCHEMA / f"{name}.json").read_text()) for name in ("schema", "defs"))
    resource = Resource(contents=definitions, specification=DRAFT7)
    return jsonschema.Draft7Validator(schema, registry=Registry().with_resource("defs.json", resource))


@pytest.mark.parametrize("found", [pytest.param(TWO, id="whole GPUs"), pytest.param(DIVIDED, id="MIG")])
@pytest.mark.parametrize("root", ["/", "/run/nvidia/driver"])
def test_it_is_a_cdi_file(validator: jsonschema.Draft7Validator, found: Inventory, root: str) -> None:
    document = render(found, root)
    validator.validate(document)
    assert document["cdiVersion"] == "0.5.0"
    names = [device["name"] for device in document["devices"]]
    assert all(DEVICE_NAME.fullmatch(name) for name in names)
    assert len(set(names)) == len(names)


def test_the_schema_would_notice() -> None:
    """The published schema refuses little; the least that this test relies on is that it refuses anything."""
    schema = json.loads((SCHEMA / "schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema["properties"]["devices"]["items"]).validate({"name": 0})


def test_gpus_have_nvidias_names_and_their_own_nodes() -> None:
    first, second = ["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"], ["/dev/nvidia1"]
    assert devices(render(TWO)) == {
        "0": first, uuid(0): first, "1": second, uuid(1): second, "all": [*first, *second]
    }  # fmt: skip


def test_a_mig_device_is_its_gpu_and_its_capabilities_and_the_gpu_is_not_given_whole() -> None:
    first, second = (
        ["/dev/nvidia1", *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in pair)] for pair in ((10, 20), (11, 21))
    )
    named = devices(render(DIVIDED))
    assert named == {
        "0": ["/dev/nvidia0"], uuid(0): ["/dev/nvidia0"], "1:0": first, "MIG-0000-0": first, "1:1": second,
        "MIG-0000-1": second, "all": ["/dev/nvidia0", *first, *second[1:]],
    }  # fmt: skip


def test_a_mig_device_of_unknown_names_is_only_in_all() -> None:
    nameless = MigDevice(uuid(0), 1, 0, (Node("/dev/nvidia-caps/nvidia-cap3", 240, 3),))
    assert devices(render(inventory(gpu(0), mig=(nameless,)))) == {
        "all": ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"]
    }


def test_without_a_gpu_there_is_no_file_to_make() -> None:
    with pytest.raises(InventoryError, match="no GPU to describe"):
        render(inventory())


def test_every_container_gets_the_control_nodes_and_one_hook_with_an_environment() -> None:
    edits = render(TWO)["containerEdits"]
    assert [node["path"] for node in edits["deviceNodes"]] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-modeset",
    ]
    assert edits["hooks"] == [
        {
            "hookName": "createRuntime",
            "path": HOOK,
            "args": ["grapnel-hook", "prestart", "--entitlement", "cdi"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
            "timeout": 25,
        }
    ]
    assert "mounts" not in edits
    assert edits["env"] == ["NVIDIA_VISIBLE_DEVICES=void", "GRAPNEL_INJECTION=cdi"]


def test_nodes_are_named_without_numbers_which_a_reloaded_module_may_change() -> None:
    nodes = [node for device in render(DIVIDED)["devices"] for node in device["containerEdits"]["deviceNodes"]]
    assert {frozenset(node) for node in nodes} == {frozenset(("path", "fileMode", "permissions"))}
    assert {node["permissions"] for node in nodes} == {"rw"}
    assert {(node["path"].startswith("/dev/nvidia-caps/"), node["fileMode"]) for node in nodes} == {
        (True, 0o444),
        (False, 0o666),
    }


def test_a_driver_of_another_version_leaves_it_as_it_is() -> None:
    newer = Inventory(**{**vars(TWO), "driver_version": "570.1"})
    assert render(newer) == render(TWO)


def test_nodes_below_another_root_say_where_the_host_has_them() -> None:
    node = render(TWO, "/run/nvidia/driver")["devices"][0]["containerEdits"]["deviceNodes"][0]
    assert (node["path"], node["hostPath"]) == ("/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0")


THEIRS = {
    "nvidia.yaml": "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  env: []\nkind: nvidia.com/gpu\ndevices: []\n",
    "quoted.yaml": '"kind": "nvidia.com/gpu" # theirs\n',
    "other.json": '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}',
}


@pytest.mark.parametrize("name", THEIRS)
def test_another_file_of_the_folder_with_the_same_devices_stands_in_the_way(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(THEIRS[name])
    with pytest.raises(CdiError, match=f"{name} names devices of nvidia.com/gpu, too.*remove it"):
        write_cdi(str(tmp_path / "grapnel.json"), TWO, HostTree())
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("nic.yaml", "kind: vendor.com/nic\n", id="another kind"),
        pytest.param("nvidia.txt", THEIRS["nvidia.yaml"], id="no CDI file"),
        pytest.param("deep.yaml", "x:\n  kind: nvidia.com/gpu\n", id="a kind of something else"),
        pytest.param("broken.json", "{", id="a damaged file"),
    ],
)
def test_other_files_do_not(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert write_cdi(str(tmp_path / "grapnel.json"), TWO, HostTree()) == 5


def test_where_the_gpus_went_the_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "grapnel.json"
    write_cdi(str(path), TWO, HostTree())
    remake_cdi(str(path), inventory(), HostTree())
    assert not path.exists()
    remake_cdi(str(path), None, HostTree())


@pytest.mark.slow
def test_the_command_writes_it_and_refresh_keeps_it_true(
    driver: DriverTree, configure: Callable[..., list[str]]
) -> None:
    config, root = configure()[1], str(driver.root)
    path = driver.root / "var/run/cdi/grapnel.json"
    inventory_path = ["--root", root]

    assert run_hook(["refresh", *inventory_path]).returncode == 0
    assert not path.exists()
    made = run_hook(["cdi", "--root", root, "--config", config])
    assert made.stdout.decode() == f"{path}: 5 names of devices, 2 GPUs\n", made.stderr
    driver.add_gpu(2)
    assert run_hook(["refresh", *inventory_path]).returncode == 0
    assert set(devices(json.loads(path.read_text()))) == {"0", "1", "2", uuid(0), uuid(1), uuid(2), "all"}
    assert oct(path.stat().st_mode)[-3:] == "644"
    assert os.listdir(path.parent) == ["grapnel.json"]


def test_the_command_shows_what_it_would_write(driver: DriverTree, configure: Callable[..., list[str]]) -> None:
    shown = run_hook(["cdi", "--root", str(driver.root), "--config", configure()[1], "--output", "-"])
    assert set(devices(json.loads(shown.stdout))) == {"0", "1", uuid(0), uuid(1), "all"}
    assert not (driver.root / "var").exists()


@pytest.mark.slow
@pytest.mark.parametrize("has_hook", [True, False], ids=["with the file's hook", "an image that only says so"])
def test_explain_knows_a_container_of_the_file(
    driver: DriverTree, tmp_path: Path, configure: Callable[..., list[str]], *, has_hook: bool
) -> None:
    configure(entitlement="env")
    edits = render(TWO)["containerEdits"]
    hooks = {"createRuntime": edits["hooks"]} if has_hook else {}
    minors = {"nvidia1": 17, "nvidiactl": 62, "nvidia-uvm": 60}
    nodes = [{"path": f"/dev/{name}", "type": "c", "major": 4, "minor": minor} for name, minor in minors.items()]
    config = {"process": {"env": edits["env"]}, "root": {"path": "x"}, "hooks": hooks, "linux": {"devices": nodes}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ["--config", str(tmp_path / "hook.json"), "--root", str(driver.root)]

    told = json.loads(run_hook(["explain", str(tmp_path), *options]).stdout)

    given = [device["uuid"] for device in told["devices"]]
    assert (told["entitled"], given) == ((True, [uuid(1)]) if has_hook else (False, []))
    assert told["entitlement"] == ("cdi" if has_hook else "env")
