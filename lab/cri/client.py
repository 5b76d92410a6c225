"""A client of the CRI socket for pods and containers, with time limits and the engine's own error messages."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc

from lab.cri import config as configs
from lab.cri.errors import CallError, WaitError
from lab.cri.log import read_log
from lab.cri.proto import api_pb2 as cri
from lab.cri.proto import api_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

_POLL_S = 0.05


@dataclass(frozen=True)
class Pod:
    """A running sandbox, and the configuration that its containers are created with."""

    id: str
    config: cri.PodSandboxConfig


@dataclass(frozen=True)
class Finished:
    """A container that has ended; `log` has both its outputs in the order in which they were written."""

    exit_code: int
    log: str


class Cri:
    """A client of one engine.

    `log_dir` is a folder as the engine sees it, `engine_root` the engine's root as seen from here (for an engine
    inside a node). Without `log_dir` the logs are in a temporary folder that is removed when the client is closed.
    """

    def __init__(
        self,
        socket: Path,
        *,
        timeout_s: float = 60,
        log_dir: Path | None = None,
        engine_root: Path = Path("/"),
        cgroup_parent: str = "/kubepods",
    ) -> None:
        self._timeout_s = timeout_s
        self._cgroup_parent = cgroup_parent
        self._own_log_dir = None if log_dir else Path(tempfile.mkdtemp(prefix="grapnel-cri-"))
        self._log_dir = log_dir or self._own_log_dir or Path()
        self._engine_root = engine_root
        self._attempts = itertools.count()
        self._channel = grpc.insecure_channel(f"unix://{socket}")
        self._runtime = api_pb2_grpc.RuntimeServiceStub(self._channel)  # type: ignore[no-untyped-call] # generated
        self._images = api_pb2_grpc.ImageServiceStub(self._channel)  # type: ignore[no-untyped-call] # generated

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; pods stay."""
        self._channel.close()
        if self._own_log_dir:
            shutil.rmtree(self._own_log_dir, ignore_errors=True)

    def version(self) -> str:
        """Return the engine's name and version. Raises CallError, also if the engine does not answer in time."""
        answer = self._call(self._runtime.Version, cri.VersionRequest(), wait_for_ready=True)
        return f"{answer.runtime_name} {answer.runtime_version}"

    def images(self) -> list[str]:
        """Return the names of all images that the engine has."""
        answer = self._call(self._images.ListImages, cri.ListImagesRequest())
        return sorted(tag for image in answer.images for tag in image.repo_tags)

    def run_pod(
        self,
        name: str,
        namespace: str = "default",
        uid: str = "",
        *,
        handler: str = "",
        host_network: bool = True,
        privileged: bool = False,
        annotations: Mapping[str, str] | None = None,
        first_id: int | None = None,
    ) -> Pod:
        """Start a pod's sandbox with a runtime handler (empty: the engine's default). Raises CallError.

        With `first_id` it has users of its own (`hostUsers: false`), and cannot be on the host's network.
        """
        uid = uid or name
        options = configs.namespaces(host_network=host_network, first_id=first_id)
        security = cri.LinuxSandboxSecurityContext(privileged=privileged, namespace_options=options)
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, uid=uid, namespace=namespace, attempt=next(self._attempts)),
            hostname="" if host_network else name,
            log_directory=str(self._log_dir / f"{namespace}_{name}_{uid}"),
            labels={
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": namespace,
                "io.kubernetes.pod.uid": uid,
            },
            annotations=annotations or {},
            linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"{self._cgroup_parent}/pod{uid}", security_context=security),
        )
        self._here(config.log_directory).mkdir(parents=True, exist_ok=True)
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
        return Pod(self._call(self._runtime.RunPodSandbox, request).pod_sandbox_id, config)

    def run(
        self,
        pod: Pod,
        image: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        devices: Sequence[configs.Device] = (),
        mounts: Sequence[configs.Mount] = (),
        annotations: Mapping[str, str] | None = None,
        cdi_devices: Sequence[str] = (),
        privileged: bool = False,
    ) -> Finished:
        """Run a container to its end and remove it. Raises CallError, and WaitError if it does not end in time."""
        spec = configs.ContainerSpec(
            image=image,
            command=command,
            env=env or {},
            devices=devices,
            mounts=mounts,
            annotations=annotations or {},
            cdi_devices=cdi_devices,
            privileged=privileged,
        )
        return self.run_config(pod, configs.container_config(spec))

    def run_config(self, pod: Pod, config: cri.ContainerConfig) -> Finished:
        """Run a container from a complete configuration to its end, like `run`."""
        container = self.start(pod, config)
        try:
            return self.wait(container)
        finally:
            self.remove(container)

    def start(self, pod: Pod, config: cri.ContainerConfig) -> str:
        """Create and start a container in a pod; return its id. Raises CallError."""
        attempt = next(self._attempts)
        config.metadata.attempt = attempt
        config.log_path = f"{config.metadata.name}/{attempt}.log"
        self._here(pod.config.log_directory, config.metadata.name).mkdir(parents=True, exist_ok=True)
        request = cri.CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        container: str = self._call(self._runtime.CreateContainer, request).container_id
        try:
            self._call(self._runtime.StartContainer, cri.StartContainerRequest(container_id=container))
        except CallError:
            self.remove(container)
            raise
        return container

    def status(self, container: str) -> cri.ContainerStatus:
        """Return the engine's status of a container. Raises CallError."""
        request = cri.ContainerStatusRequest(container_id=container)
        status: cri.ContainerStatus = self._call(self._runtime.ContainerStatus, request).status
        return status

    def wait(self, container: str) -> Finished:
        """Wait until a container has ended. Raises WaitError if that takes longer than the time limit."""
        end = time.monotonic() + self._timeout_s
        while (status := self.status(container)).state != cri.CONTAINER_EXITED:
            if time.monotonic() > end:
                raise WaitError(
                    f"container {status.metadata.name} is still running after {self._timeout_s:g} s",
                    hint=f"it has printed: {read_log(self._here(status.log_path))}",
                )
            time.sleep(_POLL_S)
        return Finished(status.exit_code, read_log(self._here(status.log_path)))

    def exec(self, container: str, command: Sequence[str]) -> Finished:
        """Run a command in a running container; `log` is its standard output, then its standard error."""
        request = cri.ExecSyncRequest(container_id=container, cmd=command, timeout=int(self._timeout_s))
        answer = self._call(self._runtime.ExecSync, request)
        return Finished(answer.exit_code, (answer.stdout + answer.stderr).decode(errors="replace"))

    def remove(self, container: str) -> None:
        """Stop a container at once, and remove it. Raises CallError."""
        self._call(self._runtime.StopContainer, cri.StopContainerRequest(container_id=container, timeout=0))
        self._call(self._runtime.RemoveContainer, cri.RemoveContainerRequest(container_id=container))

    def remove_pod(self, pod: Pod) -> None:
        """Stop a pod with all its containers, and remove it. Raises CallError."""
        self._remove_sandbox(pod.id)

    def remove_all(self) -> None:
        """Stop and remove every pod of the engine. Raises CallError."""
        for sandbox in self._call(self._runtime.ListPodSandbox, cri.ListPodSandboxRequest()).items:
            self._remove_sandbox(sandbox.id)

    def _remove_sandbox(self, sandbox: str) -> None:
        self._call(self._runtime.StopPodSandbox, cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        self._call(self._runtime.RemovePodSandbox, cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    def _here(self, engine_path: str, *parts: str) -> Path:
        """Return an engine path as seen from here."""
        return self._engine_root / engine_path.lstrip("/") / Path(*parts)

    def _call(self, method: Callable[..., Any], request: object, *, wait_for_ready: bool = False) -> Any:
        try:
            return method(request, timeout=self._timeout_s, wait_for_ready=wait_for_ready)
        except grpc.RpcError as error:
            name = type(request).__name__.removesuffix("Request")
            raise CallError(f"{name} failed: {error.details()}") from error
