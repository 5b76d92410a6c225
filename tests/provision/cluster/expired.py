"""Certificates whose time is over, by openssl."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
[ca]
default_ca = own
[own]
database = index.txt
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
x509_extensions = added
[any]
organizationName = optional
commonName = supplied
[added]
subjectAltName = IP:127.0.0.1
"""


def expired_certificate(folder: Path, subject: str, ca: tuple[Path, Path] | None = None) -> tuple[Path, Path]:
    """Return certificate and key in ``folder``, valid on one day of 2020.

    ``ca`` are those of who signs it; without, it signs itself.
    """
    for name, text in (("openssl.cnf", CONFIG), ("index.txt", ""), ("serial", "01\n")):
        folder.joinpath(name).write_text(text)

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", *kind, "-keyout", "own.key", "-out", "own.csr", "-subj", subject)
    by = ("-selfsign", "-keyfile", "own.key") if ca is None else ("-cert", str(ca[0]), "-keyfile", str(ca[1]))
    day = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
    openssl("ca", "-batch", "-config", "openssl.cnf", *by, *day, "-in", "own.csr", "-out", "own.crt", "-notext")
    return folder / "own.crt", folder / "own.key"
