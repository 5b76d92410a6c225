"""Code that is sent with each module and runs on the node before it, so that a module costs the node less.

Ansible sends a module as an archive of sources that is deleted at the end. Four fifths of what it takes to run one that
has little to do is Ansible's own: its base class imports most of its library, and zipimport compiles each file twice,
once to tell its name and once to run it, in every task again.

Each function stands for itself and imports what it needs: `quick_modules` sends their sources, and nothing else of
this file gets to a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType


def keep_compiled(  # noqa: C901 - one function is what is sent
    home: str = "/usr/lib/grapnel", folder: str = "/run/grapnel-modules", owner: int = 0
) -> None:
    """Have modules of archives that are imported from now on compiled once, and kept until the node's next boot.

    A name stands for the source and the Python, so that nothing found is out of date. It is code that root runs, so
    root alone may have written it, and not below ``/run/grapnel``, where the node daemon writes, which has less than
    all of root's rights. Nothing is kept where grapnel is not installed. Whatever goes wrong, a module is compiled as
    it always is.
    """
    import hashlib  # noqa: PLC0415 - see above
    import importlib.util  # noqa: PLC0415 - see above
    import marshal  # noqa: PLC0415 - see above
    import os  # noqa: PLC0415 - see above
    import stat  # noqa: PLC0415 - see above
    import sys  # noqa: PLC0415 - see above
    import zipimport  # noqa: PLC0415 - see above

    most, length = 2000, hashlib.sha256().digest_size

    def is_ours(path: str) -> bool:
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o022

    def is_kept() -> bool:
        try:
            if os.geteuid() != owner or not is_ours(home):
                return False
            if not os.path.lexists(folder):
                os.mkdir(folder, 0o700)  # noqa: PTH102 - pathlib would be one more import
            if not is_ours(folder):
                return False
            names = os.listdir(folder)  # noqa: PTH208 - see above
            for name in names if len(names) > most else ():  # of many versions
                os.unlink(f"{folder}/{name}")  # noqa: PTH108 - see above
        except OSError:
            return False
        return True

    def read(path: str) -> CodeType:
        with open(path, "rb") as stream:  # noqa: PTH123 - see above
            kept = stream.read()
        if hashlib.sha256(kept[length:]).digest() != kept[:length]:
            raise ValueError(path)
        code: CodeType = marshal.loads(kept[length:])  # noqa: S302 - written by root, see is_ours
        return code

    def write(path: str, code: CodeType) -> None:
        content, beside = marshal.dumps(code), f"{path}.{os.getpid()}"
        try:
            with open(beside, "xb") as stream:  # noqa: PTH123 - see above
                stream.write(hashlib.sha256(content).digest() + content)
            os.replace(beside, path)  # noqa: PTH105 - see above
        except OSError:
            return

    class Importer(zipimport.zipimporter):
        def get_filename(self, fullname: str) -> str:
            end = "/__init__.py" if self.is_package(fullname) else ".py"
            return f"{self.archive}/{self.prefix}{fullname.rpartition('.')[2]}{end}"

        def get_code(self, fullname: str) -> CodeType:
            source = self.get_source(fullname)
            if not keeps or source is None:
                return super().get_code(fullname)
            name = hashlib.sha256(importlib.util.MAGIC_NUMBER + f"{fullname}\0{source}".encode())
            path = f"{folder}/{name.hexdigest()}"
            try:
                return read(path)
            except (OSError, ValueError, EOFError, TypeError):
                code = super().get_code(fullname)
            write(path, code)
            return code

    keeps = is_kept()
    sys.path_hooks.insert(0, Importer)


def run_plainly(  # noqa: C901, PLR0915 - one function is what is sent
    zip_data: str,
    module_fqn: str,
    params: str,
    **more: Any,  # noqa: ANN401 - what else Ansible's own is given
) -> None:
    """Run a module of this collection without Ansible's base class, and exit; return where it takes that class.

    What modules of this collection use of it is their arguments, whether this is a check, and how to answer. Where all
    arguments are of the declared types, only defaults have to be filled in; anything else is for Ansible to convert, or
    to refuse in its own words.
    """
    import base64  # noqa: PLC0415 - see above
    import json  # noqa: PLC0415 - see above
    import os  # noqa: PLC0415 - see above
    import runpy  # noqa: PLC0415 - see above
    import sys  # noqa: PLC0415 - see above
    import syslog  # noqa: PLC0415 - see above
    import traceback  # noqa: PLC0415 - see above
    import types  # noqa: PLC0415 - see above

    kinds: dict[str, Any] = {"str": str, "int": int, "bool": bool, "dict": dict, "list": list, "path": str}
    known = {"type", "default", "required", "choices", "elements", "options"}
    given: dict[str, Any] = json.loads(params)["ANSIBLE_MODULE_ARGS"]
    settings = {name: given.pop(name) for name in list(given) if name.startswith("_ansible_")}

    class NotPlain(Exception):  # noqa: N818 - no error
        pass

    def fit(value: Any, spec: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """Return a value that needs no conversion; raises NotPlain."""
        kind = spec.get("type", "str")
        is_path = kind == "path" and isinstance(value, str)
        if type(value) is not kinds.get(kind) or (is_path and (value[:1] != "/" or "$" in value)):
            raise NotPlain
        if value not in spec.get("choices", (value,)):
            raise NotPlain
        if kind == "list" and "elements" in spec:
            one: dict[str, Any] = {
                "type": spec["elements"],
                **({"options": spec["options"]} if "options" in spec else {}),
            }
            return [fit(each, one) for each in value]
        return fill(value, spec["options"]) if "options" in spec else value

    def fill(values: dict[str, Any], specs: dict[str, Any]) -> dict[str, Any]:
        """Return values with defaults; raises NotPlain."""
        if set(values) - set(specs) or any(set(spec) - known for spec in specs.values()):
            raise NotPlain
        filled = {}
        for name, spec in specs.items():
            is_given = name in values
            if not is_given and spec.get("required"):
                raise NotPlain
            filled[name] = fit(values[name], spec) if is_given else spec.get("default")
        return filled

    class AnsibleModule:
        no_log = bool(settings.get("_ansible_no_log"))

        def __init__(
            self,
            argument_spec: dict[str, Any],
            supports_check_mode: bool = False,  # noqa: FBT001, FBT002 - as Ansible's
            required_if: Any = (),  # noqa: ANN401 - as Ansible's
        ) -> None:
            self.params = fill(given, argument_spec)
            self.check_mode = bool(settings.get("_ansible_check_mode"))
            lacks = any(
                self.params[key] == value and None in map(self.params.get, needs) for key, value, needs in required_if
            )
            if lacks or (self.check_mode and not supports_check_mode):
                raise NotPlain
            if not self.no_log:
                facility = getattr(syslog, str(settings.get("_ansible_syslog_facility")), syslog.LOG_USER)
                syslog.openlog(f"ansible-{settings.get('_ansible_module_name')}", 0, facility)
                told = " ".join(f"{name}={value}" for name, value in self.params.items())
                syslog.syslog(syslog.LOG_INFO, f"Invoked with {told}"[:4000].replace("\0", " "))

        def exit_json(self, **result: Any) -> None:  # noqa: ANN401 - as Ansible's
            answer({"changed": False, "invocation": {"module_args": self.params}, **result}, 0)

        def fail_json(self, msg: str, **result: Any) -> None:  # noqa: ANN401 - as Ansible's
            answer({"invocation": {"module_args": self.params}, **result, "failed": True, "msg": msg}, 1)

    def answer(result: dict[str, Any], code: int) -> None:
        sys.stdout.write(f"\n{json.dumps(result)}\n")
        sys.exit(code)

    if more.get("extensions") or more.get("rlimit_nofile") or "__ansible_type" in params:
        return
    try:
        descriptor = os.memfd_create(module_fqn)  # zipimport takes paths alone; a file would have to be removed again
    except (AttributeError, OSError):
        return
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(base64.b64decode(zip_data))
    place = f"/proc/self/fd/{descriptor}"
    sys.path.insert(0, place)
    for name in ("ansible", "ansible.module_utils", "ansible.module_utils.basic"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["ansible.module_utils.basic"].AnsibleModule = AnsibleModule  # type: ignore[attr-defined]
    try:
        runpy.run_module(module_fqn, run_name="__main__", alter_sys=True)
    except NotPlain:
        pass
    except Exception as error:  # noqa: BLE001 - as Ansible does
        answer({"failed": True, "msg": f"{type(error).__name__}: {error}", "exception": traceback.format_exc()}, 1)
    sys.path.remove(place)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("ansible", "ansible_collections")]:
        del sys.modules[name]
    os.close(descriptor)
