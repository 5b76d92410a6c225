"""Checks plain values against the model and finds everything that does not fit, each with its place.

msgspec's own conversion stops at the first error; this walks the same types to the end. It never decides what is right
by itself: msgspec is asked last, so a value that the model refuses cannot slip through. No rules across keys here
(`provision.declaration.spec.rules.every`).
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
from msgspec import inspect as model

from provision.base import decoding
from provision.declaration.spec.kinds import WORDS, PlainType, allowed, fits, matches, may_be_nothing, unwrap, word
from provision.declaration.spec.model import StackSpec
from provision.declaration.spec.text.document import UNREADABLE
from provision.declaration.spec.text.findings import Finding, KeyPath, Place, Severity, dotted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T", bound=msgspec.Struct)
_TEMPLATE: Final = re.compile(r"\{\{|\{%|\{#")
_MIG_RESOURCE: Final = "mig-"
_MOST_HOMES: Final = 2
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]*)\Z")


class Source(Protocol):
    """What knows where values stand: a document, or a variable of the inventory."""

    def key_place(self, path: KeyPath) -> Place:
        """Return where a key stands."""

    def value_place(self, path: KeyPath) -> Place:
        """Return where a value stands."""

    def written(self, path: KeyPath) -> str | None:
        """Return an unquoted value as it was spelled, None where that is not known."""


def examine(value: object, kind: type[T], source: Source, *, prefix: KeyPath = ()) -> list[Finding]:
    """Return everything in the value that the type refuses; `prefix` precedes every key in the findings."""
    walk = _Walk(source, prefix)
    walk.examine(value, model.type_info(kind), ())
    if not walk.findings and not walk.is_incomplete:
        try:
            decoding.convert(tidy(value), kind)
        except msgspec.ValidationError as error:
            walk.report((), "is not valid", str(error))
    return walk.findings


def convert(value: object, kind: type[T]) -> T:
    """Return the value as the model's type; `examine` must have found nothing."""
    return decoding.convert(tidy(value), kind)


def tidy(value: object) -> object:
    """Return the value without keys that hold nothing: `driver:` with nothing behind it means its defaults."""
    if isinstance(value, dict):
        return {key: tidy(each) for key, each in value.items() if each is not None}
    return [tidy(each) for each in value] if isinstance(value, list) else value


def nearest(word: str, words: Sequence[str]) -> str | None:
    """Return the word that was probably meant; case does not count."""
    folded = {each.lower(): each for each in words}
    near = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[near[0]] if near else None


