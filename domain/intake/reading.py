"""One entry for every input: see whose documents these are, and let that reader count them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domain.intake.kubernetes import looks_like_pods, read_pods
from domain.intake.own import looks_like_claim, read_claims
from domain.intake.slurm import looks_like_jobs, read_jobs
from domain.intake.tally import Intake, IntakeRefused, Source, check_workload
from domain.intake.words import Unclear, is_mapping, shown

_ACCEPTED = (
    "a pod list (kubectl get pods -o json), a Slurm job list (squeue --json)"
    " or a claim of ours (apiVersion: sco/v1, kind: Claim)"
)
_READERS: dict[Source, Callable[[Sequence[object], str | None], Intake | IntakeRefused]] = {
    "kubernetes": read_pods,
    "slurm": read_jobs,
    "sco": read_claims,
}


def read_claim(documents: Sequence[object], *, workload: str | None) -> Intake | IntakeRefused:
    """The demand of every workload in parsed JSON or YAML documents.

    `workload` names the only workload wanted, and the owner of entries that name none; with None, only
    entries that name their workload count. Any value is read: an entry that cannot be understood is
    reported by name beside the rest, and `IntakeRefused` says why nothing could be read. Never raises.
    """
    try:
        if workload is not None:
            check_workload(workload, "the workload")
        given = [document for document in map(_wrapped, documents) if document is not None]
        return _READERS[_source(given)](given, workload)
    except Unclear as problem:
        return IntakeRefused(problem=str(problem))


def _wrapped(document: object) -> object:
    """A bare list of pods or jobs, as filters print them, in the object it was taken from."""
    if not isinstance(document, list):
        return document
    has_jobs = any(is_mapping(item) and "job_state" in item for item in document)
    return {"jobs" if has_jobs else "items": document}


def _source(documents: Sequence[object]) -> Source:
    if not documents:
        raise Unclear(f"the input holds no document; {_ACCEPTED} is expected")
    sources = sorted({_source_of(document) for document in documents})
    if len(sources) > 1:
        raise Unclear(f"the input mixes documents of {' and '.join(sources)}: give one kind at a time")
    return sources[0]


def _source_of(document: object) -> Source:
    if not is_mapping(document):
        hint = ": the table for people cannot be read" if isinstance(document, str) else ""
        raise Unclear(f"the input is {shown(document)}{hint}; {_ACCEPTED} is expected")
    if looks_like_claim(document):
        return "sco"
    if looks_like_jobs(document):
        return "slurm"
    if looks_like_pods(document):
        return "kubernetes"
    fields = ", ".join(shown(name) for name in list(document)[:5]) or "none"
    raise Unclear(f"the input is an object with the fields {fields}; {_ACCEPTED} is expected")
