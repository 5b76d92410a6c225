"""What is committed is what protoc makes of the published interface."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]
# sha256 of each api.proto in k8s.io/kubelet v0.34.4; of those of dra in v0.36.3.
PUBLISHED = {
    "lab/kubelet/proto/dra/v1/api.proto": "b3066ad7f6abcfd0003c47b06ceb801d76997d78d6be505597478d3905b9cc57",
    "lab/kubelet/proto/dra/v1beta1/api.proto": "7900b11793ad897d0375d67b3bbae675869b574e21dfb1bf5334cc1556138c42",
    "lab/kubelet/proto/dra_health/v1alpha1/api.proto": (
        "75f8c523ec546ceb83bd63f3b7a38c23d979494e7015db12d146e2f39dd4528e"
    ),
    "lab/kubelet/proto/deviceplugin/v1beta1/api.proto": (
        "b780bfeac99c93c231dc165ce417f4da88481eececa0c65eeb90f5f2e9b5b65b"
    ),
    "lab/kubelet/proto/pluginregistration/v1/api.proto": (
        "7a67a0000a1a167c155286834bc9ccb489f8bcdb394e006daba270189c272afa"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("proto", PUBLISHED)
def test_generated_files_are_current(tmp_path: Path, proto: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "--proto_path=."]
    subprocess.run([*command, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", proto], cwd=REPOSITORY, check=True)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        name = proto.replace(".proto", suffix)
        assert (REPOSITORY / name).read_text() == (tmp_path / name).read_text(), "see lab/kubelet/proto/__init__.py"


@pytest.mark.parametrize("proto", PUBLISHED)
def test_the_interface_is_unchanged_below_our_header(proto: str) -> None:
    _, _, published = (REPOSITORY / proto).read_text().partition("below this comment.\n\n")
    assert hashlib.sha256(published.encode()).hexdigest() == PUBLISHED[proto]