class _Walk:
    """One walk over one value; gathers findings."""

    def __init__(self, source: Source, prefix: KeyPath) -> None:
        self.source = source
        self.prefix = prefix
        self.findings: list[Finding] = []
        self.is_incomplete = False

    def report(self, path: KeyPath, message: str, hint: str = "", *, place: Place | None = None) -> None:
        where = place or self.source.value_place(path)
        self.findings.append(Finding(Severity.ERROR, where, dotted((*self.prefix, *path)), message, hint))

    def examine(self, value: object, wrapped: model.Type, path: KeyPath) -> None:
        kind = unwrap(wrapped)
        if value is UNREADABLE:
            self.is_incomplete = True
        elif value is None and may_be_nothing(kind.type):
            return
        elif isinstance(value, dict) and any(str(key).startswith("__ansible_") for key in value):
            self.report(path, "is encrypted or tagged for Ansible", "a declaration holds plain values only")
        elif isinstance(kind.type, model.UnionType):
            self._examine_union(value, kind, path)
        elif isinstance(value, str) and _TEMPLATE.search(value):
            hint = "write the value out: it is read before Ansible renders anything"
            self._report_value(value, kind, path, "is a template", hint)
        elif not fits(value, kind.type):
            self._report_type(value, kind.type, path)
        else:
            self._examine_content(value, kind, path)

    def _examine_content(self, value: Any, kind: PlainType, path: KeyPath) -> None:
        match kind.type:
            case model.StructType():
                self._examine_section(value, kind.type, path)
            case model.DictType():
                for key, each in value.items():
                    self._examine_key(key, kind.type.key_type, (*path, key))
                    self.examine(each, kind.type.value_type, (*path, key))
            case model.VarTupleType():
                self._examine_list(value, kind, path)
            case model.EnumType() | model.LiteralType():
                self._examine_choice(value, allowed(kind.type), path)
            case model.StrType():
                self._examine_text(value, kind, kind.type, path)
            case model.IntType():
                self._examine_number(value, kind.type, path)
            case model.FloatType():
                self._examine_amount(value, kind.type, path)

    def _examine_union(self, value: object, kind: PlainType, path: KeyPath) -> None:
        members = [each for each in kind.type.types if not isinstance(each, model.NoneType)]  # type: ignore[attr-defined]  # a UnionType, as the caller saw
        fitting = [each for each in members if fits(value, unwrap(each).type)]
        choices = allowed(unwrap(fitting[0]).type) if fitting else []
        if choices and value not in choices and (written := _as_list(value, members)):
            hint = f"{written}, or {_one_of(choices).removeprefix('write ')}"
            self.report(path, f"'{value}' is not a known value", hint)
            return
        if len(members) == 1 or fitting:
            self.examine(value, (fitting or members)[0], path)
            return
        wanted = " or ".join(unwrap(each).expected.partition(":")[0] or word(unwrap(each).type) for each in members)
        written = self.source.written(path) or ""
        is_text = any(isinstance(kind, model.StrType) and matches(written, kind) for kind in map(_type_of, members))
        hint = f'quote it: "{written}"' if written and is_text else _as_list(value, members)
        self.report(path, f"should be {wanted}, not {WORDS[type(value)]}", hint)

    def _examine_section(self, value: Mapping[str, object], kind: model.StructType, path: KeyPath) -> None:
        fields = {each.encode_name: each for each in kind.fields}
        for key, each in value.items():
            if key in fields and fields[key].required and each is None:
                self._report_type(each, unwrap(fields[key].type).type, (*path, key))
            elif key in fields:
                self.examine(each, fields[key].type, (*path, key))
            else:
                here = (*path, key)
                hint = _hint_for_key(key, list(fields), path)
                self.report(here, "unknown key", hint, place=self.source.key_place(here))
        for name, each_field in fields.items():
            if each_field.required and name not in value:
                choices = allowed(unwrap(each_field.type).type)
                hint = f"add `{name}: {choices[0]}`" if len(choices) == 1 else f"add `{name}:`"
                self.report((*path, name), "is missing", hint, place=self.source.key_place(path))

    def _examine_key(self, key: str, wrapped: model.Type, path: KeyPath) -> None:
        kind = unwrap(wrapped)
        if isinstance(kind.type, model.StrType) and not matches(key, kind.type):
            self._report_text(key, kind, path, self.source.key_place(path))
        elif isinstance(kind.type, model.LiteralType) and key not in (known := allowed(kind.type)):
            self.report(path, "unknown key", _hint_for_key(key, known, path[:-1]), place=self.source.key_place(path))

    def _examine_list(self, value: Sequence[object], kind: PlainType, path: KeyPath) -> None:
        if len(value) < max(kind.fewest, kind.type.min_length or 0):  # type: ignore[attr-defined]  # a VarTupleType, as the caller saw
            self.report(path, "needs at least one entry", "leave the key out for its default")
        for index, each in enumerate(value):
            here = (*path, index)
            self.examine(each, kind.type.item_type, here)  # type: ignore[attr-defined]  # a VarTupleType, as the caller saw
            if kind.unique and each in value[:index]:
                self.report(here, f"'{each}' is listed twice", "list it once")

    def _examine_choice(self, value: str, choices: Sequence[str], path: KeyPath) -> None:
        if value in choices:
            return
        near = nearest(value, choices)
        hint = f"did you mean {near}? " if near and len(choices) > 1 else ""
        self.report(path, f"'{value}' is not a known value", f"{hint}{_one_of(choices)}")

    def _examine_text(self, value: str, kind: PlainType, limits: model.StrType, path: KeyPath) -> None:
        if not matches(value, limits):
            self._report_text(value, kind, path, self.source.value_place(path))

    def _report_text(self, value: str, kind: PlainType, path: KeyPath, place: Place) -> None:
        what, _, how = kind.expected.partition(": ")
        example = "" if "\n" in kind.example else f"; for example {kind.example}"
        dotted_name = value.replace("+", ".")
        if _MIG_RESOURCE in value and dotted_name != value and matches(dotted_name, kind.type):  # type: ignore[arg-type]  # as the caller saw
            how, example = f"'+' is written as '.': {dotted_name}", ""
        self._report_value(value, kind, path, f"is not {what}", f"{how}{example}", place=place)

    def _report_value(
        self, value: str, kind: PlainType, path: KeyPath, message: str, hint: str, *, place: Place | None = None
    ) -> None:
        """Report a text together with itself, unless it could be a secret: then neither it nor its line is shown."""
        where = place or self.source.value_place(path)
        if kind.may_hold_secret(value):
            self.report(path, message, hint, place=replace(where, text=""))
        else:
            self.report(path, f"'{value}' {message}", hint, place=where)

    def _examine_number(self, value: int, limits: model.IntType, path: KeyPath) -> None:
        written = self.source.written(path)
        if written is not None and not _DECIMAL.match(written):
            self.report(path, f"'{written}' is not a plain decimal number", f"YAML reads it as {value}")
        elif not (limits.ge or 0) <= value <= (limits.le or value):
            self.report(path, f"{value} is out of range", f"from {limits.ge} to {limits.le}")

    def _examine_amount(self, value: float, limits: model.FloatType, path: KeyPath) -> None:
        is_less = limits.ge is not None and value < limits.ge
        if is_less or (limits.lt is not None and value >= limits.lt):
            self.report(path, f"{value} is out of range", f"from {limits.ge}, and less than {limits.lt}")

    def _report_type(self, value: object, kind: model.Type, path: KeyPath) -> None:
        choices = allowed(kind)
        hint = _one_of(choices) if choices else self._hint_for_type(value, kind, path)
        found = f"not {WORDS.get(type(value), 'something else')}"
        written = self.source.written(path)
        if written in choices:
            hint = f'quote it: "{written}"'
        if isinstance(value, bool) and written and written.lower() != str(value).lower():
            found = f"but YAML reads {written} as {json.dumps(value)}"
        self.report(path, "has no value" if value is None else f"should be {word(kind)}, {found}", hint)

    def _hint_for_type(self, value: object, kind: model.Type, path: KeyPath) -> str:
        if value is None:
            return "write one, or leave the key out"
        if isinstance(kind, model.StrType) and isinstance(value, bool | int | float):
            return f'quote it: "{self.source.written(path) or json.dumps(value)}"'
        if isinstance(kind, model.BoolType | model.IntType) and isinstance(value, str):
            plain = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
            meant = plain.get(value.lower()) if isinstance(kind, model.BoolType) else value
            return f"write {meant} without quotes" if meant and (meant in plain or _DECIMAL.match(meant)) else ""
        return "write a '-' before each entry" if isinstance(kind, model.VarTupleType) else ""


