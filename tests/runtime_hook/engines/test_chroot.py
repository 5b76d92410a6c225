"""An engine in a chroot: the hook comes back to the root that it was started in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.functional

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60
# Everything is imported before the chroot, which has nothing but /proc and a mark.
IN_CHROOT = """
import json, os, sys
sys.path.insert(0, sys.argv[3])
from runtime_hook.base.errors import HookError
from runtime_hook.container.kernel import KernelSyscalls
os.chroot(sys.argv[2])
os.chdir("/")
kernel = KernelSyscalls(int(sys.argv[1]), "/nowhere")
try:
    kernel.enter()
except HookError as refusal:
    reason = str(refusal)
kernel.leave()
print(json.dumps({"reason": reason, "root": sorted(os.listdir("/"))}))
"""


def test_after_a_refusal_the_hook_finds_its_own_files_again(tmp_path: Path) -> None:
    for name in ("dev", "proc"):
        (tmp_path / name).mkdir()
    (tmp_path / "mark").touch()
    with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as container:
        assert container.stdin is not None
        assert container.stdout is not None
        container.stdin.write(b"\n")
        container.stdin.flush()
        container.stdout.read(1)  # cat answers: it is in its own mount namespace
        script = 'mount --bind /proc "$1/proc" && shift && exec "$@"'
        python = [sys.executable, "-c", IN_CHROOT, str(container.pid), str(tmp_path), str(ROOT)]
        command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), *python]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        container.stdin.close()

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["root"] == ["dev", "mark", "proc"]
    assert "/nowhere" in answer["reason"]
