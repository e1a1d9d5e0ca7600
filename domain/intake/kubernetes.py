"""Pod lists: `kubectl get pods -o json`, the API's PodList, one Pod, or several documents of these.

Demand is a pod in phase Pending that is bound to no node and not being deleted, whatever its conditions
say. Pods without any status are manifests that were not submitted yet; they count, with a remark.
The label `spot-capacity.io/workload` names the workload of a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from domain.claim import LeftOutReason
from domain.intake import pods
from domain.intake.selectors import pod_place
from domain.intake.tally import Ask, Intake, IntakeRefused, Tally, check_size, check_workload
from domain.intake.words import Skip, Unclear, clean, is_mapping, listing, mapping, mappings, some, text_of

WORKLOAD_LABEL = "spot-capacity.io/workload"
_LISTS = ("List", "PodList")
_HOW_TO_MARK = f"label the pod {WORKLOAD_LABEL}=NAME"
_TRY = "give a pod list, for example kubectl get pods -o json"


def looks_like_pods(document: dict[str, object]) -> bool:
    """Whether a document is Kubernetes', pods or not: it has a kind, items, or containers."""
    spec = document.get("spec")
    return "kind" in document or "items" in document or (is_mapping(spec) and "containers" in spec)


def read_pods(documents: Sequence[object], workload: str | None) -> Intake | IntakeRefused:
    """Count the pods of all documents; refused when the input holds other objects only."""
    reading = _Reading(Tally(workload))
    try:
        for index, document in enumerate(documents):
            for place, item in _items(mapping(document, "the input"), index):
                reading.entry(place, item)
    except Unclear as problem:
        return IntakeRefused(problem=str(problem))
    if reading.others and not reading.pods:
        found = some(reading.others, limit=5)
        return IntakeRefused(problem=f"the input holds no pods but {found}: {_TRY}")
    return reading.tally.result("kubernetes")


def _items(document: dict[str, object], index: int) -> Iterator[tuple[str, object]]:
    """The entries of a document; raises `Unclear` when the document as a whole is unusable."""
    kind = document.get("kind")
    if kind == "Status":
        message = text_of(document.get("message"), "message") or "no message"
        raise Unclear(f"the input is an error of the Kubernetes API ({clean(message)}): {_TRY}")
    if kind not in _LISTS and not (kind is None and "items" in document):
        yield f"document {index + 1}", document
        return
    if mapping(document.get("metadata"), "metadata").get("continue"):
        raise Unclear(
            "the list is one page of a longer one (metadata.continue is set), so its demand is incomplete:"
            " list without a limit, or join the pages"
        )
    for position, item in enumerate(listing(document.get("items"), "items")):
        yield f"items[{position}]", item


class _Reading:
    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.pods = 0
        self.others: list[str] = []

    def entry(self, place: str, item: object) -> None:
        if item is None:
            self.tally.note("null in place of a pod was passed over", place)
            return
        name = place
        try:
            pod = mapping(item, place)
            kind = pod.get("kind") or "Pod"
            name = _name(pod, place)
            if kind == "Pod":
                self.pods += 1
                self._pod(name, pod)
            else:
                self._other(kind, name)
        except Skip as why:
            self.tally.skip(name, why)
        except Unclear as problem:
            self.tally.unclear(name, problem)

    def _other(self, kind: object, name: str) -> None:
        label = clean(text_of(kind, "kind")) or "an object without a kind"
        self.others.append(f"{label} {name}")
        raise Skip(LeftOutReason.UNSUPPORTED_KIND, f"it is a {label}; only pods are counted")

    def _pod(self, name: str, pod: dict[str, object]) -> None:
        metadata = mapping(pod.get("metadata"), "metadata")
        uid = metadata.get("uid")
        if isinstance(uid, str) and uid and self.tally.is_repeat(uid):
            self.tally.note("listed more than once, counted once", name)
            return
        spec = mapping(pod.get("spec"), "spec")
        has_status = _check_state(pod, metadata, spec)
        labels = mapping(metadata.get("labels"), "metadata.labels")
        mark = text_of(labels.get(WORKLOAD_LABEL), f"label {WORKLOAD_LABEL}")
        named = check_workload(mark, f"label {WORKLOAD_LABEL}") if mark else None
        owner = self.tally.owner(named, _HOW_TO_MARK)
        _check_node(metadata)
        pods.refuse_device_claims(spec)
        place = pod_place(spec)
        amounts = pods.pod_amounts(spec)
        size = check_size(pods.pod_size(amounts))
        found = (*pods.remarks(amounts), *place.remarks)
        self.tally.count(name, owner, Ask(((size, 1),), place.requirements))
        for remark in found:
            self.tally.note(remark, name)
        if not has_status:
            self.tally.note("has no status: counted as a pod that is not submitted yet", name)


def _name(pod: dict[str, object], place: str) -> str:
    metadata = pod.get("metadata")
    if not is_mapping(metadata):
        return place
    name, prefix, namespace = (metadata.get(key) for key in ("name", "generateName", "namespace"))
    if not isinstance(name, str) or not name:
        name = f"{prefix}*" if isinstance(prefix, str) and prefix else place
    return clean(f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name)


def _check_state(pod: dict[str, object], metadata: dict[str, object], spec: dict[str, object]) -> bool:
    """Raises `Skip` unless the pod waits for a node. Returns whether it has a status at all."""
    phase = text_of(mapping(pod.get("status"), "status").get("phase"), "status.phase")
    if phase not in ("", "Pending"):
        raise Skip(LeftOutReason.NOT_PENDING, f"its phase is {clean(phase)}")
    if metadata.get("deletionTimestamp"):
        raise Skip(LeftOutReason.BEING_DELETED, "it is pending and already being deleted")
    node = text_of(spec.get("nodeName"), "spec.nodeName")
    if node:
        raise Skip(LeftOutReason.ALREADY_BOUND, f"it is bound to node {clean(node)} and has not started yet")
    gates = [
        clean(text_of(gate.get("name"), f"{where}.name"))
        for where, gate in mappings(spec.get("schedulingGates"), "spec.schedulingGates")
    ]
    if gates:
        raise Skip(LeftOutReason.HELD, f"it is held by scheduling gate {some(gates)}")
    return bool(phase)


def _check_node(metadata: dict[str, object]) -> None:
    for _, owner in mappings(metadata.get("ownerReferences"), "metadata.ownerReferences"):
        if owner.get("kind") == "DaemonSet":
            raise Skip(LeftOutReason.NODE_PINNED, "its DaemonSet wants it on one given node")
