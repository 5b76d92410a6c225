"""Plans and how they are carried out, on a recorded root: all of it or nothing, wherever it breaks."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from runtime_hook.base.deadline import Deadline
from runtime_hook.base.errors import DeadlineError, InjectionError, InventoryError
from runtime_hook.container.injection import apply_plan, has_path
from runtime_hook.host.inventory import Inventory, parse_inventory
from runtime_hook.inputs.bundle import DeviceRule
from runtime_hook.loader.cache import CacheEntry, LoaderCache, merge
from runtime_hook.loader.layout import choose_layout
from runtime_hook.loader.platforms import PLATFORMS
from runtime_hook.plan.planner import Planner
from runtime_hook.request.grant import Grant
from tests.runtime_hook.recording import DEVICE, FILE, FOLDER, LINK, RecordingSyscalls

SAMPLE = Path(__file__).resolve().parents[3] / "docs/contracts/inventory/good/debian-one-gpu.json"
CONTENT = json.loads(SAMPLE.read_text(encoding="utf-8"))
PLATFORM = PLATFORMS["x86_64"]
LAYOUT = choose_layout(PLATFORM, lambda path: path == "/etc/debian_version")
FOLDER_PATH = LAYOUT.library_folder
CUDA = f"{FOLDER_PATH}/libcuda.so.1"


def inventory(**changes: object) -> Inventory:
    return parse_inventory({**CONTENT, **changes}, "sample")


def planned(
    *, adds_devices: bool = False, rules: tuple[DeviceRule, ...] = (), host: Inventory | None = None
) -> list[object]:
    host = host or inventory()
    grant = Grant("devices", host.gpus, ("compute", "utility"), adds_devices=adds_devices)
    return list(Planner(host, PLATFORM, lambda path: "/driver" + path).plan(grant, LAYOUT, rules))


def carry(
    syscalls: RecordingSyscalls, *, adds_devices: bool = True, deadline: Deadline | None = None
) -> tuple[str, ...]:
    plan = Planner(inventory(), PLATFORM, str).plan(
        Grant("environment", inventory().gpus, ("compute", "utility"), adds_devices=adds_devices), LAYOUT, ()
    )
    return apply_plan(plan, syscalls, deadline or Deadline()).notes


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        pytest.param("/foo", True, id="in the root itself"),
        pytest.param("/etc/debian_version", True, id="in a folder"),
        pytest.param("/bar", False, id="missing in the root itself"),
        pytest.param("/etc/bar", False, id="missing in a folder"),
        pytest.param("/srv/bar", False, id="in a folder that is missing"),
    ],
)
def test_a_path_in_the_root_itself_is_found_as_any_other(path: str, *, is_there: bool) -> None:
    syscalls = RecordingSyscalls()
    syscalls.add("/foo", FILE)
    syscalls.add("/etc", FOLDER)
    syscalls.add("/etc/debian_version", FILE)
    assert has_path(syscalls, path) == is_there


def test_a_plan_reads_as_sentences_and_ends_with_the_cache() -> None:
    described = [operation.describe() for operation in planned()]  # type: ignore[attr-defined] # operations of a plan
    source = "/driver/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01"
    assert described[:3] == [
        f"bind {source} on {FOLDER_PATH}/libcuda.so.550.163.01, read-only",
        f"link {CUDA} to libcuda.so.550.163.01",
        f"link {FOLDER_PATH}/libcuda.so to libcuda.so.1",
    ]
    assert described[-1] == "merge 3 names into /etc/ld.so.cache"


def test_devices_are_added_only_where_that_is_the_hooks_work() -> None:
    def devices(plan: list[object]) -> list[str]:
        return [line for line in (op.describe() for op in plan) if "device" in line]  # type: ignore[attr-defined] # operations

    assert devices(planned()) == []
    assert len(devices(planned(adds_devices=True))) == 4
    all_allowed = (DeviceRule(allow=True, type="a", major=-1, minor=-1, access="rwm"),)
    assert len(devices(planned(adds_devices=True, rules=all_allowed))) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"libraries": CONTENT["libraries"][1:]}, r"no libcuda\.so\.1 for compute", id="no libcuda"),
        pytest.param(
            {"libraries": CONTENT["libraries"][:1]}, r"no libnvidia-ml\.so\.1 for utility", id="no libnvidia-ml"
        ),
        pytest.param(
            {"devices": {**CONTENT["devices"], "control": CONTENT["devices"]["control"][:1]}},
            "/dev/nvidia-uvm is missing",
            id="no uvm node",
        ),
    ],
)
def test_what_a_capability_cannot_do_without_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InventoryError, match=message):
        planned(adds_devices=True, host=inventory(**changes))


def test_everything_is_given_and_the_namespace_left() -> None:
    syscalls = RecordingSyscalls()
    assert carry(syscalls) == ()
    assert len(syscalls.mounts) == 4
    assert syscalls.links[CUDA] == "libcuda.so.550.163.01"
    assert syscalls.numbers == {"/dev/nvidia0": (195, 0), "/dev/nvidiactl": (195, 255), "/dev/nvidia-uvm": (510, 0)}
    assert syscalls.rules == ["c 195:0 rw", "c 195:255 rw", "c 510:0 rw"]
    names = [entry.name for entry in LoaderCache(syscalls.contents["/etc/ld.so.cache"]).entries()]
    assert sorted(names) == ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"]
    assert not syscalls.is_inside


def test_a_hundred_starts_leave_what_one_leaves() -> None:
    """A start finds the files of the last one, and neither its mounts nor its ``/dev``."""
    syscalls = RecordingSyscalls()
    carry(syscalls)
    once = dict(syscalls.contents), dict(syscalls.links), set(syscalls.modes)
    for _ in range(100):
        syscalls.mounts.clear()
        syscalls.rules.clear()
        for path in list(syscalls.numbers):
            del syscalls.numbers[path], syscalls.modes[path], syscalls.contents[path]
        syscalls.calls.clear()
        assert carry(syscalls) == ()
        assert not [call for call in syscalls.calls if call.startswith(("mkdir", "link", "write"))]
    assert (dict(syscalls.contents), dict(syscalls.links), set(syscalls.modes)) == once


def _all_changes() -> int:
    syscalls = RecordingSyscalls()
    carry(syscalls)
    return len(syscalls.calls)


@pytest.mark.parametrize("number", range(_all_changes()))
def test_whatever_fails_leaves_all_or_nothing(number: int) -> None:
    syscalls = RecordingSyscalls(fail_at=number)
    before = syscalls.state()
    refusals: list[InjectionError] = []
    notes: tuple[str, ...] = ()
    try:
        notes = carry(syscalls)
    except InjectionError as refusal:
        refusals.append(refusal)
    said = [*notes, *(refusal.what for refusal in refusals)]
    assert len(said) == 1
    assert "cannot " in said[0]
    assert said[0].startswith("skipped: ") == (not refusals)
    assert all("writable layer" in refusal.hint for refusal in refusals)
    assert not refusals or syscalls.state() == before
    assert not syscalls.is_inside


@pytest.mark.parametrize("number", range(_all_changes()))
def test_a_bug_on_the_way_is_undone_too(number: int) -> None:
    class Buggy(RecordingSyscalls):
        def _change(self, call: str) -> None:
            super()._change(call)
            if len(self.calls) - 1 == number:
                raise KeyError(call)

    syscalls = Buggy()
    before = syscalls.state()
    with pytest.raises(KeyError):
        carry(syscalls)
    assert syscalls.state() == before


def test_the_time_limit_in_the_middle_of_a_change_undoes_that_change_too() -> None:
    deadline = Deadline()

    class Slow(RecordingSyscalls):
        def put_link(self, folder: int, name: str, target: str) -> None:
            super().put_link(folder, name, target)
            deadline._on_alarm(14, None)

    syscalls = Slow()
    before = syscalls.state()
    with pytest.raises(DeadlineError, match="not finished within"):
        carry(syscalls, deadline=deadline)
    assert syscalls.state() == before


@pytest.mark.parametrize("mode", [LINK, FOLDER, DEVICE])
def test_a_target_that_is_no_file_refuses(mode: int) -> None:
    syscalls = RecordingSyscalls()
    for path in ("/usr", "/usr/lib", FOLDER_PATH):
        syscalls.add(path, FOLDER)
    syscalls.add(f"{FOLDER_PATH}/libcuda.so.550.163.01", mode, target="/etc/shadow")
    before = syscalls.state()
    with pytest.raises(InjectionError, match="the image has"):
        carry(syscalls)
    assert syscalls.state() == before


def test_an_old_link_comes_back_when_a_later_step_fails() -> None:
    complete = RecordingSyscalls()
    carry(complete)
    syscalls = RecordingSyscalls(fail_at=complete.calls.index("mknod nvidiactl") - 3)
    for path in ("/usr", "/usr/lib", FOLDER_PATH):
        syscalls.add(path, FOLDER)
    syscalls.add(CUDA, LINK, target="libcuda.so.440")
    before = syscalls.state()
    with pytest.raises(InjectionError, match="nvidiactl"):
        carry(syscalls)
    assert syscalls.state() == before


def test_an_old_driver_file_is_covered_by_the_hosts() -> None:
    syscalls = RecordingSyscalls()
    for path in ("/usr", "/usr/lib", FOLDER_PATH):
        syscalls.add(path, FOLDER)
    syscalls.add(CUDA, FILE, b"old")
    carry(syscalls)
    assert any(mount.endswith(f"on {CUDA}") for mount in syscalls.mounts.values())
    assert syscalls.contents[CUDA] == b"old"


def test_the_images_cache_is_kept_and_ours_come_first() -> None:
    syscalls = RecordingSyscalls()
    syscalls.add("/etc", FOLDER)
    stub = CacheEntry("libcuda.so.1", "/usr/local/cuda/stubs/libcuda.so.1", PLATFORM.cache_flags)
    syscalls.add("/etc/ld.so.cache", FILE, merge(None, [stub]))
    carry(syscalls)
    entries = LoaderCache(syscalls.contents["/etc/ld.so.cache"]).entries()
    assert [entry.path for entry in entries if entry.name == "libcuda.so.1"] == [CUDA, stub.path]


def test_an_undo_that_fails_is_named() -> None:
    class Stuck(RecordingSyscalls):
        def detach(self, handle: int) -> None:
            raise OSError(errno.EBUSY, "device busy")

    with pytest.raises(InjectionError, match=r"could not be undone: .*libcuda"):
        carry(Stuck(fail_at=_all_changes() - 1))
