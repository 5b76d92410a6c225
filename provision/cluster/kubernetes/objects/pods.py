"""Defines the parts of pods that are read, and of the budgets that speak of them."""

from __future__ import annotations

from provision.cluster.kubernetes.objects.core import ApiObject, Condition, LabelSelector, Metadata, SelectorRequirement


class Resources(ApiObject, frozen=True, kw_only=True):
    """Quantities by resource name, as the API server writes them: text such as "1" or "500m"."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(ApiObject, frozen=True, kw_only=True):
    """An application, init or sidecar container; a sidecar is an init container whose ``restart_policy`` is Always."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class Toleration(ApiObject, frozen=True, kw_only=True):
    """Taints that keep a pod off no node; an empty ``key`` or ``effect`` means all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None  # None: for ever


class EmptyDir(ApiObject, frozen=True, kw_only=True):
    """A folder that ends with the pod; ``medium`` is "Memory" or empty for the node's disk."""

    medium: str = ""


class Volume(ApiObject, frozen=True, kw_only=True):
    """A volume, of which only this kind is looked at."""

    empty_dir: EmptyDir | None = None


class PodResourceClaim(ApiObject, frozen=True, kw_only=True):
    """A claim of a pod: ``resource_claim_name``, or one that is made for it, which the pod's status names."""

    name: str
    resource_claim_name: str = ""


class PodSpec(ApiObject, frozen=True, kw_only=True):
    """``node_name`` is empty until the pod is bound to a node."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    runtime_class_name: str = ""
    resource_claims: tuple[PodResourceClaim, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()


class Waiting(ApiObject, frozen=True, kw_only=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(ApiObject, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(ApiObject, frozen=True, kw_only=True):
    """``terminated`` is set when the container has ended, ``waiting`` before it runs."""

    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(ApiObject, frozen=True, kw_only=True):
    """How a container stands, and how it stood before it was started again."""

    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class ResourceClaimStatus(ApiObject, frozen=True, kw_only=True):
    """Which claim was made for ``name`` of the pod's claims."""

    name: str
    resource_claim_name: str | None = None


class ExtendedRequest(ApiObject, frozen=True, kw_only=True):
    """A container's extended resource that its pod has by a claim, such as nvidia.com/gpu."""

    resource_name: str = ""


class ExtendedClaimStatus(ApiObject, frozen=True, kw_only=True):
    """The claim that the scheduler made for the extended resources of a pod which no device plugin has."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedRequest, ...] = ()


class PodStatus(ApiObject, frozen=True, kw_only=True):
    """``phase`` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = "Pending"
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[ResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class Pod(ApiObject, frozen=True, kw_only=True):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()


class NodeSelectorTerm(ApiObject, frozen=True, kw_only=True):
    """Selects Nodes that meet all of it; ``operator`` may be Gt or Lt, too, ``match_fields`` knows the name alone."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(ApiObject, frozen=True, kw_only=True):
    """Selects Nodes that meet one of its terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(
    ApiObject, frozen=True, kw_only=True, rename={"required": "requiredDuringSchedulingIgnoredDuringExecution"}
):
    """Which Nodes a pod has to be on; what it would only like is not looked at."""

    required: NodeSelector | None = None


class Affinity(ApiObject, frozen=True, kw_only=True):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None


class AskedPodSpec(PodSpec, frozen=True, kw_only=True):
    """The same, with what decides which node the pod is bound to."""

    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    scheduler_name: str = ""


class AskedPodStatus(PodStatus, frozen=True, kw_only=True):
    """The same, with what scheduler and kubelet say of the pod."""

    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    reason: str = ""
    message: str = ""


class AskedPod(ApiObject, frozen=True, kw_only=True):
    """A pod that is asked about: more of it is read than of those that are listed by the thousand."""

    metadata: Metadata
    spec: AskedPodSpec
    status: AskedPodStatus = AskedPodStatus()


class DisruptionBudgetSpec(ApiObject, frozen=True, kw_only=True):
    """``selector`` None selects no pod."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(ApiObject, frozen=True, kw_only=True):
    """How many evictions a budget allows now, and why: what it wants healthy, what is, and how many pods there are."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class DisruptionBudget(ApiObject, frozen=True, kw_only=True):
    """A PodDisruptionBudget of policy/v1."""

    metadata: Metadata
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()
