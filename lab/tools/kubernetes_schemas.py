"""Provides the schemas of Kubernetes' resources for kubeconform, from the module that the lab's API server is built of.

kubeconform fetches schemas from the network by itself; here they are made of the OpenAPI document that the module
carries, one file for each kind, in the layout ``{kind}-{group}-{version}.json``.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from lab.golang import programs
from lab.golang.errors import GolangError
from lab.golang.toolchain import environment, find_go
from lab.machine.command import run
from lab.machine.folders import cache_dir, content_key

LOCATION: Final = "{{.ResourceKind}}{{.KindSuffix}}.json"
TIMEOUT_S: Final = 900.0
_KINDS: Final = "x-kubernetes-group-version-kind"
_REFERENCE: Final = "#/definitions/"
# What is written as a string in the document, and also read as a number.
_EITHER: Final = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}


def ensure() -> Path:
    """Return the folder of the schemas, made if it is not in the cache. Raises GolangError."""
    version = programs.kubernetes_version()
    target = cache_dir() / "schemas" / f"kubernetes-{version}-{content_key(Path(__file__).read_bytes())}"
    if target.is_dir():
        return target
    document = json.loads(_document(version).read_text())
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, schema in schemas(document).items():
        partial.joinpath(name).write_text(json.dumps(schema))
    try:
        partial.rename(target)
    except OSError:  # another process was quicker
        shutil.rmtree(partial)
    return target


def _document(version: str) -> Path:
    arguments = ["mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    answer = run([find_go("the schemas"), *arguments], timeout_s=TIMEOUT_S, env=environment()).stdout
    found = Path(json.loads(answer)["Dir"]) / "api" / "openapi-spec" / "swagger.json"
    if not found.is_file():
        raise GolangError(f"{found} is not there", hint=f"the module of Kubernetes {version} had it")
    return found


def schemas(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of each kind by the file name that kubeconform asks for; unknown keys are errors in them."""
    definitions = {name: _EITHER.get(name) or _strict(each) for name, each in document["definitions"].items()}
    found = {}
    for name, definition in document["definitions"].items():
        for kind in definition.get(_KINDS, ()):
            group = kind["group"].partition(".")[0]
            parts = [kind["kind"].lower(), *([group] if group else []), kind["version"]]
            needed = _reached(name, definitions)
            found[f"{'-'.join(parts)}.json"] = {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": f"{_REFERENCE}{name}",
                "definitions": {each: definitions[each] for each in sorted(needed)},
            }
    return found


def _strict(definition: dict[str, Any]) -> dict[str, Any]:
    made = {key: value for key, value in definition.items() if not key.startswith("x-kubernetes-")}
    if "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made


def _reached(name: str, definitions: dict[str, dict[str, Any]]) -> set[str]:
    """Return the definitions that one leads to, itself included."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting += _references(definitions[current])
    return reached


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [str(value["$ref"]).removeprefix(_REFERENCE)] if isinstance(value.get("$ref"), str) else []
        return own + [each for part in value.values() for each in _references(part)]
    return [each for part in value for each in _references(part)] if isinstance(value, list) else []
