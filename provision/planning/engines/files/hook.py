"""How engines start the hook: its entry, the hook file of CRI-O and Podman, and NVIDIA's among the files of others.

**Our hook file** (``hooks.d``, schema 1.0.0). The schema knows annotations, the command and bind mounts of a container;
it knows neither device nodes nor environment. A condition only decides whether the hook is started; what a container
gets is the hook's decision alone. So whatever the author of a pod can change may lead to more starts, never to a
container that is missed:

- only keys of annotations are matched, never values: CRI-O lets the pod's annotations overwrite those that it was
  given for the container before it matches;
- ``HANDLER_ANNOTATION`` is on every pod of our handler, where the engine has handlers (``default_annotations`` in
  `provision.planning.engines.crio`);
  it is no condition where there are rules of tenancy, which hold for GPUs in pods of other handlers as well;
- ``grapnel.dev/allocation`` is on every container that our device plugin has given a GPU. Another plugin's containers
  do not have it, so it is no condition where ours is disabled;
- where the environment decides (Podman), nothing that the schema knows tells who asks, and the hook always starts.

**NVIDIA's.** NVIDIA's toolkit writes ``oci-nvidia-hook.json`` (``nvidia-ctk runtime configure --config-mode=hook``) for
all containers, and what it starts gives a GPU to whoever asks in its environment. The file stays behind when the
toolkit is removed by hand. What counts is what a file starts, not what it is called. Forms: oci-hooks(5), schemas 1.0.0
and 0.1.0.
"""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING, Any

from provision.declaration.spec.model import Entitlement
from provision.planning.engines.files.engine_file import parse_json, shown
from provision.planning.engines.files.runtimes import is_injector
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.hook_config import HOOK_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from provision.declaration.spec.model import StackSpec

HOOK_PATH = "/usr/lib/grapnel/hook/grapnel-hook"
DEFAULT_FOLDER = "/usr/share/containers/oci/hooks.d"
FOLDER = "/etc/containers/oci/hooks.d"
FILE_NAME = "99-grapnel.json"
HANDLER_ANNOTATION = "grapnel.dev/handler"
ALLOCATION_ANNOTATION = "grapnel.dev/allocation"
# The hook gives up by itself before that (hook.json, timeoutS) and says why; this limit is for a hook that cannot.
_MARGIN_S = 15
# A hook without an environment of its own gets the container's under some runtimes (CVE-2025-23266).
_HOOK_ENVIRONMENT = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
_ANY = ".*"
_SUFFIX = ".json"  # other names are not read
_SHOWN_FILES = 3


def hook_entry(*, hook_timeout_s: int) -> dict[str, Any]:
    """Return the hook as an OCI specification and a hook file both name it."""
    return {
        "path": HOOK_PATH,
        "args": ["grapnel-hook", "prestart"],
        "env": list(_HOOK_ENVIRONMENT),
        "timeout": hook_timeout_s + _MARGIN_S,
    }


def render_hook_file(stack: StackSpec, *, has_handlers: bool = False) -> str:
    """Return the hook file's text; ``has_handlers`` of an engine that gives pods of ours `HANDLER_ANNOTATION`."""
    document = {"version": "1.0.0", "hook": hook_entry(hook_timeout_s=HOOK_TIMEOUT_S)}
    # CRI-O adds the hook to createRuntime of the container, Podman to prestart; both run at the same point.
    when = _when(stack, has_handlers=has_handlers)
    return json.dumps(document | {"when": when, "stages": ["prestart"]}, indent=2) + "\n"


def _when(stack: StackSpec, *, has_handlers: bool) -> dict[str, Any]:
    is_kubelet = stack.runtime.entitlement is Entitlement.KUBELET
    keys = []
    # Rules hold for GPUs in pods of every handler: their device nodes come from the kubelet, whatever the handler is.
    if has_handlers and not (is_kubelet and stack.tenancy.namespaces):
        keys.append(HANDLER_ANNOTATION)
    if is_kubelet and stack.plugin.enabled:
        keys.append(ALLOCATION_ANNOTATION)
    if not keys:
        return {"always": True}
    return {"annotations": {_exactly(key): _ANY for key in keys}}


def _exactly(key: str) -> str:
    """Return the pattern (RE2) of one key; keys of ours have no other special character than the dot."""
    return f"^{key.replace('.', chr(92) + '.')}$"


def require_no_injector(files: Mapping[str, str | None], folders: Collection[str], *, engine: str) -> None:
    """Raise `EngineConfigError` where a file of these folders starts NVIDIA's hook.

    ``files`` are the node's files by path; None is one that is no text.
    """
    folders = {posixpath.normpath(folder) for folder in folders}
    read = (path for path in sorted(files) if posixpath.dirname(path) in folders and path.endswith(_SUFFIX))
    found = [path for path in read if _starts_injector(path, files[path])]
    if not found:
        return
    more = f" and {len(found) - _SHOWN_FILES} more" if len(found) > _SHOWN_FILES else ""
    named = ", ".join(map(shown, found[:_SHOWN_FILES]))
    raise EngineConfigError(
        f"{named}{more}: starts NVIDIA's hook for containers of {engine}, which gives a GPU to any that asks in its "
        "environment",
        hint="remove it, and the toolkit that brought it: docs/migrate.md says how",
    )


def _starts_injector(path: str, text: str | None) -> bool:
    """Tell by the program and its arguments; of a file that cannot be read, by its name."""
    try:
        values = None if text is None else parse_json(path, text, show="").values
    except EngineConfigError:
        values = None
    return is_injector([posixpath.basename(path)] if values is None else _commands(values))


def _commands(values: Mapping[str, Any]) -> Iterator[Any]:
    """Return what a file of either schema starts, with arguments; keys in any case, as the engines take them."""
    for hook in _at(values, "hook"):
        if isinstance(hook, dict):
            yield from (each for key in ("path", "args") for found in _at(hook, key) for each in _flat(found))
        yield hook
    yield from (each for found in _at(values, "arguments") for each in _flat(found))


def _at(values: Mapping[str, Any], wanted: str) -> Iterable[Any]:
    return (value for key, value in values.items() if key.casefold() == wanted)


def _flat(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [value]
