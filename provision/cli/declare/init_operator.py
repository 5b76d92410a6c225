"""Carries out `grapnel init --from-gpu-operator`: writes the GpuStacks of what NVIDIA's GPU operator was told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from provision.base.errors import ExitCode, GrapnelError, os_reason
from provision.base.printable import printable_json
from provision.base.regular_file import read_beginning
from provision.cli.terminal import print_findings
from provision.cluster.connect import open_api
from provision.cluster.kubernetes.api.client import NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.controller.stacks.file import judge_stack, read_stack_text
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.text.findings import Severity
from provision.planning.gpu_operator.convert import convert
from provision.planning.gpu_operator.errors import OperatorObjectsError
from provision.planning.gpu_operator.model import Verdict
from provision.planning.gpu_operator.read import MAX_BYTES, parse_objects, parse_value, sort_objects
from provision.planning.gpu_operator.text import describe, render_stack
from provision.report.console import Text, make_console
from provision.report.terminal import count, hanging, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from provision.cluster.kubernetes.api.client import Api
    from provision.declaration.spec.text.findings import Finding
    from provision.planning.gpu_operator.model import Conversion, Key

CLUSTER: Final = "cluster"
SCHEMA: Final = "grapnel.dev/from-gpu-operator/v1alpha1"
_POLICIES: Final = "/apis/nvidia.com/v1/clusterpolicies"
_DRIVERS: Final = "/apis/nvidia.com/v1alpha1/nvidiadrivers"
_CONFIG_MAPS: Final = (  # where objects name ConfigMaps that say something about nodes
    ("devicePlugin", "config", "name"),
    ("migManager", "config", "name"),
    ("driver", "kernelModuleConfig", "name"),
    ("kernelModuleConfig", "name"),
)
_NAMESPACE: Final = "gpu-operator"  # unless the ClusterPolicy's status says another one


class Write(Protocol):
    """Writes a whole file or nothing: `provision.cli.declare.init.write_declaration`."""

    def __call__(self, path: Path, text: str, *, force: bool) -> None:
        """Write it."""


def run(args: argparse.Namespace, write: Write) -> int:
    """Read the objects, write a file for each stack, and say what became of every key."""
    objects = [each for source in args.from_gpu_operator for each in _read(source, args)]
    conversion = convert(sort_objects(objects), parse_value)
    files = _files(args.file, conversion)
    taken = [path for path in files if not args.force and os.path.lexists(path)]
    if taken:
        raise GrapnelError(f"{taken[0]} already exists", hint="`--force` overwrites it")
    findings = [each for path, text in files.items() for each in _judge(path, text)]
    for path, text in files.items():
        write(path, text, force=args.force)
    if args.json:
        print(_document(conversion, list(files)))
    else:
        show(make_console(sys.stdout), _render(conversion, list(files)))
    print_findings(findings)
    return ExitCode.FAILED if any(each.severity is Severity.ERROR for each in findings) else ExitCode.DONE


def _judge(path: Path, text: str) -> Sequence[Finding]:
    """Return what `grapnel check` says of a file that is yet to be written."""
    try:
        return judge_stack(read_stack_text(text.encode(), str(path)))[1]
    except DeclarationError as error:
        return error.findings


def _read(source: str, args: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    if source == CLUSTER:
        api = open_api(args.kubeconfig, args.context, os.environ)
        if api is None:
            raise GrapnelError("there is no kubeconfig", hint="add `--kubeconfig`, or name a file")
        return read_cluster(api)
    if source == "-":
        return parse_objects(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    try:
        data = read_beginning(Path(source), MAX_BYTES + 1)
    except OSError as error:
        reason = os_reason(error)
        raise OperatorObjectsError(f"{source} cannot be read: {reason}", hint="`-` reads standard input") from error
    return parse_objects(data, source)


def read_cluster(api: Api) -> list[Mapping[str, Any]]:
    """Return the operator's objects, and the ConfigMaps that they name. Raises ClusterError."""
    policies, drivers = _list(api, _POLICIES, "ClusterPolicy"), _list(api, _DRIVERS, "NVIDIADriver")
    if not policies:
        raise OperatorObjectsError(
            f"{api.name} has no ClusterPolicy", hint="name a file that was written before the operator was uninstalled"
        )
    namespace = next((found for each in policies if (found := (each.get("status") or {}).get("namespace"))), _NAMESPACE)
    found = [*policies, *drivers]
    for name in dict.fromkeys(_config_maps(found)):
        path = f"/api/v1/namespaces/{quote(str(namespace), safe='')}/configmaps/{quote(name, safe='')}"
        try:
            config: dict[str, Any] = api.call(Request(method="GET", path=path), dict[str, Any], expected=(NOT_FOUND,))
        except StatusError:
            continue  # the key that names it says that it is not there
        found.append({**config, "kind": "ConfigMap"})
    return found


