r"""Limits the single values of a node's facts: patterns, lengths, ranges.

Generous where a machine may be odd, and never so generous that a value could be an option, several lines or a
sequence for a terminal. A pattern ends in ``$(?!\n)``: in Python ``$`` alone also matches before a last line feed.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

_END: Final = r"$(?!\n)"

# dpkg's own check of names (Debian Policy 5.6.1 has lower case only; other makers' packages are not all so).
PackageName = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9+._-]*{_END}", max_length=128)]
# Debian Policy 5.6.12, with a letter in front as dpkg allows it; a half-installed package may have no version.
# RPM writes "epoch:version-release" and has "_" and "^" besides (rpm-version(7)).
Version = Annotated[str, Meta(pattern=rf"^(([0-9]{{1,9}}:)?[A-Za-z0-9][A-Za-z0-9.+~_^-]*)?{_END}", max_length=128)]
# RFC 1123, and underscores as many machines have them.
Hostname = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9._-]*{_END}", max_length=253)]
PythonVersion = Annotated[str, Meta(pattern=rf"^[0-9]{{1,2}}\.[0-9]{{1,3}}{_END}")]
PythonPath = Annotated[str, Meta(pattern=rf"^/usr/bin/python3(\.[0-9]{{1,3}})?{_END}")]
# Names that the kernel, systemd or os-release chose; some may be empty.
Word = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9._+~:@-]*{_END}", max_length=128)]
Label = Annotated[str, Meta(pattern=rf"^[ -~]*{_END}", max_length=128)]
Unit = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9:_.\\@-]+{_END}", max_length=256)]
AbsolutePath = Annotated[str, Meta(pattern=rf"^/[^\x00-\x1f\x7f-\x9f]*{_END}", max_length=4096)]
PciAddress = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{4,8}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]{_END}")]
PciId = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{0,8}}{_END}")]
Mode = Annotated[str, Meta(pattern=rf"^[0-7]{{4}}{_END}")]
Sha256 = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{64}}{_END}")]
FileText = Annotated[str, Meta(max_length=256 * 1024)]  # the collection reports no content of more bytes

Pid = Annotated[int, Meta(ge=1, le=1 << 22)]  # PID_MAX_LIMIT
UserId = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
NumaNode = Annotated[int, Meta(ge=-1, le=1 << 16)]
Count = Annotated[int, Meta(ge=-1, le=1 << 31)]  # a module that is being unloaded has -1 users
Bytes = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Moment = Annotated[int, Meta(ge=0, le=253_402_300_799)]  # seconds since 1970, to the end of the year 9999
ModuleNumber = Annotated[int, Meta(ge=0, le=9_999_999_999)]  # of 32 bits, as the driver writes it
Devices = Annotated[int, Meta(ge=0, le=4096)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
