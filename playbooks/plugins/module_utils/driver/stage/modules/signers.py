"""Finds out, while staging, who signs the modules of a change, and whether the node's kernel accepts that."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import running_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import (
    Signer,
    enforces_signatures,
    find_distrust,
    write_signers,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_signature import (
    read_certificate,
    require_signing_key,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import failed
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import describe_module
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import Work


def require_signing(work: Work) -> None:
    """Raise `StageError` before minutes of building whose result could not be signed, or would not be accepted."""
    sign = work.change.sign
    if sign is not None:
        certificate = read_certificate(work.host, sign.certificate)
        require_signing_key(work.host, sign, certificate)
        _judge(work, [Signer(certificate.name, certificate.key_id)])


def note_signers(work: Work, files: Sequence[str]) -> list[Finding]:
    """Keep in the set who signed the modules; raises `StageError` where the running kernel would refuse them."""
    change, found = work.change, work.signers
    if not change.has_module:
        return []
    if change.dkms is None and enforces_signatures(work.host):  # unpacked only where it matters
        found = {kernel: _in_packages(work, kernel, files) for kernel in change.kernels}
    write_signers(work.host, work.folder, found)
    return _judge(work, found.get(running_kernel(work.host), ()))


def _judge(work: Work, signers: Sequence[Signer]) -> list[Finding]:
    distrust = find_distrust(work.host, signers)
    if distrust is None:
        return []
    if distrust.is_certain:
        raise failure(distrust.code, distrust.message, distrust.remedy)
    return [Finding(distrust.code, distrust.message, distrust.remedy, "warning")]


def _in_packages(work: Work, kernel: str, files: Sequence[str]) -> tuple[Signer, ...]:
    """Return the signers of the driver's modules in packages; raises `StageError`."""
    host = work.host
    signers: list[Signer] = []
    for file in files:
        try:
            places = [place for place in work.source.list_files(host, file) if _is_module(place, kernel)]
            if not places:
                continue
            folder = f"{work.scratch}/look"
            host.path(folder).mkdir(parents=True)
            work.source.unpack(host, file, folder)
        except SourceError as error:
            raise failed(error) from error
        signers += [Signer(describe_module(host, f"{folder}{place}").get("signer", "")) for place in places]
        shutil.rmtree(host.path(folder))
    return tuple(signers)


def _is_module(place: str, kernel: str) -> bool:
    return f"/modules/{kernel}/" in place and place.rpartition("/")[2].startswith("nvidia") and ".ko" in place
