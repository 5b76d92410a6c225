#!/usr/bin/python3
"""What the root of a hostile node puts in the place of /usr/bin/python3, which is what Ansible runs there.

It answers for the modules that it is after as the file beside it says (``<this file>.json``, see ``tamper``), and for
all others as the real Python does, or as was recorded. Standard library only: it runs on the nodes.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

MODULE = re.compile(rb"module_fqn='([\w.]+)'")
PARAMETERS = re.compile(rb"^\s*params=(.*),$", re.MULTILINE)
RAW = re.compile(rb'"@raw:([A-Za-z0-9+/=]*)@"')
NOTHING_DONE = {"changed": False}
ALL_OTHERS = "but facts"


def raw(data: bytes) -> str:
    """Return a value whose place in the JSON is taken by ``data`` as it is."""
    return f"@raw:{base64.b64encode(data).decode()}@"


def tamper(answer: dict[str, Any], attack: dict[str, Any]) -> bytes:
    """Return the output that replaces ``answer``: with values set, and bytes before, after or instead of it."""
    for path, value in attack.get("values", ()):
        _set(answer, path, value)
    body = RAW.sub(lambda found: base64.b64decode(found[1]), json.dumps(answer).encode())
    if "instead" in attack:
        body = base64.b64decode(attack["instead"])
    return base64.b64decode(attack.get("before", "")) + body + base64.b64decode(attack.get("after", ""))


def _set(answer: Any, path: list[str | int], value: Any) -> None:
    *folders, name = path
    for folder in folders:
        answer = answer[folder]
    answer[name] = value


def main() -> None:
    """Be Python for Ansible."""
    with open(f"{__file__}.json") as file:  # standard library of any Python, loaded at each call
        attack = json.load(file)
    argv = sys.argv[1:]
    is_piped = argv[:1] == ["-c"] and "sys.stdin.buffer.read()" in argv[1]  # a module, see quick_modules
    if argv and not is_piped and "AnsiballZ" not in argv[0]:
        os.execv(attack["real"], [attack["real"], *argv])
    program = _read([] if is_piped else argv)
    module = _found(MODULE, program).rpartition(".")[2]
    _note(attack, module, program)
    answer = _honest(attack, module, program, argv)
    if not {module, ALL_OTHERS if module != "facts" else ""}.intersection(attack.get("modules", ())):
        sys.stdout.buffer.write(answer)
        return
    sys.stderr.write(attack.get("error", ""))
    time.sleep(attack.get("sleep_s", 0))
    said = tamper(json.loads(answer), attack)
    sys.stdout.buffer.write(said)
    while attack.get("endless"):
        sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
    os._exit(attack.get("status", 0))


def _read(argv: list[str]) -> bytes:
    if argv:
        with open(argv[0], "rb") as file:
            return file.read()
    return sys.stdin.buffer.read()


def _found(pattern: re.Pattern[bytes], program: bytes) -> str:
    found = pattern.search(program)
    return found[1].decode() if found else ""


def _honest(attack: dict[str, Any], module: str, program: bytes, argv: list[str]) -> bytes:
    """Return the answer of the real Python, or the recorded one."""
    if attack.get("real"):
        done = subprocess.run([attack["real"], *argv], input=program, stdout=subprocess.PIPE, check=False)
        return done.stdout
    return json.dumps(attack.get("recorded", {}).get(module, NOTHING_DONE)).encode()


def _note(attack: dict[str, Any], module: str, program: bytes) -> None:
    """Write down what the node was asked to do, so that a test sees what reached it."""
    if attack.get("asked"):
        parameters = _found(PARAMETERS, program)
        with open(attack["asked"], "a") as file:
            file.write(json.dumps([module, ast.literal_eval(parameters) if parameters else ""]) + "\n")


if __name__ == "__main__":
    main()
