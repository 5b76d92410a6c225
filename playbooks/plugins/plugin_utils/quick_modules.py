"""Makes a module, as Ansible has put it together, cost the node less: what is sent with it is in `node_code`."""

from __future__ import annotations

import inspect
import shlex

from ansible_collections.grapnel.node.plugins.plugin_utils.node_code import keep_compiled, run_plainly

# Where an archive's module begins to run, as ansible-core writes it since 2.19. An older one is left as it is.
_BEGIN = b'\nif __name__ == "__main__":\n    _ansiballz_main(\n'
_PLAINLY = """
_by_ansible = _ansiballz_main


def _ansiballz_main(**given):
    run_plainly(**given)
    _by_ansible(**given)
"""
# Python reads a program from a pipe byte by byte, with a system call for each of 300,000. What it is told to run
# instead reads the whole of it.
_READ = "import sys; exec(compile(sys.stdin.buffer.read(), '<stdin>', 'exec'))"


def quicken(module: bytes, *, is_ours: bool) -> bytes:
    """Return a module that compiles less, and, where it is one of this collection, takes less of Ansible's library."""
    if _BEGIN not in module:
        return module
    parts = [inspect.getsource(keep_compiled), "keep_compiled()"]
    if is_ours:
        parts += [inspect.getsource(run_plainly), _PLAINLY]
    return module.replace(_BEGIN, "\n\n".join(["", *parts, ""]).encode() + _BEGIN, 1)


def read_at_once(interpreter: str) -> str:
    """Return the command of an interpreter that a module is piped into, so that it reads the module as a whole."""
    return f"{interpreter} -c {shlex.quote(_READ)}"
