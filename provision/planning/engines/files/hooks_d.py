"""Renders the hook file for engines that read OCI hook files (``hooks.d``, schema 1.0.0): CRI-O and Podman.

The schema knows annotations, the command and bind mounts of a container; it knows neither device nodes nor
environment. A condition only decides whether the hook is started; what a container gets is the hook's decision alone.
So whatever the author of a pod can change may lead to more starts, never to a container that is missed:

- only keys of annotations are matched, never values: CRI-O lets the pod's annotations overwrite those that it was
  given for the container before it matches;
- ``HANDLER_ANNOTATION`` is on every pod of our handler (``default_annotations`` in
  `provision.planning.engines.crio`);
  it is no condition where there are rules of tenancy, which hold for GPUs in pods of other handlers as well;
- ``grapnel.dev/allocation`` is on every container that our device plugin has given a GPU. Another plugin's containers
  do not have it, so it is no condition where ours is disabled;
- where the environment decides (Podman), nothing that the schema knows tells who asks, and the hook always starts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from provision.declaration.spec.model import Engine, Entitlement
from provision.planning.engines.containerd.base_spec import hook_entry
from provision.planning.render.hook_config import HOOK_TIMEOUT_S

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec

# CRI-O is told to read this folder.
HOOKS_FOLDER = "/etc/containers/oci/hooks.d"
HOOK_FILE_PATH = f"{HOOKS_FOLDER}/99-grapnel.json"
# Podman 4 reads both folders by itself, Podman 5 (containers.conf, hooks_dir) this one alone.
PODMAN_HOOK_FILE_PATH = "/usr/share/containers/oci/hooks.d/99-grapnel.json"
HANDLER_ANNOTATION = "grapnel.dev/handler"
ALLOCATION_ANNOTATION = "grapnel.dev/allocation"
_ANY = ".*"


def render_hooks_d(stack: StackSpec) -> str:
    """Return the hook file's text for the declared engine."""
    document = {"version": "1.0.0", "hook": hook_entry(hook_timeout_s=HOOK_TIMEOUT_S)}
    # CRI-O adds the hook to createRuntime of the container, Podman to prestart; both run at the same point.
    return json.dumps(document | {"when": _when(stack), "stages": ["prestart"]}, indent=2) + "\n"


def _when(stack: StackSpec) -> dict[str, Any]:
    is_kubelet = stack.runtime.entitlement is Entitlement.KUBELET
    keys = []
    # Rules hold for GPUs in pods of every handler: their device nodes come from the kubelet, whatever the handler is.
    if stack.runtime.engine is Engine.CRIO and not (is_kubelet and stack.tenancy.namespaces):
        keys.append(HANDLER_ANNOTATION)
    if is_kubelet and stack.plugin.enabled:
        keys.append(ALLOCATION_ANNOTATION)
    if not keys:
        return {"always": True}
    return {"annotations": {_exactly(key): _ANY for key in keys}}


def _exactly(key: str) -> str:
    """Return the pattern (RE2) of one key; keys of ours have no other special character than the dot."""
    return f"^{key.replace('.', chr(92) + '.')}$"
