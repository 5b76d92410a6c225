"""What is read of the host: the machine's name, PCI classes, and the capability that a vGPU has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.publication.labels.host import HostFacts, read_host
from plugin.publication.labels.vgpu import HostDriver, find_host_driver

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "0000:10:00.0"
HOST_RECORD = bytes([0, 22]) + b"535.54".ljust(10, b"\0") + b"r535_00".ljust(10, b"\0")


def space(*capabilities: bytes, at: int = 0x40, has_list: bool = True) -> bytes:
    """Return a configuration space with a chain of capabilities; each without its second byte, the next one's place."""
    config = bytearray(256)
    config[0x06] = 0x10 if has_list else 0
    config[0x34] = at
    for capability in capabilities:
        following = at + len(capability) + 1
        whole = bytes([capability[0], 0 if capability is capabilities[-1] else following]) + capability[1:]
        config[at : at + len(whole)] = whole
        at = following
    return bytes(config)


def vendor(content: bytes) -> bytes:
    return bytes([0x09, len(content) + 3]) + content


POWER = bytes([0x01, 8]) + bytes(6)
OTHER_RECORD = bytes([1, 4, 7, 7])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(space(POWER), None, id="no capability of the vendor"),
        pytest.param(space(POWER, vendor(b"\1\2\3")), None, id="another capability of the vendor"),
        pytest.param(space(vendor(b"VF" + HOST_RECORD), has_list=False), None, id="no list of capabilities"),
        pytest.param(space(vendor(b"VF" + HOST_RECORD)), HostDriver("535.54", "r535_00"), id="a vgpu"),
        pytest.param(
            space(POWER, vendor(b"VF" + OTHER_RECORD + HOST_RECORD)),
            HostDriver("535.54", "r535_00"),
            id="behind another capability and another record",
        ),
        pytest.param(space(vendor(b"VF" + OTHER_RECORD)), HostDriver(), id="a vgpu without the record"),
        pytest.param(space(vendor(b"VF" + HOST_RECORD[:9])), HostDriver(), id="a record that ends early"),
        pytest.param(space(vendor(b"VF\1\0")), HostDriver(), id="a record that leads nowhere"),
    ],
)
def test_a_vgpu_is_told_by_its_capability(config: bytes, expected: HostDriver | None) -> None:
    assert find_host_driver(config) == expected


def test_a_chain_that_leads_to_itself_ends() -> None:
    config = bytearray(space(POWER))
    config[0x41] = 0x40
    assert find_host_driver(bytes(config)) is None


def test_a_part_of_the_space_proves_nothing() -> None:
    with pytest.raises(ValueError, match="64 bytes instead of 256"):
        find_host_driver(space(POWER)[:64])


@given(st.binary(min_size=256, max_size=300), st.booleans())
def test_any_bytes_are_read_to_an_end(config: bytes, has_list: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    raw = bytearray(config)
    raw[0x06] |= 0x10 if has_list else 0
    found = find_host_driver(bytes(raw))
    assert found is None or len(found.version) <= 10


OPEN = (
    b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\nGCC version: Kernel Module\n"
)


@pytest.mark.parametrize(
    ("banner", "expected"),
    [
        pytest.param(OPEN, "open", id="open"),
        pytest.param(
            b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Wed", "proprietary", id="proprietary"
        ),
        pytest.param(b"GCC version: 12\nOpen Kernel Module\n", "", id="not in the first line"),
        pytest.param(None, "", id="not loaded"),
    ],
)
def test_the_kernel_modules_flavour_is_in_its_banner(tmp_path: Path, banner: bytes | None, expected: str) -> None:
    folder = tmp_path / "driver/nvidia"
    folder.mkdir(parents=True)
    if banner is not None:
        (folder / "version").write_bytes(banner)
    assert read_host(tmp_path, [], proc_root=tmp_path).kernel_module == expected


def make_host(root: Path, **files: bytes) -> Path:
    device = root / "bus/pci/devices" / ADDRESS
    device.mkdir(parents=True)
    (root / "class/dmi/id").mkdir(parents=True)
    for name, content in files.items():
        (root / "class/dmi/id/product_name" if name == "machine" else device / name).write_bytes(content)
    return root


def test_the_host_is_read_from_sysfs(tmp_path: Path) -> None:
    config = space(vendor(b"VF" + HOST_RECORD))
    root = make_host(tmp_path, machine=b"DGX H100 \n", config=config, **{"class": b"0x030200\n"})
    assert read_host(root, [ADDRESS]) == HostFacts("DGX H100", (0x0302,), (HostDriver("535.54", "r535_00"),))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, HostFacts("", (None,), (None,)), id="nothing is there"),
        pytest.param({"class": b"?", "config": b"short"}, HostFacts("", (None,), (None,)), id="nonsense"),
        pytest.param({"config": space(POWER)}, HostFacts("", (None,), (False,)), id="no vgpu"),
        pytest.param({"machine": b"\xff\n"}, HostFacts("\ufffd", (None,), (None,)), id="a name that is no text"),
    ],
)
def test_what_cannot_be_read_is_missing(tmp_path: Path, files: dict[str, bytes], expected: HostFacts) -> None:
    assert read_host(make_host(tmp_path, **files), [ADDRESS]) == expected


def test_another_file_may_name_the_machine(tmp_path: Path) -> None:
    (tmp_path / "type").write_text("p4d.24xlarge\n")
    root = make_host(tmp_path / "sys", machine=b"DGX")
    assert read_host(root, [], str(tmp_path / "type")).machine == "p4d.24xlarge"
    assert read_host(root, [], str(tmp_path / "absent")).machine == ""
