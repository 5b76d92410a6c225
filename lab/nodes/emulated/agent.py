"""Runs commands inside of the emulated machine.

A request is one line of JSON: ``argv``, ``input`` (base64), ``timeout``. So is the answer: ``code``, ``stdout``,
``stderr`` (base64). Standard library only, for the Python of the machine.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

PORT = "lab"
_PORTS = Path("/sys/class/virtio-ports")


def answer(line: bytes) -> bytes:
    """Run what a request says and return the answer; one that takes too long has ended with 124."""
    request = json.loads(line)
    try:
        done = subprocess.run(
            request["argv"],
            input=base64.b64decode(request["input"]),
            capture_output=True,
            timeout=request["timeout"],
            check=False,
        )
        code, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        code, output, errors = 124, error.stdout or b"", error.stderr or b""
    except OSError as error:
        code, output, errors = 127, b"", str(error).encode()
    texts = {"stdout": base64.b64encode(output).decode(), "stderr": base64.b64encode(errors).decode()}
    return json.dumps({"code": code, **texts}).encode() + b"\n"


def main() -> int:
    """Answer until the machine is switched off."""
    name = next(each.parent.name for each in _PORTS.glob("*/name") if each.read_text().strip() == PORT)
    with open(f"/dev/{name}", "r+b", buffering=0) as port:
        port.write(b"ready\n")
        rest = b""
        while True:
            chunk = port.read(1 << 16)
            if not chunk:
                return 0
            *lines, rest = (rest + chunk).split(b"\n")
            port.writelines(answer(line) for line in lines)


if __name__ == "__main__":
    sys.exit(main())
