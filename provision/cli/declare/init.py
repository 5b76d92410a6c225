"""`grapnel init`: writes a declaration to start from, of what machines are where there are any, and overwrites none."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, GrapnelError, UsageError, os_reason
from provision.cli.parsers.options import DECLARATION
from provision.declaration.fleet.sources import choose_inventories
from provision.declaration.spec.template import render_first_keys, render_template

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Write the file and tell what to do next."""
    is_named = bool(args.inventory or args.limit)
    if args.from_gpu_operator:
        from provision.cli.declare import init_operator  # noqa: PLC0415 - 200 ms

        if is_named or args.payload or args.every_key or args.plain:
            raise UsageError(
                "--from-gpu-operator looks at no machine, and writes no defaults", hint="leave out everything else"
            )
        return init_operator.run(args, write_declaration)
    if args.kubeconfig or args.context:
        raise UsageError("--kubeconfig and --context are about a cluster", hint="add `--from-gpu-operator cluster`")
    is_plain = args.plain or args.every_key
    if is_plain and is_named:
        raise UsageError("--plain and --every-key write defaults, not what is there", hint="leave one of them out")
    inventories = () if is_plain else find_inventories(args)
    if inventories:
        from provision.cli.declare import init_machines  # noqa: PLC0415 - 300 ms

        return init_machines.run(args, inventories, write_declaration)
    if args.json or args.payload:
        raise UsageError("--json and --payload are about machines", hint="name them, or their `--inventory`")
    write_declaration(args.file, render_template() if args.every_key else render_first_keys(), force=args.force)
    print(f"wrote {args.file}")
    file = "" if args.file == DECLARATION else f" -f {shlex.quote(str(args.file))}"
    print(f"next: set spec.driver.version or branch in it, then run `grapnel check{file}`")
    return ExitCode.DONE


def find_inventories(args: argparse.Namespace) -> tuple[str, ...]:
    """Return what names machines: an inventory, or without one the names themselves, which are then the inventory."""
    found = choose_inventories(args.inventory, Path.cwd(), os.environ)
    if found or not args.limit:
        return found
    args.limit, names = "", f"{args.limit},"
    return (names,)


def write_declaration(path: Path, text: str, *, force: bool) -> None:
    """Write the whole file or nothing; without `force`, a file that is there stays, even one that appears meanwhile."""
    if path.is_dir():
        raise GrapnelError(f"{path} is a folder", hint="name a file in it")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if force:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    except FileExistsError as error:
        raise GrapnelError(f"{path} already exists", hint="`--force` overwrites it") from error
    except OSError as error:
        raise GrapnelError(f"{path} cannot be written: {os_reason(error)}") from error
    finally:
        draft.unlink(missing_ok=True)
