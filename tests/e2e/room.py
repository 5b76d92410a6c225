"""A test's namespace: its pods, their logs, and their removal."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException

from tests.e2e.api import identities
from tests.e2e.manifests import LOOKED
from tests.e2e.sight import Sight, parse_sight
from tests.e2e.waiting import TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.e2e.api import Api, Identity
    from tests.e2e.manifests import Manifest
    from tests.e2e.stage import Stage

ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Ended:
    """A pod that has ended: its phase, and what each container printed."""

    phase: str
    logs: dict[str, str]

    def sight(self, container: str = "main") -> Sight:
        """Return what a container saw."""
        return parse_sight(self.logs[container])


@dataclass(frozen=True)
class Room:
    """One namespace. Every wait has a time limit and shows the evidence when it times out."""

    stage: Stage
    name: str

    @property
    def api(self) -> Api:
        """The cluster's API."""
        return self.stage.api

    def open(self) -> None:
        """Make the namespace and wait until pods can be made in it."""
        self.api.make_namespace(self.name)
        wait_for(f"namespace {self.name} has its service account", lambda: self.api.has_account(self.name))

    def close(self) -> None:
        """Delete everything and wait until the GPUs are free again."""
        self.clear()
        self.api.delete_namespace(self.name)

    def clear(self) -> None:
        """Delete every pod, and what would make new ones."""
        self.api.delete_all(self.name)
        wait_for(f"the pods of {self.name} are gone", self._is_empty, evidence=self.evidence)

    def start(self, *manifests: Manifest) -> None:
        """Make pods, deployments or budgets."""
        for manifest in manifests:
            self.api.create(self.name, manifest)

    def pod(self, name: str) -> Any:
        """Return a pod."""
        return next(pod for pod in self.api.pods(self.name) if pod.metadata.name == name)

    def run(self, *manifests: Manifest) -> dict[str, Ended]:
        """Run pods to their end and return how they ended, by name."""
        self.start(*manifests)
        names = [manifest["metadata"]["name"] for manifest in manifests]
        return {name: self.ended(name) for name in names}

    def ended(self, name: str, *, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait for the end of a pod and, where it has succeeded, for the last line of each container."""
        description = f"pod {name} has ended"
        pod = wait_for(description, lambda: self._in_phase(name, ENDED), timeout_s=timeout_s, evidence=self.evidence)
        containers = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        if pod.status.phase == "Succeeded":
            return Ended(pod.status.phase, {each.name: self.whole_log(name, each.name) for each in containers})
        return Ended(pod.status.phase, {each.name: self.api.log(self.name, name, each.name) for each in containers})

    def wait_running(self, names: Iterable[str], *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until pods run; one that ended instead is an error at once."""
        for name in names:
            wait_for(
                f"pod {name} runs", lambda name=name: self._runs(name), timeout_s=timeout_s, evidence=self.evidence
            )

    def whole_log(self, name: str, container: str = "main") -> str:
        """Return what a container has printed, once its last line says that this is all."""

        def log() -> str | None:
            with suppress(ApiException):  # a container that has not started has no log
                text = self.api.log(self.name, name, container)
                return text if LOOKED in text.splitlines() else None
            return None

        return wait_for(f"{container} of {name} has looked around", log, evidence=self.evidence)

    def sight(self, name: str, container: str = "main") -> Sight:
        """Return what a container that stays saw when it started."""
        return parse_sight(self.whole_log(name, container))

    def identities(self, name: str) -> dict[str, Identity]:
        """Return by what the pod's containers are known to be the same ones later."""
        return identities(self.pod(name))

    def evidence(self) -> str:
        """Return the evidence about the namespace and its nodes."""
        return self.stage.evidence(namespace=self.name)

    def _is_empty(self) -> bool:
        return not self.api.makers(self.name) and not self.api.pods(self.name)  # in this order: none is made any more

    def _in_phase(self, name: str, phases: Iterable[str]) -> Any:
        pod = self.pod(name)
        return pod if pod.status.phase in phases else None

    def _runs(self, name: str) -> bool:
        pod = self.pod(name)
        assert pod.status.phase not in ENDED, f"pod {name} {pod.status.phase.lower()}\n{self.evidence()}"
        return bool(pod.status.phase == "Running")
