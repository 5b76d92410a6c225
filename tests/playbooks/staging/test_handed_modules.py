"""A module that another node has built is looked at before it is used, and one that does not fit is not."""

from __future__ import annotations

import json
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.module_signature import (
    SignatureError,
    require_signature,
)
from ansible_collections.grapnel.node.plugins.module_utils.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest

from tests.playbooks.staging.node import HOME, KERNEL, Node, change_of, write_tar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageResult

VERSION = "550.163.01"
MODULE = f"modules/{KERNEL}.tar.gz"
TREE = f"./dkms_main_tree/{KERNEL}/x86_64"
SIGN = {"key": "/etc/keys/mok.key", "certificate": "/etc/keys/mok.der"}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, offered={name: [VERSION] for name in ("libcuda1", "nvidia-dkms")})


def hand_over(node: Node, change: DriverChange, *more: str) -> str:
    """Write the list of what lies in the incoming folder, and return that."""
    place = f"{HOME}/incoming/{change_id(change)}"
    listed = {name: file_digest(node.path(f"{place}/{name}")) for name in (MODULE, *more)}
    node.write(f"{place}/list.json", json.dumps(listed))
    return place


def stage_with(node: Node, change: DriverChange, **values: str) -> StageResult:
    node.write_archive(f"{HOME}/incoming/{change_id(change)}/{MODULE}", KERNEL, VERSION, **values)
    hand_over(node, change)
    return node.stage(change)


def has_built(node: Node) -> bool:
    return any("build" in words for words in node.calls)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"version": "1.0"}, "has the version 1.0", id="another version"),
        pytest.param({"vermagic": "6.1 SMP"}, "built for the kernel 6.1", id="another kernel"),
        pytest.param({"license": "Dual MIT/GPL"}, "the modules are open, not proprietary", id="another flavour"),
        pytest.param(
            {"vermagic": f"{KERNEL} SMP preempt"},
            f"for a kernel with {KERNEL} SMP preempt, and this one has {KERNEL} SMP",
            id="another kernel of the same name",
        ),
    ],
)
def test_the_node_builds_its_own_where_the_module_does_not_fit(node: Node, values: dict[str, str], words: str) -> None:
    node.write(f"/lib/modules/{KERNEL}/kernel/fs/ext4.ko", f"version: 1\nvermagic: {KERNEL} SMP\n")

    result = stage_with(node, change_of(), **values)

    assert result.complete
    assert has_built(node)
    assert [(one.code, one.severity) for one in result.findings] == [("module-unfit", "warning")]
    assert words in result.findings[0].message


def test_one_that_fits_is_used(node: Node) -> None:
    node.write(f"/lib/modules/{KERNEL}/kernel/fs/ext4.ko", f"version: 1\nvermagic: {KERNEL} SMP\n")

    result = stage_with(node, change_of())

    assert (result.complete, result.findings, has_built(node)) == (True, (), False)


def test_without_a_network_nothing_else_could_be_used(node: Node) -> None:
    change = change_of()
    place = f"{HOME}/incoming/{change_id(change)}"
    node.write_archive(f"{place}/{MODULE}", KERNEL, "1.0")
    packages = [f"packages/{name}_{VERSION}.deb" for name in ("libcuda1", "nvidia-dkms")]
    for name in packages:
        node.write(f"{place}/{name}", name.removeprefix("packages/").removesuffix(".deb").replace("_", " "))
    hand_over(node, change, *packages)

    result = node.stage(change, offline=True)

    assert not result.complete
    assert [(one.code, one.severity) for one in result.findings] == [("module-unfit", "error")]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"./dkms_source_tree/dkms.conf": "x"}, "does not belong to built modules", id="sources"),
        pytest.param({"./etc/cron.d/x": "x"}, "does not belong to built modules", id="elsewhere"),
        pytest.param({f"{TREE}/log/nvidia-current.ko": "x"}, "not where modules are", id="in the place of another"),
        pytest.param({f"{TREE}/module/a/nvidia.ko": "x"}, "not where modules are", id="deeper"),
        pytest.param({f"dkms_main_tree/{KERNEL}/x86_64/module/nvidia-current.ko": "x"}, "twice", id="twice"),
    ],
)
def test_an_archive_with_anything_else_is_not_used(node: Node, more: Mapping[str, str], words: str) -> None:
    module = f"version: {VERSION}\nlicense: NVIDIA\nvermagic: {KERNEL} SMP\n"
    members = {f"{TREE}/module/nvidia-current.ko": module}
    write_tar(node.path(f"{HOME}/incoming/{change_id(change_of())}/{MODULE}"), {**members, **more})
    hand_over(node, change_of())

    result = node.stage(change_of())

    assert has_built(node)
    assert words in result.findings[0].message


