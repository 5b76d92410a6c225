"""Real modules signed by the kernel's own sign-file with throw-away keys, verified by the real openssl."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import Signing
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_signature import (
    Certificate,
    find_forgery,
    read_certificate,
    require_signing_key,
    split_signature,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

from lab import bundle
from lab.kmod import build_modules

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

NAME = "Site Operations"
MODULE = "lib/modules/6.12.1-test/updates/nvidia.ko"
CONFIG = (
    "[req]\ndistinguished_name=n\nx509_extensions=v\n[n]\n[v]\nsubjectKeyIdentifier=hash\nkeyUsage=digitalSignature\n"
)


@dataclass(frozen=True)
class Key:
    """A throw-away key with its certificate."""

    key: Path
    certificate: Path


def make_key(folder: Path, name: str = NAME, *options: str) -> Key:
    folder.mkdir()
    made = Key(folder / "mok.key", folder / "mok.der")
    (folder / "config").write_text(CONFIG)
    command = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", f"/CN={name}/"]
    files = [
        "-config",
        str(folder / "config"),
        "-keyout",
        str(made.key),
        "-outform",
        "DER",
        "-out",
        str(made.certificate),
    ]
    subprocess.run([*command, *(options or ("-nodes",)), *files], check=True, capture_output=True)
    made.key.chmod(0o600)
    return made


@pytest.fixture(scope="module")
def sign_file() -> Path:
    """The program of Debian's kernel packages that dkms signs with."""
    layer = bundle.ensure_layer("trixie", bundle.BUILDER_PACKAGES)
    (found,) = layer.glob("usr/lib/linux-kbuild-*/scripts/sign-file")
    return found


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return make_key(tmp_path / "own")


@pytest.fixture
def signed(tmp_path: Path, sign_file: Path, key: Key) -> Path:
    """A module that is signed with the key."""
    return sign(sign_file, key, tmp_path / "nvidia.ko")


def sign(program: Path, key: Key, place: Path) -> Path:
    shutil.copy(build_modules("550.163.01", "6.12.1-test") / MODULE, place)
    subprocess.run([str(program), "sha512", str(key.key), str(key.certificate), str(place)], check=True)
    return place


def read(key: Key) -> Certificate:
    return read_certificate(Host(), str(key.certificate))


def forgery(module: Path, key: Key) -> str:
    return find_forgery(Host(), str(module), read(key), str(module.parent))


def test_a_signed_module_is_what_it_says(signed: Path, key: Key) -> None:
    said = subprocess.run(["modinfo", "--field", "signer", str(signed)], check=True, capture_output=True, text=True)

    assert said.stdout.strip() == NAME == read(key).name
    assert forgery(signed, key) == ""
    assert sorted(path.name for path in signed.parent.iterdir()) == ["nvidia.ko", "own"], "nothing is left beside it"


def test_a_certificate_is_read_in_both_forms(tmp_path: Path, key: Key) -> None:
    pem = Key(key.key, tmp_path / "mok.pem")
    subprocess.run(
        ["openssl", "x509", "-inform", "DER", "-in", str(key.certificate), "-out", str(pem.certificate)], check=True
    )

    der, found = read(key), read(pem)

    assert (found.name, found.key_id, found.public_key, found.pem) == (der.name, der.key_id, der.public_key, der.pem)
    assert len(der.key_id) == 40  # as /proc/keys ends a line with it


def test_another_key_under_the_same_name_is_a_forgery(tmp_path: Path, sign_file: Path, key: Key) -> None:
    stranger = make_key(tmp_path / "stranger")
    module = sign(sign_file, stranger, tmp_path / "nvidia.ko")

    assert f"is not signed by the key of {key.certificate}" in forgery(module, key)


def test_a_module_that_was_changed_after_it_was_signed_is_a_forgery(signed: Path, key: Key) -> None:
    data = bytearray(signed.read_bytes())
    data[200] ^= 1
    signed.write_bytes(data)

    assert "is not signed by the key" in forgery(signed, key)


def test_a_module_without_a_signature_has_none(tmp_path: Path, key: Key) -> None:
    plain = tmp_path / "nvidia.ko"
    shutil.copy(build_modules("550.163.01", "6.12.1-test") / MODULE, plain)

    assert forgery(plain, key) == "has no signature that the kernel would read"


def test_a_compressed_module_is_verified_as_the_kernel_would_see_it(signed: Path, key: Key) -> None:
    packed = signed.with_name("nvidia.ko.xz")
    packed.write_bytes(lzma.compress(signed.read_bytes()))

    assert forgery(packed, key) == ""
    packed.write_bytes(packed.read_bytes()[:-20])
    assert forgery(packed, key).startswith("cannot be read: ")


@pytest.mark.skipif(shutil.which("zstd") is None, reason="this machine has no zstd to make such a module with")
def test_a_module_that_zstd_has_compressed_is_verified_too(signed: Path, key: Key) -> None:
    subprocess.run(["zstd", "--quiet", str(signed)], check=True)

    assert forgery(signed.with_name("nvidia.ko.zst"), key) == ""


@pytest.mark.parametrize("data", [b"", b"~Module signature appended~\n", b"\0" * 12 + b"~Module signature appended~\n"])
def test_what_is_no_signature_is_none(data: bytes) -> None:
    assert split_signature(data) is None


def refusal(key: Path, certificate: Key) -> str:
    with pytest.raises(StageError) as raised:
        require_signing_key(Host(), Signing(str(key), str(certificate.certificate)), read(certificate))
    assert raised.value.finding.code == "signing-key"
    return raised.value.finding.message


def test_a_key_that_can_sign_is_accepted(key: Key) -> None:
    require_signing_key(Host(), Signing(str(key.key), str(key.certificate)), read(key))


def test_a_key_that_cannot_sign_is_named(tmp_path: Path, key: Key) -> None:
    locked = make_key(tmp_path / "locked", NAME, "-passout", "pass:secret")
    other = make_key(tmp_path / "other")

    assert "without a passphrase" in refusal(locked.key, locked)
    assert f"is not the key of the certificate {key.certificate}" in refusal(other.key, key)
    key.certificate.chmod(0o600)
    assert "is no private key" in refusal(key.certificate, key)
    other.key.chmod(0o644)
    assert "can be used by others than root" in refusal(other.key, other)
    other.key.unlink()
    assert "is not there" in refusal(other.key, other)


def test_what_is_no_certificate_is_named(key: Key) -> None:
    with pytest.raises(StageError, match="cannot be read as a certificate"):
        read_certificate(Host(), str(key.key))