def _list(api: Api, path: str, kind: str) -> list[Mapping[str, Any]]:
    version = path.removeprefix("/apis/").rpartition("/")[0]
    try:
        answer: dict[str, Any] = api.call(Request(method="GET", path=path), dict[str, Any], expected=(NOT_FOUND,))
    except StatusError:
        return []
    return [{**each, "kind": kind, "apiVersion": version} for each in answer.get("items") or ()]


def _config_maps(objects: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for each in objects:
        for path in _CONFIG_MAPS:
            found: Any = each.get("spec")
            for key in path:
                found = found.get(key) if isinstance(found, dict) else None
            if isinstance(found, str) and found:
                yield found


def _files(file: Path, conversion: Conversion) -> dict[Path, str]:
    """Return the text of each file: of FILE, or where there are several stacks, of one beside it for each."""
    if not conversion.stacks:
        raise OperatorObjectsError("no NVIDIADriver is about containers: there is nothing to write")
    missing = conversion.of(Verdict.MISSING)
    several = len(conversion.stacks) > 1
    names = {
        stack.name: file.with_name(f"{file.stem}-{stack.name}{file.suffix}") if several else file
        for stack in conversion.stacks
    }
    if len(names) < len(conversion.stacks):
        raise OperatorObjectsError("two NVIDIADrivers come to the same name of a GpuStack", hint="rename one of them")
    return {names[stack.name]: render_stack(stack, conversion, missing) for stack in conversion.stacks}


def _render(conversion: Conversion, files: Sequence[Path]) -> Iterator[RenderableType]:
    yield Text(f"wrote {', '.join(map(str, files))}", "bold")
    for key in conversion.of(Verdict.CARRIED):
        yield hanging(2, Text(f"{describe(key)} → {', '.join(key.became)}"))
    missing = conversion.of(Verdict.MISSING)
    if missing:
        yield ""
        yield Text(f"without a counterpart: {count(len(missing), 'key')}", "bold yellow")
    for key in missing:
        yield hanging(2, Text(describe(key)))
        yield hanging(4, Text(key.why, "dim"))
    covered, idle = len(conversion.of(Verdict.COVERED)), len(conversion.of(Verdict.IDLE))
    yield ""
    yield Text(
        f"{count(covered, 'key')} about what grapnel does in its own way, {count(idle, 'key')} that ask for nothing: "
        "--json has them all"
    )
    for file in files:
        yield Text(f"next: grapnel plan -f {file}")
    yield Text("then step by step: docs/migrate/gpu-operator.md")


def _document(conversion: Conversion, files: Sequence[Path]) -> str:
    return printable_json(
        {
            "schema": SCHEMA,
            "written": [str(path) for path in files],
            "keys": [_key(key) for key in conversion.keys],
        }
    )


def _key(key: Key) -> dict[str, object]:
    return {
        "source": key.source,
        "path": key.path,
        "value": key.value,
        "verdict": key.verdict.value,
        "why": key.why,
        "became": list(key.became),
    }
