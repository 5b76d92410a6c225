"""`grapnel init`: writes a declaration to start from, and overwrites none unless it is told to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.declaration.spec.template import render_first_keys, render_template

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def run(args: argparse.Namespace) -> int:
    """Write the file and tell what to do next."""
    if args.every_key and (args.from_gpu_operator or args.from_inventory):
        raise UsageError("--every-key writes defaults, not what is there", hint="leave one of them out")
    if args.from_gpu_operator:
        from provision.cli.declare import init_operator  # noqa: PLC0415 - 200 ms

        if args.from_inventory or args.limit or args.payload:
            raise UsageError("--from-gpu-operator looks at no machine", hint="leave out what is about an inventory")
        return init_operator.run(args, write_declaration)
    if args.kubeconfig or args.context:
        raise UsageError("--kubeconfig and --context are about a cluster", hint="add `--from-gpu-operator cluster`")
    if args.from_inventory:
        from provision.cli.declare import init_inventory  # noqa: PLC0415 - 300 ms

        return init_inventory.run(args, write_declaration)
    if args.json or args.limit:
        raise UsageError("--json and --limit are about machines", hint="name them: --from-inventory INVENTORY")
    write_declaration(args.file, render_template() if args.every_key else render_first_keys(), force=args.force)
    print(f"wrote {args.file}")
    print(f"next: set spec.driver.version or branch in it, then run `grapnel check {args.file}`")
    return ExitCode.DONE


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
        raise GrapnelError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        draft.unlink(missing_ok=True)
