"""Finds what is wrong with the driver's modules: those of every kernel that may boot next, and how they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.driver.preflight import codes
from provision.planning.driver.preflight.situation import some, upstream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.driver import Kernel
    from provision.planning.driver.preflight.codes import Finding
    from provision.planning.driver.preflight.situation import Situation

# Packages with the libraries that talk to the module, by family of distributions: Debian, NVIDIA's, Ubuntu, SUSE.
_LIBRARIES = ("libcuda1", "libnvidia-ml1", "libnvidia-ml", "nvidia-driver-cuda-libs", "nvidia-driver-libs")
_LIBRARY_PREFIXES = ("libnvidia-compute-", "nvidia-compute-G")


def find_modules(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with modules and kernels; nothing on a node without GPUs."""
    if not situation.kernels:
        return
    yield from _find_builds(situation)
    yield from _find_prebuilt(situation)
    yield from _find_missing(situation)
    running = next((kernel for kernel in situation.kernels if kernel.running), None)
    default = next((kernel for kernel in situation.kernels if kernel.default), None)
    if running is not None and default is not None and running != default:
        yield codes.OTHER_KERNEL_NEXT.found(f"{running.release} runs, and the next boot starts {default.release}")


def _find_builds(situation: Situation) -> Iterator[Finding]:
    """Yield what keeps DKMS from building (facts: headers, tools, its own switches)."""
    change, tools = situation.change, situation.facts.build_tools
    if situation.builds_module:
        comes = {package.name for package in change.packages} if change else set()
        without = [
            kernel.release
            for kernel in _targets(situation)
            if not kernel.headers and not situation.has_module(kernel) and not _brings_headers(comes, kernel)
        ]
        if without:
            yield codes.HEADERS_MISSING.found(f"kernel headers are missing for {some(without)}")
        if tools is not None and tools.dkms is not None and not (tools.gcc and tools.make):
            missing = [name for name, there in (("gcc", tools.gcc), ("make", tools.make)) if not there]
            yield codes.BUILD_TOOLS_MISSING.found(f"DKMS {tools.dkms} has no {' and no '.join(missing)}")
    yield from _find_autoinstall(situation)
    yield from _find_failed_builds(situation)


def _brings_headers(names: set[str], kernel: Kernel) -> bool:
    return any(name.endswith(kernel.release) and ("headers" in name or "devel" in name) for name in names)


def _targets(situation: Situation) -> list[Kernel]:
    """Return the kernels whose lack of a module makes the change fail: what runs, and what boots by itself."""
    wanted = situation.change.kernels if situation.change is not None else ()
    return [each for each in situation.kernels if (each.running or each.default) and each.release in wanted]


def _find_autoinstall(situation: Situation) -> Iterator[Finding]:
    tools = situation.facts.build_tools
    builds = [build for build in situation.facts.dkms if upstream(build.version) == situation.version]
    uses_dkms = bool(builds) or (situation.change is not None and situation.change.dkms is not None)
    if not uses_dkms or not situation.installs_module:
        return
    if tools is not None and not tools.autoinstall:
        yield codes.AUTOINSTALL_OFF.found("/etc/dkms/no-autoinstall keeps DKMS from building for new kernels")
    elif off := sorted({build.module for build in builds if not build.autoinstall}):
        yield codes.AUTOINSTALL_OFF.found(f"dkms.conf of {some(off)} does not ask for builds for new kernels")


def _find_failed_builds(situation: Situation) -> Iterator[Finding]:
    """Yield a build that DKMS should have made: packages install all the same when it fails."""
    running = next((kernel for kernel in situation.kernels if kernel.running), None)
    builds = [build for build in situation.facts.dkms if upstream(build.version) == situation.version]
    if running is None or not builds or situation.has_module(running):
        return
    states = {build.state for build in builds if build.kernel in ("", running.release)} or {"not built"}
    yield codes.DKMS_NOT_INSTALLED.found(
        f"DKMS has {builds[0].module} {builds[0].version}, which is {some(sorted(states))} for {running.release}"
    )


def _find_prebuilt(situation: Situation) -> Iterator[Finding]:
    """Yield kernels that a source of prebuilt modules passes over; one package is for one kernel, and says so."""
    change = situation.change
    if change is None or change.dkms is not None or change.flavour == "none":
        return
    names = [package.name for package in change.packages]
    if not any(name.endswith(kernel.release) for name in names for kernel in situation.kernels):
        return  # modules that fit several kernels (kABI): the package manager judges that
    without = [
        kernel.release
        for kernel in situation.kernels
        if (kernel.running or kernel.default)
        and not situation.has_module(kernel)
        and not any(name.endswith(kernel.release) for name in names)
    ]
    if without:
        yield codes.MODULE_PACKAGE_MISSING.found(f"there is no prebuilt module for {some(without)}")


def _find_missing(situation: Situation) -> Iterator[Finding]:
    """Yield kernels that will have no module: neither now nor by the change."""
    provided = situation.change.kernels if situation.change is not None and situation.installs_module else ()
    if situation.version is None:
        return
    missing = [each for each in situation.kernels if each.release not in provided and not situation.has_module(each)]
    loaded = situation.facts.module.version == situation.version
    reboots = situation.driver.reboot and any(each.default and each.release in provided for each in situation.kernels)
    if (
        situation.installs_module
        and not loaded
        and not reboots
        and (now := [each.release for each in missing if each.running])
    ):
        yield codes.MODULE_MISSING.found(f"{some(now)} runs, and has no kernel module {situation.version}")
    if later := [each.release for each in missing if not each.running]:
        yield codes.MODULE_MISSING_NEXT_BOOT.found(
            f"{some(later)} may boot next without kernel module {situation.version}"
        )


def find_mismatch(situation: Situation) -> Iterator[Finding]:
    """Yield a loaded module that the installed libraries do not work with: both must be of one version, exactly."""
    loaded = situation.facts.module.version if situation.facts.module.loaded else None
    versions = {
        found
        for name, package in situation.facts.packages.items()
        if (name in _LIBRARIES or name.startswith(_LIBRARY_PREFIXES)) and (found := upstream(package.version))
    }
    if loaded is not None and versions and loaded not in versions:
        yield codes.MISMATCH.found(f"kernel module {loaded} is loaded, and the libraries are {some(sorted(versions))}")
