"""Runs a module of this collection on a node without Ansible's base class, which imports most of Ansible's library.

What modules of this collection use of it is their arguments, whether this is a check, and how to answer. Where all
arguments are of the declared types, only defaults have to be filled in; anything else is for Ansible to convert, or to
refuse in its own words. `quick_modules` sends the text of this file with each module, so it uses the standard library
alone.
"""

from __future__ import annotations

import base64
import json
import os
import runpy
import sys
import syslog
import traceback
import types
from typing import Any, ClassVar

KINDS: dict[str, Any] = {"str": str, "int": int, "bool": bool, "dict": dict, "list": list, "path": str}
KNOWN = {"type", "default", "required", "choices", "elements", "options"}
BASIC = "ansible.module_utils.basic"
_LOGGED = 4000  # characters


class NotPlain(Exception):
    """Ansible's base class is needed."""


def run_plainly(zip_data: str, module_fqn: str, params: str, **more: Any) -> None:
    """Run a module and exit; return where it takes Ansible's base class. The arguments are those of Ansible's own."""
    if more.get("extensions") or more.get("rlimit_nofile") or "__ansible_type" in params:
        return
    given: dict[str, Any] = json.loads(params)["ANSIBLE_MODULE_ARGS"]
    settings = {name: given.pop(name) for name in list(given) if name.startswith("_ansible_")}
    try:
        descriptor = os.memfd_create(module_fqn)  # zipimport takes paths alone; a file would have to be removed again
    except (AttributeError, OSError):
        return
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(base64.b64decode(zip_data))
    place = f"/proc/self/fd/{descriptor}"
    sys.path.insert(0, place)
    for name in ("ansible", "ansible.module_utils", BASIC):
        sys.modules[name] = types.ModuleType(name)
    no_log = bool(settings.get("_ansible_no_log"))
    own = {"given": given, "settings": settings, "no_log": no_log}
    vars(sys.modules[BASIC])["AnsibleModule"] = type("AnsibleModule", (PlainModule,), own)  # modules derive from it
    try:
        runpy.run_module(module_fqn, run_name="__main__", alter_sys=True)
    except NotPlain:
        pass
    except Exception as error:  # noqa: BLE001 - as Ansible does
        _answer({"failed": True, "msg": f"{type(error).__name__}: {error}", "exception": traceback.format_exc()}, 1)
    sys.path.remove(place)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("ansible", "ansible_collections")]:
        del sys.modules[name]
    os.close(descriptor)


class PlainModule:
    """What modules of this collection use of `AnsibleModule`; ``given`` are the arguments of the task."""

    given: ClassVar[dict[str, Any]]
    settings: ClassVar[dict[str, Any]]
    no_log: bool

    def __init__(
        self,
        argument_spec: dict[str, Any],
        supports_check_mode: bool = False,  # noqa: FBT001, FBT002 - as Ansible's
        required_if: Any = (),
    ) -> None:
        self.params = _fill(self.given, argument_spec)
        self.check_mode = bool(self.settings.get("_ansible_check_mode"))
        lacks = any(
            self.params[key] == value and None in map(self.params.get, needs) for key, value, needs in required_if
        )
        if lacks or (self.check_mode and not supports_check_mode):
            raise NotPlain
        if not self.no_log:
            facility = getattr(syslog, str(self.settings.get("_ansible_syslog_facility")), syslog.LOG_USER)
            syslog.openlog(f"ansible-{self.settings.get('_ansible_module_name')}", 0, facility)
            told = " ".join(f"{name}={value}" for name, value in self.params.items())
            syslog.syslog(syslog.LOG_INFO, f"Invoked with {told}"[:_LOGGED].replace("\0", " "))

    def exit_json(self, **result: Any) -> None:
        """Answer, and exit."""
        _answer({"changed": False, "invocation": {"module_args": self.params}, **result}, 0)

    def fail_json(self, msg: str, **result: Any) -> None:
        """Answer that it failed, and exit."""
        _answer({"invocation": {"module_args": self.params}, **result, "failed": True, "msg": msg}, 1)


def _fit(value: Any, spec: dict[str, Any]) -> Any:
    """Return a value that needs no conversion; raises NotPlain."""
    kind = spec.get("type", "str")
    is_path = kind == "path" and isinstance(value, str)
    if type(value) is not KINDS.get(kind) or (is_path and (value[:1] != "/" or "$" in value)):
        raise NotPlain
    if value not in spec.get("choices", (value,)):
        raise NotPlain
    if kind == "list" and "elements" in spec:
        one: dict[str, Any] = {
            "type": spec["elements"],
            **({"options": spec["options"]} if "options" in spec else {}),
        }
        return [_fit(each, one) for each in value]
    return _fill(value, spec["options"]) if "options" in spec else value


def _fill(values: dict[str, Any], specs: dict[str, Any]) -> dict[str, Any]:
    """Return values with defaults; raises NotPlain."""
    if set(values) - set(specs) or any(set(spec) - KNOWN for spec in specs.values()):
        raise NotPlain
    filled = {}
    for name, spec in specs.items():
        is_given = name in values
        if not is_given and spec.get("required"):
            raise NotPlain
        filled[name] = _fit(values[name], spec) if is_given else spec.get("default")
    return filled


def _answer(result: dict[str, Any], code: int) -> None:
    sys.stdout.write(f"\n{json.dumps(result)}\n")
    sys.exit(code)
