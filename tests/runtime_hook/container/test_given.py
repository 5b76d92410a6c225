"""What a container of a real runtime sees of a host that has everything, and what a second start adds: nothing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from runtime_hook.container.operations.files import BindFile, WriteText
from runtime_hook.host.hosttree import HostTree
from runtime_hook.loader.layout import Layout, choose_layout
from runtime_hook.loader.platforms import this_platform
from runtime_hook.plan.planner import Planner
from runtime_hook.request.grant import Grant
from tests.runtime_hook.containers import Container, host_mounts, snapshot
from tests.runtime_hook.inventories import FULL, MIG, UDEV_ENTRY, VERSION, changed, gpu, make_files
from tests.runtime_hook.planhook import with_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.functional

DEBIAN = choose_layout(this_platform(), lambda path: path == "/etc/debian_version")
EVERYTHING = ("compute", "utility", "video", "graphics", "display", "ngx", "compat32")


@pytest.fixture
def start(tmp_path: Path, root: Path) -> Callable[..., tuple[str, str]]:
    """Start a container with everything that an grant brings; returns its output and the hook's notes."""
    host = tmp_path / "host"
    make_files(FULL, host)
    count = 0

    def run(command: str, *words: str, layout: Layout = DEBIAN, **fields: object) -> tuple[str, str]:
        nonlocal count
        count += 1
        given = {"source": "environment", "gpus": FULL.gpus[:1], "adds_devices": True, **fields}
        host_tree = HostTree(str(host))
        inventory = changed(FULL, gpus=tuple(gpu(index) for index in range(8)))
        planner = Planner(inventory, this_platform(), host_tree.host_path)
        plan = planner.plan(Grant(capabilities=words or EVERYTHING, **given), layout, ())
        made = Container(tmp_path / f"bundle{count}", root, ["/bin/sh", "-c", command])
        notes = with_plan(made, plan)
        before, mounts = snapshot(host), host_mounts()
        done = made.run()
        assert done.returncode == 0, done.stderr
        assert snapshot(host) == before
        assert host_mounts() == mounts
        return done.stdout, notes.read_text()

    return run


def test_everything_is_there_under_its_name(start: Callable[..., tuple[str, str]]) -> None:
    places = [
        f"{DEBIAN.library_folder}/libcuda.so",
        f"{DEBIAN.library_folder}/vdpau/libvdpau_nvidia.so.1",
        f"{DEBIAN.library_folder_32}/libcuda.so.1",
        "/usr/bin/nvidia-smi",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/etc/cufile.json",
        UDEV_ENTRY,
    ]
    seen, notes = start(f"cat {' '.join(places)}; readlink {DEBIAN.library_folder}/gbm/*", extras=("nvidia-fs",))
    lines = seen.splitlines()
    assert len(lines) == len(places) + 1
    assert lines[0].endswith(f"/libcuda.so.{VERSION}")
    assert lines[-2:] == [UDEV_ENTRY, "../libnvidia-allocator.so.1"]
    assert notes == ""


def test_devices_lie_in_their_folders(start: Callable[..., tuple[str, str]]) -> None:
    seen, _ = start(
        "cd /dev; ls dri nvidia-caps nvidia-caps-imex-channels; for name in dri/by-path/*; do readlink $name; done",
        mig=(MIG,),
        imex_channels=(7,),
    )
    expected = {"card0", "renderD128", "nvidia-cap30", "nvidia-cap31", "channel7", "../card0", "../renderD128"}
    assert expected <= set(seen.split())


def test_eight_gpus_have_eight_nodes_and_one_profile(start: Callable[..., tuple[str, str]]) -> None:
    profile = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
    gpus = tuple(gpu(index) for index in range(8))
    seen, _ = start(f"ls -d /dev/nvidia[0-9]; cat {profile}", "graphics", gpus=gpus)
    assert seen.split()[:8] == [f"/dev/nvidia{index}" for index in range(8)]
    assert '"EGLVisibleDGPUDevices", 0xff]' in seen


def test_sockets_are_for_use_and_nothing_else(start: Callable[..., tuple[str, str]]) -> None:
    socket = "/run/nvidia-persistenced/socket"
    seen, _ = start(f"[ -S {socket} ] && echo there; grep nvidia- /proc/self/mountinfo", "utility", "compute")
    options = {line.split()[4]: set(line.split()[5].split(",")) for line in seen.splitlines()[1:]}
    assert seen.startswith("there\n")
    assert {"rw", "nosuid", "nodev", "noexec"} <= options[socket]


