"""The generated code is that of the proto file, and the proto file that of the kubelet."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import lab.podresources.proto
from lab.podresources.generate import generate

FOLDER = Path(lab.podresources.proto.__path__[0])


def test_the_proto_file_is_unchanged() -> None:
    """pkg/apis/podresources/v1/api.proto of k8s.io/kubelet v0.36.3."""
    digest = hashlib.sha256((FOLDER / "api.proto").read_bytes()).hexdigest()
    assert digest == "f65bc77eb41334effc87fdd8c234bdcdbf01a64122010dca50a6fecfaed9390c"


@pytest.mark.parametrize("name", ["api_pb2.py", "api_pb2.pyi"])
def test_generated_code_is_up_to_date(name: str, tmp_path: Path) -> None:
    assert generate(tmp_path) == 0
    assert (tmp_path / "lab/podresources/proto" / name).read_text() == (FOLDER / name).read_text()