def _one_of(choices: Sequence[str]) -> str:
    return f"allowed: {', '.join(choices)}" if len(choices) > 1 else f"write {choices[0]}"


def _as_list(value: object, members: Sequence[model.Type]) -> str:
    """Return how entries are written that stand there without a list, empty where they are none."""
    items = [kind.item_type for each in members if isinstance(kind := unwrap(each).type, model.VarTupleType)]
    parts: list[object] = [value]
    if isinstance(value, str):
        words = [each.strip() for each in value.split(",")]
        parts = [int(each) if _DECIMAL.match(each) else each for each in words]
    if isinstance(value, bool) or not any(all(fits(each, unwrap(item).type) for each in parts) for item in items):
        return ""
    return f"write [{', '.join(map(str, parts))}]"


def _type_of(wrapped: model.Type) -> model.Type:
    return unwrap(wrapped).type


def _hint_for_key(key: str, known: Sequence[str], path: KeyPath) -> str:
    near = nearest(key, known)
    if key in _homes() and "spec" in known:
        return "it belongs in spec"
    here = ".".join(each for each in path if isinstance(each, str)).removeprefix("spec.")
    homes = [section for section, keys in _homes().items() if key in keys]
    if below := [section for section in homes if here and section.startswith(f"{here}.")][:_MOST_HOMES]:
        return f"it belongs in {' or '.join(below)}"
    homes = [section for section in homes if "." not in section]
    if len(homes) == 1 and not near:
        return f"it belongs in {homes[0]}"
    return f"did you mean {near}?" if near else f"known here: {', '.join(known)}"


@functools.cache
def _homes() -> dict[str, list[str]]:
    """Return the keys of every section of a node's declaration, by its place: `plugin.sharing`."""
    found: dict[str, list[str]] = {}

    def walk(kind: model.Type, place: str) -> None:
        match kind:
            case model.StructType():
                if place:
                    found[place] = [each.encode_name for each in kind.fields]
                for each in kind.fields:
                    walk(unwrap(each.type).type, f"{place}.{each.encode_name}" if place else each.encode_name)
            case model.UnionType():
                for one in kind.types:
                    walk(unwrap(one).type, place)
            case model.VarTupleType():
                walk(unwrap(kind.item_type).type, place)

    walk(model.type_info(StackSpec), "")
    return found
