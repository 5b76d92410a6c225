"""Defines the facts about a node's kubelet: whether it runs, where it reads its settings, and on which cgroups."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from provision.declaration.fleet.facts import grammar
from provision.declaration.fleet.facts.fact import COMMAND, Fact, tidy

_Flag = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}$(?!\n)")]
_Path = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f\x7f-\x9f]*)?$(?!\n)", max_length=4096)]


class KubeletState(Fact, frozen=True, kw_only=True):
    """The kubelet's service, and what its command line says; paths are empty where it names none.

    ``flags`` are the names of its command line's flags. ``restart_due``: an earlier apply changed what it reads, and
    was interrupted before it was restarted. ``distribution`` is the program that runs it as a part of itself, if one
    does.
    """

    unit: grammar.Unit
    distribution: grammar.Word = ""
    load: grammar.Word = "not-found"
    active: grammar.Word = "inactive"
    program: str = ""
    config: _Path = ""
    config_dir: _Path = ""
    root_dir: _Path = ""
    flags: Annotated[tuple[_Flag, ...], Meta(max_length=256)] = ()
    restart_due: bool = False

    def __post_init__(self) -> None:
        tidy(self, "program", COMMAND)


class CgroupV1(Fact, frozen=True, kw_only=True):
    """A node with control groups of version 1, on which newer kubelets only start where they are told to.

    ``kubelet`` is the version of its program, empty where that does not say; ``allowed``: its settings have
    ``failCgroupV1: false``.
    """

    kubelet: grammar.Word = ""
    allowed: bool = False
