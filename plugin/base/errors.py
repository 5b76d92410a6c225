"""Every error of the node daemon, each with a hint that helps.

NodeDaemonError
├── ConfigError          node.json cannot be read or says something that is not in the contract
├── DriverNotReady       NVML, the driver or the GPUs are not there (yet)
├── NoAnswer             a call that took longer than it may: the driver or a process hangs
├── ReleaseError         the remembered release cannot be written, read or forgotten
├── HealthError          a verdict cannot be written, read or given
├── DriftError           the node cannot be compared with what was brought about on it
├── MpsError             a control daemon of MPS cannot be started, asked or ended
├── MigError             a MIG layout cannot be read, remembered or carried out
├── GpuSettingsError     settings of GPUs cannot be read, remembered or set
├── HistoryError         what happened cannot be read, or nothing is known of what was asked for
├── AdminError           the running daemon cannot be told something
├── NodeTaken            another daemon runs on this node
├── LimitError           a container's memory cannot be limited in the driver
│   └── LimitUnsupported nothing here limits it: this driver, this GPU or this kernel
├── ExpectationError     what `verify` is to expect is not in the contract
├── KubeletError         the kubelet cannot be reached or refuses the registration
│   └── KubeletSilent    it takes the connection, and does not answer
├── ClusterError         the Kubernetes API cannot be reached or used, or said no
├── ClaimError           a ResourceClaim cannot be prepared
└── RequestError         a call of the kubelet that cannot be answered
    ├── InvalidRequest   it names what this node never offered
    └── DeviceNotReady   it names a device that is not healthy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NOT_AS_WANTED = 3  # done, and what was found is not as it should be
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


class NodeDaemonError(Exception):
    """An expected failure: a message that names the thing, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(NodeDaemonError):
    """The configuration cannot be used."""


class NodeTaken(NodeDaemonError):
    """Another daemon has this node."""


class DriverNotReady(NodeDaemonError):
    """The driver cannot be asked at the moment."""


class NoAnswer(NodeDaemonError):
    """Something did not answer within its time."""


class ReleaseError(NodeDaemonError):
    """The remembered release cannot be changed."""


class HealthError(NodeDaemonError):
    """A verdict on a GPU cannot be changed or read."""


class DriftError(NodeDaemonError):
    """What is on the node, or what was brought about on it, cannot be read."""


class MpsError(NodeDaemonError):
    """A control daemon of MPS, its unit or its GPU's compute mode is not as it should be."""


class MigError(NodeDaemonError):
    """GPUs cannot be cut as they are to be."""


class GpuSettingsError(NodeDaemonError):
    """Settings of GPUs cannot be as they are to be."""


class HistoryError(NodeDaemonError):
    """The history cannot be read, or knows nothing of what was asked for."""


class AdminError(NodeDaemonError):
    """The running daemon does not answer on its socket, or answers nonsense."""


class LimitError(NodeDaemonError):
    """The driver cannot be told how much memory a container may have, or does not keep to it."""


class LimitUnsupported(LimitError):
    """There are no limits per control group here: trying again does not help."""


class ExpectationError(NodeDaemonError):
    """The expectation cannot be used."""


class KubeletError(NodeDaemonError):
    """The kubelet cannot be reached, or said no."""


class KubeletSilent(KubeletError):
    """The kubelet hangs, or has too much to do."""


class ClusterError(NodeDaemonError):
    """The Kubernetes API cannot be used, or said no. `status` is that of HTTP, 0 where there was no answer.

    `retry_after_s` is what the API asked for; `owners` maps fields that others own to their field managers.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        status: int = 0,
        retry_after_s: float = 0.0,
        owners: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.retry_after_s = retry_after_s
        self.owners = owners or {}


class ClaimError(NodeDaemonError):
    """A ResourceClaim cannot be prepared now; the kubelet shows why at the pod, and asks again."""


class RequestError(NodeDaemonError):
    """A request of the kubelet that cannot be answered."""


class InvalidRequest(RequestError):
    """The request itself is wrong: it would fail every time."""


class DeviceNotReady(RequestError):
    """The request is fine, the device is not."""


def os_reason(error: OSError) -> str:
    """Return what the system says of an error, in small letters."""
    return (error.strerror or str(error)).lower()