def test_a_module_that_only_says_who_signed_it_is_not_used(node: Node) -> None:
    change = change_of(sign=SIGN)
    node.write(SIGN["key"], "PRIVATE KEY").chmod(0o600)
    node.signer, node.signs_by = "Operations", "Mallory"
    node.write_archive(f"{HOME}/incoming/{change_id(change)}/{MODULE}", KERNEL, VERSION)
    hand_over(node, change)
    node.signs_by = ""

    result = node.stage(change)

    assert has_built(node)
    assert "its signature is not of the key of /etc/keys/mok.der" in result.findings[0].message


def test_one_that_the_site_has_signed_is_used(node: Node) -> None:
    node.signer = "Operations"

    result = stage_with(node, change_of(sign=SIGN))

    assert (result.complete, result.findings, has_built(node)) == (True, (), False)


class Signer:
    """A key with its certificate, and modules signed with it as the kernel's sign-file does."""

    def __init__(self, folder: Path, name: str = "site") -> None:
        self.folder, self.key, self.certificate = folder, folder / f"{name}.key", folder / f"{name}.der"
        made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Operations", "-days", "2"]
        self._openssl(*made, "-keyout", str(self.key), "-out", str(self.certificate), "-outform", "DER")

    @staticmethod
    def _openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)

    def sign(self, content: bytes, name: str = "nvidia.ko") -> Path:
        """Write a signed module."""
        plain, message = self.folder / "plain", self.folder / "message"
        plain.write_bytes(content)
        signed_as = ["-signer", str(self.certificate.with_suffix(".pem")), "-inkey", str(self.key)]
        self._openssl("x509", "-inform", "DER", "-in", str(self.certificate), "-out", signed_as[1])
        form = ["-outform", "DER", "-binary", "-nocerts", "-noattr", "-nosmimecap", "-md", "sha256"]
        self._openssl("cms", "-sign", "-in", str(plain), *signed_as, *form, "-out", str(message))
        data = message.read_bytes()
        module = self.folder / name
        module.write_bytes(
            content + data + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(data)) + b"~Module signature appended~\n"
        )
        return module


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


def check(module: Path, certificate: Path) -> None:
    scratch = module.parent / "scratch"
    scratch.mkdir()
    require_signature(Host(), str(module), str(certificate), str(scratch))
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("packer", ["", "xz", "gzip"])
def test_the_signature_of_the_site_is_known_however_the_module_is_packed(signer: Signer, packer: str) -> None:
    module = signer.sign(b"\x7fELF" * 1000)
    if packer:
        subprocess.run([packer, str(module)], check=True, timeout=60)
        module = module.with_suffix({"xz": ".ko.xz", "gzip": ".ko.gz"}[packer])

    check(module, signer.certificate)


@pytest.mark.slow
def test_a_certificate_may_be_pem(signer: Signer) -> None:
    check(signer.sign(b"\x7fELF"), signer.certificate.with_suffix(".pem"))


@pytest.mark.slow
def test_the_same_name_with_another_key_is_not_the_site(signer: Signer, tmp_path: Path) -> None:
    (tmp_path / "mallory").mkdir()
    forged = Signer(tmp_path / "mallory").sign(b"\x7fELF")

    with pytest.raises(SignatureError, match="not of the key of"):
        check(forged, signer.certificate)


@pytest.mark.slow
def test_a_module_that_was_changed_after_it_was_signed_is_refused(signer: Signer) -> None:
    module = signer.sign(b"\x7fELF" + b"a" * 100)
    module.write_bytes(module.read_bytes().replace(b"aaaa", b"aaab", 1))

    with pytest.raises(SignatureError, match="not of the key of"):
        check(module, signer.certificate)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"\x7fELF" * 100, "it is not signed", id="no signature"),
        pytest.param(b"", "it is not signed", id="empty"),
        pytest.param(
            b"x" * 50 + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, 1 << 31) + b"~Module signature appended~\n",
            "of an unknown kind",
            id="longer than the file",
        ),
        pytest.param(
            b"x" * 50 + struct.pack(">BBBBB3xI", 0, 0, 1, 0, 0, 10) + b"~Module signature appended~\n",
            "of an unknown kind",
            id="an old kind",
        ),
    ],
)
def test_what_has_no_signature_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    module = tmp_path / "nvidia.ko"
    module.write_bytes(data)

    with pytest.raises(SignatureError, match=words):
        check(module, tmp_path / "site.der")


@pytest.mark.slow
def test_a_module_that_cannot_be_unpacked_is_not_believed(tmp_path: Path) -> None:
    module = tmp_path / "nvidia.ko.zst"
    module.write_bytes(b"no zstd")

    with pytest.raises(SignatureError, match="cannot be unpacked"):
        check(module, tmp_path / "site.der")
