"""Signed bundles: made and verified with the real ssh-keygen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import ExitCode
from provision.cli import main
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.read import open_bundle, open_place, verify_bundle
from provision.planning.supply.bundle.signature import sign, signature_beside
from tests.provision.bundle.test_bundle import DEBIAN, change_of, staged_set

if TYPE_CHECKING:
    from collections.abc import Callable


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "ci", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "key")


@pytest.fixture
def signers(tmp_path: Path, key: Path) -> Path:
    file = tmp_path / "signers"
    file.write_text(f'ci namespaces="grapnel-bundle" {public(key)}')
    return file


@pytest.fixture
def bundle(tmp_path: Path, key: Path) -> Path:
    file = tmp_path / "drivers.bundle"
    create(file, "--sign", str(key))
    return file


def create(file: Path, *more: str) -> int:
    folder = file.with_name(f"set-{file.name}")
    staged = folder if folder.exists() else staged_set(folder, change_of()).folder
    return main(["bundle", "create", str(file), "--set", f"{DEBIAN}={staged}", "--drivers-only", *more])


def refused(bundle: Path, signers: Path | None, cache: Path) -> str:
    """Return the message, after which nothing may be there."""
    with pytest.raises(BundleError) as error:
        open_bundle(bundle, cache, signers)
    assert not cache.exists() or not list(cache.iterdir())
    return error.value.message


def test_a_signed_bundle_is_verified_and_unpacked(bundle: Path, signers: Path, tmp_path: Path) -> None:
    opened = open_bundle(bundle, tmp_path / "cache", signers)

    assert opened.listing == verify_bundle(bundle, signers) == open_bundle(bundle, tmp_path / "cache", signers).listing
    assert all(opened.path(file.place).is_file() for file in opened.listing.files)


def test_the_plain_tool_verifies_what_was_signed(bundle: Path, signers: Path) -> None:
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "ci", "-n", "grapnel-bundle"]
    with bundle.open("rb") as stream:
        subprocess.run([*command, "-s", str(signature_beside(bundle))], stdin=stream, check=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param('ci valid-before="20200101" {key}', "its key has expired", id="its key has expired"),
        pytest.param('ci valid-after="20900101" {key}', "its key is not valid yet", id="its key is not valid yet"),
        pytest.param('ci namespaces="git" {key}', "may not sign for this purpose", id="its key is for another purpose"),
        pytest.param("ci cert-authority {key}", "not among the signers", id="its key only signs certificates"),
        pytest.param("!ci,x {other}", "not among the signers", id="another key is declared"),
        pytest.param("ci nonsense=1 {key}", "options that ssh-keygen does not know", id="options are unknown"),
        pytest.param("# nobody", "not among the signers", id="nobody is declared"),
    ],
)
def test_a_bundle_that_no_signer_signed_is_refused(
    bundle: Path, signers: Path, tmp_path: Path, line: str, message: str
) -> None:
    other = make_key(tmp_path / "other")
    signers.write_text(line.format(key=public(tmp_path / "key"), other=public(other)) + "\n")

    assert message in refused(bundle, signers, tmp_path / "cache")


def test_an_expired_key_of_somebody_else_is_not_the_reason(bundle: Path, signers: Path, tmp_path: Path) -> None:
    signers.write_text(f'ci valid-before="20200101" {public(make_key(tmp_path / "other"))}')

    assert "not among the signers" in refused(bundle, signers, tmp_path / "cache")


def test_an_unsigned_bundle_is_refused_where_signers_are_given(bundle: Path, signers: Path, tmp_path: Path) -> None:
    signature_beside(bundle).unlink()

    assert "is not signed" in refused(bundle, signers, tmp_path / "cache")
    assert open_bundle(bundle, tmp_path / "cache").listing.files


@pytest.mark.parametrize("declared", [True, False], ids=["signers are given", "none are given"])
def test_a_changed_bundle_is_refused(bundle: Path, signers: Path, tmp_path: Path, *, declared: bool) -> None:
    with bundle.open("ab") as stream:
        stream.write(bytes(512))

    assert "not the one that was signed" in refused(bundle, signers if declared else None, tmp_path / "cache")


def test_a_signature_for_another_purpose_is_refused(bundle: Path, signers: Path, key: Path, tmp_path: Path) -> None:
    with bundle.open("rb") as stream:
        signature_beside(bundle).write_bytes(sign(stream, key, "git"))
    signers.write_text(f"ci {public(key)}")

    assert "another purpose" in refused(bundle, signers, tmp_path / "cache")


def empty(signature: Path) -> None:
    signature.write_bytes(b"")


def trailing(signature: Path) -> None:
    signature.write_bytes(signature.read_bytes() + b"more\n")


def doubled(signature: Path) -> None:
    signature.write_bytes(signature.read_bytes() * 2)


def huge(signature: Path) -> None:
    os.truncate(signature, 1 << 40)


def fifo(signature: Path) -> None:
    signature.unlink()
    os.mkfifo(signature)


def folder(signature: Path) -> None:
    signature.unlink()
    signature.mkdir()


def endless(signature: Path) -> None:
    signature.unlink()
    signature.symlink_to("/dev/zero")


def garbled(signature: Path) -> None:
    signature.write_bytes(signature.read_bytes().replace(b"U1NIU0lH", b"AAAAAAAA"))


@pytest.mark.parametrize("spoil", [empty, trailing, doubled, huge, fifo, folder, endless, garbled])
def test_what_is_not_one_signature_is_refused(
    bundle: Path, signers: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(signature_beside(bundle))

    assert "drivers.bundle" in refused(bundle, signers, tmp_path / "cache")


@pytest.mark.parametrize("principal", ["*", "-I", "a,b", '"two words"', "!ci,*"])
def test_any_name_of_a_signer_will_do(bundle: Path, signers: Path, key: Path, principal: str) -> None:
    signers.write_text(f"{principal} {public(key)}")

    assert verify_bundle(bundle, signers).files


@pytest.mark.parametrize("name", ["-f", "-Y", "two\nlines", "a b;c"])
def test_a_file_may_have_any_name(
    bundle: Path, signers: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    signature_beside(bundle).rename(tmp_path / f"{name}.sig")
    bundle.rename(tmp_path / name)

    assert open_bundle(Path(name), tmp_path / "cache", signers.rename(tmp_path / "-s")).listing.files


def test_what_was_verified_is_what_is_unpacked(
    bundle: Path, signers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that changes the bundle in place as soon as it has verified it."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "ssh-keygen").write_text(
        f'#!/bin/sh\n/usr/bin/ssh-keygen "$@" || exit\ncase "$2" in verify) : > {bundle};; esac\n'
    )
    (own / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin:/bin")

    assert open_bundle(bundle, tmp_path / "cache", signers).listing.drivers
    assert bundle.stat().st_size == 0


def test_an_unpacked_folder_is_refused_where_signers_are_given(bundle: Path, signers: Path, tmp_path: Path) -> None:
    unpacked = open_bundle(bundle, tmp_path / "cache", signers).folder

    assert open_place(unpacked, tmp_path / "cache").listing.files
    with pytest.raises(BundleError, match="has no signature"):
        open_place(unpacked, tmp_path / "cache", signers)


def test_a_cache_with_the_files_of_another_bundle_is_refused(bundle: Path, signers: Path, tmp_path: Path) -> None:
    listed = open_bundle(bundle, tmp_path / "cache", signers).folder / "list.json"
    listed.write_text(listed.read_text().replace('"grapnel": "', '"grapnel": "9'))

    with pytest.raises(BundleError, match="is not what"):
        open_bundle(bundle, tmp_path / "cache", signers)


def test_a_missing_ssh_keygen_is_named(bundle: Path, signers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(BundleError, match="ssh-keygen, which is not on PATH"):
        verify_bundle(bundle, signers)


@pytest.mark.parametrize("passphrase", ["secret", None], ids=["a key with a passphrase", "no key"])
def test_a_key_that_cannot_sign_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], passphrase: str | None
) -> None:
    key = tmp_path / "locked"
    if passphrase:
        make_key(key, passphrase)

    assert create(tmp_path / "b", "--sign", str(key)) == ExitCode.FAILED
    assert "it cannot sign" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_a_bundle_without_a_key_takes_the_former_signature_away(bundle: Path) -> None:
    assert create(bundle) == ExitCode.DONE
    assert not signature_beside(bundle).exists()


def test_signers_of_the_environment_are_mandatory(
    bundle: Path, signers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAPNEL_SIGNERS", str(signers))
    assert main(["bundle", "verify", str(bundle)]) == ExitCode.DONE
    signature_beside(bundle).unlink()

    assert main(["bundle", "verify", str(bundle)]) == ExitCode.FAILED
    assert "is not signed" in capsys.readouterr().err