def test_sockets_of_mps_are_for_use_and_nobody_replaces_them(start: Callable[..., tuple[str, str]]) -> None:
    """Root's control daemon follows links in its folder, and a container that could make one there has the host."""
    folder = "/tmp/nvidia-mps"
    seen, _ = start(f"ln -s /etc/shadow {folder}/log && echo made; grep {folder} /proc/self/mountinfo", "compute")
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(seen.split()[5].split(","))
    assert "made" not in seen


def test_direct_storage_does_not_bring_the_socket_of_udevd(start: Callable[..., tuple[str, str]]) -> None:
    """All of /run/udev was mounted, and root in a container could have udevd run programs of its choice on the host."""
    seen, _ = start("find /run/udev; echo x > /run/udev/data/x || echo refused", "compute", extras=("nvidia-fs",))
    assert seen.split() == ["/run/udev", "/run/udev/data", UDEV_ENTRY, "refused"]


def test_starting_again_and_again_leaves_nothing_more(start: Callable[..., tuple[str, str]], root: Path) -> None:
    start("true")
    first = snapshot(root)
    for _ in range(3):
        start("true")
    changed_files = {path for path, found in snapshot(root).items() if first.get(path) != found}
    assert {path for path in changed_files if not path.startswith(f"{root}/dev")} <= {str(root)}
    assert set(snapshot(root)) == set(first)


@pytest.mark.parametrize(
    ("missing", "links"),
    [
        pytest.param(("etc", "usr/bin"), {}, id="no /etc and no /usr/bin"),
        pytest.param(("usr/lib64",), {"usr/lib64": "lib"}, id="/usr/lib64 is a link"),
        pytest.param(("etc",), {"etc": "/private/etc"}, id="/etc is an absolute link inside the image"),
    ],
)
@pytest.mark.parametrize("is_debian", [True, False])
def test_unusual_roots_get_everything_too(
    start: Callable[..., tuple[str, str]],
    root: Path,
    missing: tuple[str, ...],
    links: dict[str, str],
    *,
    is_debian: bool,
) -> None:
    (root / "private/etc").mkdir(parents=True)
    for path in missing:
        shutil.rmtree(root / path)
    for path, target in links.items():
        (root / path).symlink_to(target)
    layout = DEBIAN if is_debian else choose_layout(this_platform(), lambda _: False)
    places = f"{layout.library_folder}/libcuda.so.1 /usr/bin/nvidia-smi"
    seen, notes = start(f"cat {places}; ls /etc/ld.so.cache", layout=layout)
    assert seen.splitlines()[1:] == ["/usr/lib/nvidia/current/nvidia-smi", "/etc/ld.so.cache"]
    assert notes == "" or "i386-linux-gnu" in notes, "where both folders are one, 64 bits come first"


def test_a_folder_of_the_engine_in_the_way_of_the_profile_is_no_reason_to_refuse(
    start: Callable[..., tuple[str, str]], root: Path
) -> None:
    """A read-only ``/etc/nvidia`` once kept NVIDIA's device plugin from starting on every node."""
    (root / "etc/nvidia").write_text("no folder")
    seen, notes = start("echo started", "graphics")
    assert seen == "started\n"
    assert notes.startswith("skipped: cannot write /etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf")


def test_a_folder_that_an_undone_step_had_made_is_made_again(tmp_path: Path, root: Path) -> None:
    """Its descriptor was kept: the next step worked in a folder that was gone."""
    source = tmp_path / "file"
    source.write_text("of the host")
    plan = [
        WriteText("/opt/new", "no/such", "text"),
        BindFile(str(source), "/opt/new", "file", is_mandatory=True),
    ]
    made = Container(tmp_path / "bundle", root, ["/bin/sh", "-c", "cat /opt/new/file"])
    notes = with_plan(made, plan)
    done = made.run()
    assert (done.returncode, done.stdout) == (0, "of the host"), done.stderr
    assert notes.read_text().startswith("skipped: cannot write /opt/new/no/such")


def test_a_musl_image_has_them_in_its_only_folder(start: Callable[..., tuple[str, str]], root: Path) -> None:
    loader = f"/lib/ld-musl-{this_platform().multiarch.partition('-')[0]}.so.1"
    layout = choose_layout(this_platform(), lambda path: path == loader)
    seen, notes = start("cat /usr/lib/libcuda.so.1", layout=layout)
    assert seen.endswith(f"/libcuda.so.{VERSION}\n")
    assert not (root / "usr/lib/libcuda.so.1").readlink().is_absolute()
    assert notes == ""
