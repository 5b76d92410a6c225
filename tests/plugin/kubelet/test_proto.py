"""What is committed is what protoc makes of the published interface."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROTO = "plugin/kubelet/proto/deviceplugin/v1beta1/api.proto"
# sha256 of api.proto in k8s.io/kubelet v0.34.4.
PUBLISHED = "b780bfeac99c93c231dc165ce417f4da88481eececa0c65eeb90f5f2e9b5b65b"


def test_generated_files_are_current(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "--proto_path=."]
    subprocess.run([*command, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", PROTO], cwd=REPOSITORY, check=True)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        name = PROTO.replace(".proto", suffix)
        assert (REPOSITORY / name).read_text() == (tmp_path / name).read_text(), "see plugin/kubelet/proto/__init__.py"


def test_the_interface_is_unchanged_below_our_header() -> None:
    _, _, published = (REPOSITORY / PROTO).read_text().partition("below this comment.\n\n")
    assert hashlib.sha256(published.encode()).hexdigest() == PUBLISHED
