"""Finds and downloads RPM packages with zypper, into a cache of its own, and checks their signatures."""

from __future__ import annotations

import html
import re
import shutil
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.reach import (
    NO_SPACE_REMEDY,
    is_out_of_space,
    sites_of,
    without_passwords,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.files import require_signed
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.find import find_package
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import zypper_holds
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.source import RpmFiles, require_unlocked
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Download,
    Request,
    Resolution,
    SourceError,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.configuration import without_locks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_CACHE = "/var/cache/zypp/packages"
_TIMEOUT_S = 300.0
_GOOD = (0, 102, 103)  # 102 and 103: a reboot, or another run of zypper, is advised
_NOT_FOUND = 104
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_ARRIVING = ("install", "upgrade", "downgrade", "reinstall", "change-arch")
_MISSING = re.compile(r"(?:No provider of|Package|Capability) '([^']+)'")
_MAX_WORDS = 1000  # characters of an error
_ERROR = re.compile(r'<message type="error">(.*?)</message>', re.DOTALL)
_LOST = re.compile(r"File '(?:\./)?(?P<file>[^']+\.rpm)' not found on medium '(?P<medium>[^']+)'")
_ASKED = re.compile(r'<download url="([^"]+)"')
# zypper waits for a server that says nothing as long as it takes. The script is constant; the folder in which files
# arrive, how many seconds it may stay as it is, and the command are its arguments and never parsed by it.
_STALL_S = 90
_WATCHED = """
folder=$1; limit_s=$2; shift 2
"$@" & child=$!
last=; idle_s=0
while kill -0 $child 2>/dev/null; do
  sleep 1
  now=$(du -s -B 1 "$folder" 2>/dev/null | cut -f 1)
  if [ "$now" = "$last" ]; then idle_s=$((idle_s + 1)); else idle_s=0; last=$now; fi
  if [ $idle_s -ge "$limit_s" ]; then
    kill -KILL $child
    echo "nothing has arrived for $limit_s s" >&2
    exit 124
  fi
done
wait $child
"""
_REFRESH = (
    "refresh the repositories (zypper refresh) and run `grapnel plan` again; a version that they no longer have comes "
    "in a bundle"
)
_REACH = "see that the node reaches its repositories (zypper repos, proxy), or use a bundle"


class ZypperSource(RpmFiles):
    """zypper as the source of package files."""

    def resolve(self, host: Host, request: Request) -> Resolution:
        """Return what a request comes to; raises `SourceError`."""
        with without_locks(host) as zypper:
            done = host.run([*zypper, "--non-interactive", "--xmlout", *_words(request, "--dry-run")], _TIMEOUT_S)
        if done.return_code not in _GOOD:
            raise _failure(done, _TIMEOUT_S)
        resolution = parse_summary(done.stdout)
        require_unlocked(host, request, resolution, zypper_holds(host))
        return resolution

    def fetch(self, host: Host, request: Request, downloads: Sequence[Download], folder: str, timeout_s: float) -> None:
        """Download and check signatures; raises `SourceError`."""
        cache = f"{folder}/.cache"
        host.path(cache).mkdir(exist_ok=True, mode=0o700)
        watched = ["env", f"ZYPPTMPDIR={cache}", "sh", "-c", _WATCHED, "sh", cache, f"{_STALL_S}"]
        words = ["--non-interactive", "--xmlout", "--pkg-cache-dir", cache, *_words(request, "--download-only")]
        with without_locks(host) as zypper:
            done = host.run([*watched, *zypper, *words], timeout_s)
        if done.return_code not in _GOOD:
            raise _failure(done, timeout_s)
        for path in sorted(host.path(cache).rglob("*.rpm")):
            path.replace(host.path(f"{folder}/{path.name}"))
        shutil.rmtree(host.path(cache), ignore_errors=True)
        missing = [one.name for one in downloads if not host.path(f"{folder}/{one.name}").is_file()]
        if missing:
            raise SourceError("package-gone", f"{', '.join(missing)} did not arrive", _REFRESH)
        require_signed(host, [f"{folder}/{one.name}" for one in downloads])

    def find_cached(self, host: Host, name: str, version: str) -> str | None:
        """Return the file in zypper's cache, which keeps packages only of repositories with ``keeppackages``."""
        return find_package(host, _CACHE, name, version)


def parse_summary(text: str) -> Resolution:
    """Return what the summary in zypper's XML says; raises `SourceError`.

    The size of all downloads stands at the summary alone, so the first file carries it.
    """
    if len(text) > _MAX_ANSWER_BYTES or "<!DOCTYPE" in text:
        raise SourceError("unresolvable", "zypper's answer is not one that it writes", _REACH)
    try:
        summary = ET.fromstring(text).find(".//install-summary")  # noqa: S314 - zypper's own, and no entities
    except ET.ParseError as error:
        raise SourceError("unresolvable", f"zypper's answer cannot be read: {error}", _REACH) from error
    if summary is None:
        return Resolution()
    downloads: list[Download] = []
    install, replaced, remove = {}, {}, {}
    total = int(summary.get("download-size") or 0)
    for part in summary:
        for one in part.iter("solvable"):
            name, version = one.get("name", ""), one.get("edition", "")
            if part.tag == "to-remove":
                remove[name] = version
            elif part.tag.removeprefix("to-") in _ARRIVING:
                release = version.partition(":")[2] or version
                downloads.append(Download(f"{name}-{release}.{one.get('arch', '')}.rpm", "", 0 if downloads else total))
                install[name], replaced[name] = version, one.get("edition-old", "")
    return Resolution(tuple(downloads), install, replaced, remove)


def _words(request: Request, mode: str) -> list[str]:
    """Names with a minus in front are removed in the same transaction."""
    wanted = [f"{name}={version}" if version else name for name, version in request.packages.items()]
    options = ["--no-recommends", "--oldpackage", "--auto-agree-with-licenses", mode]
    options += ["--force"] if request.again else []
    return ["install", *options, *wanted, *(f"-{name}" for name in request.remove)]


def _failure(done: Finished, timeout_s: float) -> SourceError:
    text = without_passwords(html.unescape(done.stdout))
    errors = "; ".join(" ".join(each.split()) for each in _ERROR.findall(text))
    said = printable(errors or " ".join(re.sub(r"<[^>]*>", " ", text).split()), _MAX_WORDS) or done.complaints
    if done.is_timed_out:
        why = done.complaint if "nothing has arrived" in done.stderr else f"not done within {timeout_s:g} s"
        site = f" from {sites_of(_ASKED.findall(text))}" if _ASKED.search(text) else ""
        return SourceError("download-timeout", f"zypper was ended while it downloaded{site}: {why}", _REACH)
    if is_out_of_space(text):
        return SourceError("no-space", f"the disk is full, or cannot be written: {said}", NO_SPACE_REMEDY)
    lost = _LOST.search(text)
    if lost:
        file = printable(lost["file"].rpartition("/")[2])
        return SourceError("package-gone", f"{printable(lost['medium'])} lists {file} and no longer has it", _REFRESH)
    missing = _MISSING.search(text)
    if done.return_code == _NOT_FOUND or missing:
        return SourceError("package-not-found", f"no repository has {missing[1] if missing else said}", _REFRESH)
    if "Signature verification failed" in text or "GPG" in text:
        return SourceError("not-authenticated", said, "import the repository's signing key")
    if "Problem:" in text:
        return SourceError("unresolvable", f"the packages do not go together: {said}", _REFRESH)
    return SourceError("source-unreachable", f"zypper cannot get the packages: {said}", _REACH)
