"""Makes a module, as Ansible has put it together, cost the node less: by code that is sent with it, and run before it.

Four fifths of what it takes to run a module that has little to do is Ansible's own (decision 100).
"""

from __future__ import annotations

import inspect
import shlex

from ansible_collections.grapnel.node.plugins.plugin_utils import compiled_once, plain_module

# Where an archive's module begins to run, as ansible-core writes it since 2.19. An older one is left as it is.
_BEGIN = b'\nif __name__ == "__main__":\n    _ansiballz_main(\n'
# Each file has a namespace of its own, so that nothing of it gets in the way of Ansible's.
_COMPILED_ONCE = """
_compiled_once = {{"__name__": "compiled_once"}}
exec({text!r}, _compiled_once)
_compiled_once["keep_compiled"]()
"""
_PLAINLY = """
_plain_module = {{"__name__": "plain_module"}}
exec({text!r}, _plain_module)
_by_ansible = _ansiballz_main


def _ansiballz_main(**given):
    _plain_module["run_plainly"](**given)
    _by_ansible(**given)
"""
# Python reads a program from a pipe byte by byte, with a system call for each of 300,000. What it is told to run
# instead reads the whole of it.
_READ = "import sys; exec(compile(sys.stdin.buffer.read(), '<stdin>', 'exec'))"


def quicken(module: bytes, *, is_ours: bool) -> bytes:
    """Return a module that compiles less, and, where it is one of this collection, takes less of Ansible's library."""
    if _BEGIN not in module:
        return module
    before = _COMPILED_ONCE.format(text=inspect.getsource(compiled_once))
    if is_ours:
        before += _PLAINLY.format(text=inspect.getsource(plain_module))
    return module.replace(_BEGIN, f"\n\n{before}\n".encode() + _BEGIN, 1)


def read_at_once(interpreter: str) -> str:
    """Return the command of an interpreter that a module is piped into, so that it reads the module as a whole."""
    return f"{interpreter} -c {shlex.quote(_READ)}"
