"""The base specification next to what `ctr oci spec` of real containerds prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provision.planning.engines.containerd.base_spec import base_spec, inherit_base_spec, render_base_spec
from provision.planning.engines.files.hook import hook_entry
from provision.planning.render.errors import EngineConfigError

DATA = Path(__file__).parent / "data"
PATH = "/etc/containerd/cri-base.json"
RLIMITS = [{"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 65536}]  # of Amazon's images
KIND = {"createContainer": [{"path": "/kind/bin/mount-product-files.sh"}]}  # of its images
DENY = {"allow": False, "access": "rwm"}


def without(spec: dict[str, Any], *paths: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for path in paths:
        *parents, last = path.split(".")
        table = copy
        for parent in parents:
            table = table[parent]
        table.pop(last, None)
    return copy


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.4.2"])
def test_it_is_containerd_s_own_but_for_what_is_said(version: str) -> None:
    real = json.loads(DATA.joinpath(f"ctr-oci-spec-{version}.json").read_text())
    ours = base_spec(hook_timeout_s=30)
    # What the newest hides is hidden in older ones as well, which costs nothing.
    newest = json.loads(DATA.joinpath("ctr-oci-spec-2.4.2.json").read_text())["linux"]["maskedPaths"]
    assert set(real["linux"]["maskedPaths"]) <= set(newest)
    real["linux"]["maskedPaths"] = newest

    removed = ("ociVersion", "process.rlimits", "linux.cgroupsPath", "hooks")

    assert without(ours, *removed) == without(real, *removed)
    assert "rlimits" not in ours["process"]
    assert "cgroupsPath" not in ours["linux"]


def test_the_hook_has_an_environment_and_a_time_limit_of_its_own() -> None:
    (hook,) = base_spec(hook_timeout_s=30)["hooks"]["prestart"]

    assert hook == {
        "path": "/usr/lib/grapnel/hook/grapnel-hook",
        "args": ["grapnel-hook", "prestart"],
        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
        "timeout": 45,
    }


def test_the_text_is_the_tree() -> None:
    text = render_base_spec(hook_timeout_s=30)

    assert json.loads(text) == base_spec(hook_timeout_s=30)
    assert text.endswith("}\n")


def theirs(**changes: Any) -> dict[str, Any]:
    """Return what `ctr oci spec` prints, with a few values by their dotted paths."""
    spec: dict[str, Any] = json.loads(DATA.joinpath("ctr-oci-spec-2.4.2.json").read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        table = spec
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = value
    return spec


def inherited(spec: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(inherit_base_spec(PATH, json.dumps(spec), hook_timeout_s=30).text)
    return result


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.4.2"])
def test_what_the_default_runtime_says_stays_with_our_hook_before_all_others(version: str) -> None:
    spec = json.loads(DATA.joinpath(f"ctr-oci-spec-{version}.json").read_text())
    spec["process"]["rlimits"] = RLIMITS
    spec["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "x"}]}
    ours = hook_entry(hook_timeout_s=30)

    assert inherited(spec) == {**spec, "hooks": {"prestart": [ours]}}
    hooks = {**KIND, "prestart": [{"path": "/opt/site/first", "args": ["first"]}]}
    assert inherited({**spec, "hooks": hooks})["hooks"] == {**hooks, "prestart": [ours, *hooks["prestart"]]}


def test_hooks_and_devices_of_others_are_named() -> None:
    fuse = {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}
    spec = theirs(hooks=KIND, linux__devices=[fuse])
    spec["linux"]["resources"]["devices"].append({"allow": True, "type": "c", "major": 10, "minor": 229})

    found = inherit_base_spec(PATH, json.dumps(spec), hook_timeout_s=30)

    assert found.brings == ("createContainer /kind/bin/mount-product-files.sh", "device /dev/fuse")
    assert inherit_base_spec(PATH, json.dumps(theirs(hooks=None)), hook_timeout_s=30).brings == ()


def rules(*more: dict[str, object]) -> dict[str, Any]:
    return theirs(linux__resources__devices=[DENY, *more])


HOOK = "/usr/bin/nvidia-container-runtime-hook"
OF_ALL = "/etc/containerd/cri-base.json, the base specification of the default runtime, "
REFUSED: dict[str, tuple[object, str]] = {
    "no specification": ({}, "is no base specification: it has no ociVersion"),
    "a list": ([], "is not a JSON object"),
    "NVIDIA's hook": (theirs(hooks={"prestart": [{"path": HOOK}]}), f"starts {HOOK} for every container: NVIDIA's"),
    "NVIDIA's hook behind a shell": (
        theirs(hooks={"createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", f"exec {HOOK}"]}]}),
        "starts /bin/sh for every container: NVIDIA's",
    ),
    "NVIDIA's hook in the environment of another": (
        theirs(hooks={"prestart": [{"path": "/bin/sh", "args": ["sh", "-c", "$A"], "env": [f"A={HOOK}"]}]}),
        "starts /bin/sh for every container: NVIDIA's",
    ),
    "a program in another case": (
        theirs(hooks={"prestart": [{"path": "/bin/true", "Path": HOOK}]}),
        "hooks.prestart.Path is not known",
    ),
    "our hook": (
        theirs(hooks={"prestart": [{"path": "/usr/lib/grapnel/hook/grapnel-hook"}]}),
        "for every container: grapnel's hook itself",
    ),
    "hooks in another case, as Go takes them": (theirs(Hooks={"prestart": [{"path": HOOK}]}), "Hooks is not known"),
    "a letter that Go takes for another": ({**theirs(), "hook\u017f": KIND}, "is not known of base specifications"),
    "a stage in another case": (theirs(hooks={"PreStart": [{"path": HOOK}]}), "hooks.PreStart is not known"),
    "hooks that are no list": (
        theirs(hooks={"prestart": {"path": HOOK}}),
        "hooks.prestart is an object, not a list of",
    ),
    "a hook that is no object": (theirs(hooks={"prestart": [HOOK]}), "hooks.prestart is a list, not a list of objects"),
    "a program that is no text": (theirs(hooks={"prestart": [{"path": 7}]}), "path is a number, not a string"),
    "a device of NVIDIA's": (
        theirs(linux__devices=[{"path": "/dev/x", "type": "c", "major": 195, "minor": 0}]),
        "has the device /dev/x for every container: which may be a GPU",
    ),
    "a device with a name of NVIDIA's": (
        theirs(linux__devices=[{"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3}]),
        "has the device /dev/nvidia0 for every container",
    ),
    "a number that is cut off to NVIDIA's": (
        theirs(linux__devices=[{"path": "/dev/x", "type": "c", "major": 2**32 + 195, "minor": 0}]),
        "has the device /dev/x for every container",
    ),
    "all devices": (
        rules({"allow": True, "access": "rwm"}),
        "devices a *: among which are GPUs",
    ),
    "NVIDIA's devices": (rules({"allow": True, "type": "c", "major": 195, "access": "rwm"}), "devices c 195"),
    "DRM's devices": (rules({"allow": True, "type": "c", "major": 226, "minor": 128}), "devices c 226"),
    "a number that is given out at will": (rules({"allow": True, "type": "c", "major": 511}), "devices c 511"),
    "a rule in another case": (rules({"allow": False, "Allow": True, "type": "c"}), "devices.Allow is not known"),
    "no rule that denies": (theirs(linux__resources={}), "does not begin with the rule that denies all devices"),
    "a rule before it": (
        theirs(linux__resources__devices=[{"allow": True, "type": "c", "major": 1}, DENY]),
        "does not begin with the rule that denies all devices",
    ),
    "a word of grapnel's": (
        theirs(annotations={"grapnel.dev/allocation": "x"}),
        "gives every container the annotation grapnel.dev/allocation",
    ),
    "a word of the engine's": (
        theirs(annotations={"io.kubernetes.cri.sandbox-namespace": "x"}),
        "gives every container the annotation io.kubernetes.cri.sandbox-namespace",
    ),
    "a wish for GPUs": (
        theirs(process__env=["A=1", "NVIDIA_VISIBLE_DEVICES=all"]),
        "gives every container NVIDIA_VISIBLE_DEVICES in its environment",
    ),
    "the node's mounts": (theirs(linux__namespaces=[{"type": "pid"}]), "gives containers no mount namespace"),
    "the mounts of another process": (
        theirs(linux__namespaces=[{"type": "mount", "path": "/proc/1/ns/mnt"}]),
        "gives containers no mount namespace",
    ),
    "a word that nobody knows": (theirs(linux__future=1), "linux.future is not known of base specifications"),
    "mounts that are none": (theirs(mounts="all"), "mounts is a string, not a list of objects"),
    "what is nested without end": (theirs(linux__sysctl=json.loads("[" * 90 + "]" * 90)), "nested more than 32 levels"),
}


@pytest.mark.parametrize(("spec", "words"), REFUSED.values(), ids=REFUSED)
def test_what_would_give_gpus_to_every_container_is_refused(spec: object, words: str) -> None:
    with pytest.raises(EngineConfigError) as raised:
        inherited(spec)

    assert words in raised.value.message
    assert raised.value.message.startswith(PATH)
    assert raised.value.hint


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"ociVersion": 1e999}', " " * 70_000, "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(EngineConfigError, match=r"^/etc/containerd/cri-base\.json"):
        inherit_base_spec(PATH, text, hook_timeout_s=30)


def test_it_may_be_made_of_ours() -> None:
    """What a site wrote by our example, without the hook, is taken as it is."""
    spec = {**base_spec(hook_timeout_s=30), "hooks": {}}

    assert inherited(spec) == base_spec(hook_timeout_s=30)
