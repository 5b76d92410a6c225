"""What holds for every input of the request parsers, however hostile: Hypothesis looks for what does not."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime_hook.base.errors import RequestError
from runtime_hook.decision import Refused, decide
from runtime_hook.inputs.bundle import parse_container
from runtime_hook.inputs.config import DRIVER_CAPABILITIES, HookConfig
from runtime_hook.request.capabilities import parse_capabilities
from runtime_hook.request.claim import Nothing
from runtime_hook.request.entitlement import find_claim
from runtime_hook.request.requirements import check_findings, compare_versions, evaluate
from runtime_hook.request.sources import split_names
from runtime_hook.request.visible import select_visible
from tests.runtime_hook.nodes import GPUS, LAYOUT, MIG, container, inventory, uuid

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
NODE = inventory()
ENV = HookConfig(entitlement="env", accept_volume_mounts=True, accept_cdi_annotations=True, swarm_resources=("RES",))
KUBELET = HookConfig()
# JSON can carry lone surrogates and NUL: texts here have them, too.
ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
NAMES = st.sampled_from(
    f"0 1 2 9 all none void 2:0 2:1 {uuid(0)} {uuid(2)} {MIG[0].uuid} MIG-{uuid(2)}/5/0 0000:10:00.0 11:1.0 "
    "nvidia.com/gpu=0 cdi/nvidia.com/gpu/1 imex/7 : = /".split()
)
LISTS = st.lists(NAMES | ANY, max_size=8).map(",".join)
VERSIONS = st.lists(st.integers(0, 10**12), min_size=1, max_size=5).map(lambda parts: ".".join(map(str, parts)))
FACTORS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["cuda", "DRIVER", "arch", "brand", "gpu", ""]),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "==", "!", ""]),
    VERSIONS | st.sampled_from(["tesla", "12.4", "8.0", ""]) | ANY,
)
REQUIREMENTS = st.lists(st.lists(FACTORS, max_size=3).map(",".join), max_size=4).map(" ".join) | ANY
VARIABLES = st.dictionaries(
    st.sampled_from([
        "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_GDS", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_X", "CUDA_VERSION", "RES",
    ]),
    LISTS | REQUIREMENTS | st.just("enabled"),
    max_size=6,
)  # fmt: skip


def assert_told_well(refusal: RequestError, *words: str) -> None:
    text = str(refusal)
    assert text.isprintable()
    assert len(text) < 2000
    assert all(word in text for word in words)


@patient
@given(LISTS)
def test_names_select_devices_of_the_node_once_or_refuse(text: str) -> None:
    try:
        found = select_visible(split_names(text), NODE)
    except RequestError as refusal:
        assert_told_well(refusal)
        return
    assert list(found.gpus) == [gpu for gpu in GPUS if gpu in found.gpus]
    assert list(found.mig) == [mig for mig in MIG if mig in found.mig]


@patient
@given(st.lists(NAMES, max_size=6), st.randoms())
def test_the_order_of_names_and_repetition_do_not_count(names: list[str], shuffler: object) -> None:
    plain = [name for name in names if name not in {"all", "none", "nvidia.com/gpu=all"}]
    other = plain * 2
    shuffler.shuffle(other)  # type: ignore[attr-defined]
    assert _selected(plain) == _selected(other)


def _selected(names: list[str]) -> object:
    try:
        return select_visible(tuple(names), NODE)
    except RequestError:
        return None


@patient
@given(ANY | st.lists(st.sampled_from([*DRIVER_CAPABILITIES, "all", "x"])).map(",".join))
def test_capabilities_are_supported_ones_or_refused(text: str) -> None:
    try:
        found = parse_capabilities({"NVIDIA_DRIVER_CAPABILITIES": text}, ("compute", "utility"))
    except RequestError as refusal:
        assert_told_well(refusal)
        return
    assert set(found) <= {"compute", "utility"}


@patient
@given(VERSIONS, VERSIONS)
def test_versions_compare_as_lists_of_numbers(left: str, right: str) -> None:
    def numbers(version: str) -> list[int]:
        parts = [int(part) for part in version.split(".")]
        while parts and not parts[-1]:
            parts.pop()
        return parts

    one, other = numbers(left), numbers(right)
    assert compare_versions(left, right) == (one > other) - (one < other)
    assert compare_versions(left, right) == -compare_versions(right, left)


@patient
@given(REQUIREMENTS)
def test_requirements_are_met_or_refused_in_words(text: str) -> None:
    try:
        check_findings(evaluate({"NVIDIA_REQUIRE_CUDA": text}, NODE, GPUS))
    except RequestError as refusal:
        assert_told_well(refusal, "NVIDIA_REQUIRE_CUDA")


@patient
@given(REQUIREMENTS)
def test_a_term_that_holds_in_front_meets_every_requirement(text: str) -> None:
    assert check_findings(evaluate({"NVIDIA_REQUIRE_CUDA": f"cuda>=1 {text}"}, NODE, GPUS)) == ()


@patient
@given(VARIABLES, st.lists(LISTS, max_size=3), st.dictionaries(st.just("cdi.k8s.io/a"), LISTS), st.booleans())
def test_a_request_gives_devices_of_the_node_or_is_refused_in_words(
    variables: dict[str, str],
    mounts: list[str],
    annotations: dict[str, str],
    privileged: bool,  # noqa: FBT001 - Hypothesis gives it
) -> None:
    env = [f"{name}={text}" for name, text in variables.items()]
    made = container(*env, requests=mounts, annotations=annotations, privileged=privileged)
    decision = decide(made, ENV, lambda: NODE, lambda _: LAYOUT)
    if isinstance(decision, Nothing):
        return
    if isinstance(decision, Refused):
        assert isinstance(decision.error, RequestError)
        assert_told_well(decision.error)
        return
    found = decision.grant
    assert set(found.gpus) <= set(GPUS)
    assert set(found.mig) <= set(MIG)
    assert privileged or not {"mig-config", "mig-monitor"} & set(found.extras)


@patient
@given(VARIABLES, st.lists(LISTS, max_size=3), st.dictionaries(st.just("cdi.k8s.io/a"), LISTS), st.booleans())
def test_no_request_entitles_anybody_where_the_platform_decides(
    variables: dict[str, str],
    mounts: list[str],
    annotations: dict[str, str],
    privileged: bool,  # noqa: FBT001 - Hypothesis gives it
) -> None:
    env = [f"{name}={text}" for name, text in variables.items()]
    made = container(*env, requests=mounts, annotations=annotations, privileged=privileged)
    assert isinstance(find_claim(made, KUBELET), Nothing)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY, lambda inner: st.lists(inner, max_size=3), max_leaves=6
)


@patient
@given(st.lists(st.dictionaries(st.sampled_from(["source", "destination", "type"]), JSON) | JSON, max_size=5))
def test_mounts_of_any_form_are_read(mounts: list[object]) -> None:
    assert parse_container({"mounts": mounts}, "/bundle").mount_requests == ()
