"""Reads what deploy/image/Containerfile says of the image: the part of the language that an image without `RUN` needs."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tasks.errors import TaskError

if TYPE_CHECKING:
    from pathlib import Path

CONTENT: Final = "root.tar"


@dataclass(slots=True)
class _Config:
    env: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)


def read_config(path: Path) -> dict[str, Any]:
    """Return the `config` object of the OCI image. Raises TaskError for an instruction that would be ignored."""
    made, is_based, is_filled = _Config(), False, False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        instruction, _, rest = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if (instruction, rest) == ("FROM", "scratch"):
            is_based = True
        elif (instruction, rest) == ("ADD", f"{CONTENT} /"):
            is_filled = True
        elif instruction == "ENV":
            made.env += shlex.split(rest)
        elif instruction == "LABEL":
            made.labels |= dict(each.split("=", 1) for each in shlex.split(rest))
        elif instruction == "USER":
            made.user = rest
        elif instruction == "ENTRYPOINT":
            made.entrypoint = json.loads(rest)
        else:
            raise TaskError(f"{path}:{number}: {instruction} is not understood here: extend tasks/image/containerfile.py")
    if not (is_based and is_filled):
        raise TaskError(f"{path}: it has to begin with `FROM scratch` and to have `ADD {CONTENT} /`")
    return {"Env": made.env, "Labels": made.labels, "User": made.user, "Entrypoint": made.entrypoint}
