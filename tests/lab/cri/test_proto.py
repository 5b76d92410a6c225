"""The generated code is that of the proto file, and the proto file that of cri-api."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import lab.cri.proto
from lab.cri.generate import generate

FOLDER = Path(lab.cri.proto.__path__[0])


def test_the_proto_file_is_unchanged() -> None:
    """api.proto of k8s.io/cri-api v0.34.4."""
    digest = hashlib.sha256((FOLDER / "api.proto").read_bytes()).hexdigest()
    assert digest == "a1ac3e1b238569cee4f5e65cbd826c6fe316fe4721d1d45a8b6c1fbe435de7aa"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py"])
def test_generated_code_is_up_to_date(name: str, tmp_path: Path) -> None:
    assert generate(tmp_path) == 0
    assert (tmp_path / "lab/cri/proto" / name).read_text() == (FOLDER / name).read_text()
