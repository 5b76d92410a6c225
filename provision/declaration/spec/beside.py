"""Reads the files that a declaration names, and puts what they say into it: afterwards nobody needs the files.

A relative path counts from the folder of the declaration. Each file is read once, and everything that is wrong with it
is found with its line. What is chosen of it is all that a node's declaration keeps.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from provision.base.regular_file import read_beginning
from provision.declaration.spec.classes_beside import ClassFiles
from provision.declaration.spec.model import Mig, MigConfig
from provision.declaration.spec.rules.devices import judge_together
from provision.declaration.spec.rules.mig import CONFIG, judge_chosen, judge_config, unknown_layout
from provision.declaration.spec.rules.remark import error
from provision.declaration.spec.text.document import MAX_BYTES, UNREADABLE, read_document
from provision.declaration.spec.text.findings import Finding, dotted
from provision.declaration.spec.validate import convert, examine

if TYPE_CHECKING:
    from pathlib import Path

    from provision.declaration.spec.model import DeviceClass, StackSpec
    from provision.declaration.spec.model.device_class import DeviceClassFile
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

CLASSES: Final[KeyPath] = ("plugin", "deviceClasses")
_FILE: Final[KeyPath] = ("mig", "configFile")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Read(Generic[Value]):
    """What a file says, None where it cannot be used; `remark` is about the key that names it."""

    value: Value | None = None
    remark: str = ""
    hint: str = ""


@dataclass
class Beside:
    """The files beside a declaration that lies in `folder`."""

    folder: Path
    _found: list[Finding] = field(default_factory=list)
    _configs: dict[str, Read[MigConfig]] = field(default_factory=dict)
    _classes: ClassFiles = field(init=False)

    def __post_init__(self) -> None:
        self._classes = ClassFiles(self.folder)

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with the files that were read."""
        return [*self._found, *self._classes.findings]

    def complete(self, spec: StackSpec) -> tuple[StackSpec, list[Remark]]:
        """Return a declaration with what its files say in their place, and the rules that only then can be judged."""
        spec, of_mig = self._with_layout(spec)
        spec, of_classes = self._with_classes(spec)
        return spec, [*of_mig, *of_classes]

    def judge(self, spec: StackSpec) -> list[Remark]:
        """Return the rules that can be judged only by what the files say."""
        return self.complete(spec)[1]

    def _with_classes(self, spec: StackSpec) -> tuple[StackSpec, list[Remark]]:
        plugin = spec.plugin
        if not plugin.device_classes:
            return spec, []
        remarks: list[Remark] = []
        written: dict[str, DeviceClass] = {}
        described: dict[KeyPath, tuple[str, DeviceClassFile]] = {}
        for index, source in enumerate(plugin.device_classes):
            path: KeyPath = (*CLASSES, index)
            read = self._classes.read(source)
            if read.remark:
                remarks.append(error(path, read.remark, read.hint))
            elif read.written is not None and read.written.name in written:
                remarks.append(error(path, f"{read.written.name} is listed twice", "a class is a file of that name"))
            elif read.written is not None and read.described is not None:
                written[read.written.name] = read.written
                described[path] = (read.written.name, read.described)
        remarks += judge_together(described, plugin.resource)
        classes = tuple(written.values()) if len(written) == len(plugin.device_classes) else plugin.device_classes
        plugin = msgspec.structs.replace(plugin, device_classes=classes)
        return msgspec.structs.replace(spec, plugin=plugin), remarks

    def _with_layout(self, spec: StackSpec) -> tuple[StackSpec, list[Remark]]:
        mig = spec.mig
        if mig.layout is None and mig.config_file is None:
            return (spec if mig.config is None else _with_mig(spec, Mig())), []
        read = Read[MigConfig]() if mig.config_file is None else self._config(mig.config_file)
        if read.remark:
            return spec, [error(_FILE, read.remark, read.hint)]
        if mig.config_file is not None and read.value is None:
            return spec, []  # its findings say it
        inline = {} if mig.config is None else mig.config.mig_configs
        of_file = {} if read.value is None else read.value.mig_configs
        twice = [
            error((*CONFIG, "mig-configs", name), f"'{name}' is in {mig.config_file}, too", "give one another name")
            for name in inline
            if name in of_file
        ]
        known = {**of_file, **inline}
        if mig.layout is None:
            return _with_mig(spec, Mig()), twice
        if mig.layout not in known:
            return spec, [*twice, *([unknown_layout(mig.layout, known)] if known else [])]
        entries = known[mig.layout]
        chosen = Mig(layout=mig.layout, config=MigConfig(version="v1", mig_configs={mig.layout: entries}))
        return _with_mig(spec, chosen), [*twice, *judge_chosen(spec, entries)]

    def _config(self, path: str) -> Read[MigConfig]:
        if path not in self._configs:
            self._configs[path] = self._read_config(path)
        return self._configs[path]

    def _read_config(self, path: str) -> Read[MigConfig]:
        place = self.folder / path
        try:
            document = read_document(read_beginning(place, MAX_BYTES + 1), str(place))
        except OSError as problem:
            return Read(remark=f"{place} {_reason(problem)}", hint="write a path from the declaration's folder")
        findings = list(document.findings)
        if document.content is not UNREADABLE:
            findings += examine(document.content, MigConfig, document)
        self._found += findings
        if findings:
            return Read()
        config = convert(document.content, MigConfig)
        judged = [
            Finding(each.severity, document.value_place(each.path), dotted(each.path), each.message, each.hint)
            for each in judge_config(config, ())
        ]
        self._found += judged
        return Read(config)


def _with_mig(spec: StackSpec, mig: Mig) -> StackSpec:
    return msgspec.structs.replace(spec, mig=mig)


def _reason(problem: OSError) -> str:
    if isinstance(problem, FileNotFoundError):
        return "does not exist"
    reason = "not a regular file" if problem.errno == errno.EINVAL else (problem.strerror or str(problem)).lower()
    return f"cannot be read: {reason}"
