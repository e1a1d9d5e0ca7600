"""What the writing commands send, in which order, and what they say came of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import answers
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document, problem

CLAIMS = "/workloads/orders-daily/claims"
POOL = "apiVersion: sco/v1\nkind: Pool\npoolId: p1\nregion: eu-north\n"
CONTRACT = "apiVersion: sco/v1\nkind: Contract\ncontractId: c1\ntier: T1\nfloorShare: 0.30\n"
PARTITION = "apiVersion: sco/v1\nkind: Partition\npartitionId: k1\nregion: eu-north\nscheduler: slurm\n"
WORKLOAD = "apiVersion: sco/v1\nkind: Workload\nworkloadId: w1\ncontractId: c1\n"
OWN = "apiVersion: sco/v1\nkind: Claim\nworkload: orders-daily\nunits: {count: 1, vcpu: 1, memory: 1Gi}\n"
PODS = {"kind": "List", "items": []}


def written(tmp_path: Path, text: str, name: str = "file.yaml") -> str:
    (tmp_path / name).write_text(text)
    return name


def accept_all(api: FakeApi) -> None:
    api.on("POST", "/factory/compute-pools", document({"poolId": "p1"}, 201))
    api.on("PUT", "/partitions/k1", document({"partitionId": "k1"}, 201))
    api.on("PUT", "/contracts/c1", document({"contractId": "c1", "warnings": ["too few pools"]}, 201))
    api.on("PUT", "/workloads/w1", document({"workloadId": "w1"}))


class TestApply:
    def test_each_comes_after_what_it_needs(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        accept_all(api)
        text = "---\n".join((WORKLOAD, CONTRACT, PARTITION, POOL))
        ran = sco("apply", "-f", written(tmp_path, text))
        assert ran.code == 0
        assert ran.out.splitlines() == [
            "pool p1 applied",
            "partition k1 applied",
            "contract c1 applied",
            "workload w1 applied",
        ]
        assert [call.path for call in api.calls] == [
            "/factory/compute-pools",
            "/partitions/k1",
            "/contracts/c1",
            "/workloads/w1",
        ]

    def test_bodies_hold_what_the_path_does_not(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        accept_all(api)
        sco("apply", "-f", written(tmp_path, f"{WORKLOAD}---\n{CONTRACT}---\n{POOL}---\n{PARTITION}"))
        assert [call.document for call in api.calls] == [
            {"poolId": "p1", "region": "eu-north"},
            {"region": "eu-north", "scheduler": "slurm"},
            {"tier": "T1", "floorShare": "0.30"},
            {"contractId": "c1"},
        ]

    def test_warnings_are_shown(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        accept_all(api)
        assert "warning: too few pools" in sco("apply", "-f", written(tmp_path, CONTRACT)).err

    def test_several_files_are_one_application(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        accept_all(api)
        files = written(tmp_path, WORKLOAD, "a.yaml"), written(tmp_path, CONTRACT, "b.yaml")
        ran = sco("apply", "-f", files[0], "-f", files[1])
        assert ran.out == "contract c1 applied\nworkload w1 applied\n"

    def test_a_refusal_stops_and_says_what_was_applied(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        accept_all(api)
        api.on("PUT", "/contracts/c1", problem(422, "floorShare 0.1 is below 0.30", whatToDo="raise it"))
        ran = sco("apply", "-f", written(tmp_path, f"{WORKLOAD}---\n{CONTRACT}---\n{POOL}"))
        assert (ran.code, ran.out) == (1, "pool p1 applied\n")
        assert ran.err.splitlines() == [
            "error: contract c1: floorShare 0.1 is below 0.30",
            "  what to do: raise it",
            "  applied: pool p1",
            "  not applied: contract c1, workload w1",
        ]
        assert len(api.calls) == 2

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            (CONTRACT.replace("sco/v1", "sco/v2"), "apiVersion is 'sco/v2'; sco/v1 is expected"),
            (
                CONTRACT.replace("Contract", "Deployment"),
                "kind is 'Deployment'; Pool, Partition, Contract, Workload",
            ),
            (OWN, "a claim is not applied but submitted: sco claim -f FILE"),
            (CONTRACT.replace("c1", "Not_A_Name"), "'Not_A_Name' is no contract name; allowed are"),
            (CONTRACT.replace("contractId: c1", ""), "contractId is null; the name of the contract"),
            (f"{CONTRACT}---\n{CONTRACT}", "contract c1 is given twice"),
            ("- 1\n", "document 1 is a list; an object with apiVersion and kind"),
            ("# nothing\n---\n", "'file.yaml' holds no document"),
            ("kind: {", "line 2, column 1: not YAML"),
            ("", "the input is empty"),
        ],
    )
    def test_nothing_is_sent_before_every_document_is_understood(
        self, sco: Sco, api: FakeApi, tmp_path: Path, text: str, told: str
    ) -> None:
        accept_all(api)
        ran = sco("apply", "-f", written(tmp_path, WORKLOAD, "ok.yaml"), "-f", written(tmp_path, text))
        assert ran.code == 2
        assert told in ran.err
        assert api.calls == []


class TestApplyPools:
    def test_a_document_says_the_kind_of_its_pool_beside_its_own(
        self, sco: Sco, api: FakeApi, tmp_path: Path
    ) -> None:
        accept_all(api)
        ran = sco("apply", "-f", written(tmp_path, f"{POOL}poolKind: workstation\n"))
        assert (ran.code, ran.err) == (0, "")
        assert api.calls[-1].document == {"poolId": "p1", "region": "eu-north", "kind": "workstation"}

    def test_what_an_older_registration_keeps_is_told(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        known = {"poolId": "p1", "pricePerHourUsd": "1.000000", "endpointRef": None}
        api.on("POST", "/factory/compute-pools", document(known))
        ran = sco("apply", "-f", written(tmp_path, f"{POOL}pricePerHourUsd: '2'\n"))
        assert (ran.code, ran.out) == (0, "pool p1 applied\n")
        assert "pricePerHourUsd of pool p1 is '1.000000' as before, not '2'" in ran.err
        same = sco("apply", "-f", written(tmp_path, f"{POOL}pricePerHourUsd: 1\nendpointRef: null\n"))
        assert (same.code, same.err) == (0, "")


class TestClaim:
    def test_the_bytes_travel_as_they_are(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        api.on("POST", CLAIMS, document(answers.claimed()))
        text = json.dumps(PODS, indent=7)
        ran = sco("claim", "-f", written(tmp_path, text), "--workload", "orders-daily")
        (call,) = api.calls
        assert (ran.code, call.body.decode(), call.query) == (0, text, {})
        assert call.headers["content-type"] == "application/json"

    def test_our_own_yaml_names_its_workload(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        api.on("POST", CLAIMS, document(answers.claimed()))
        assert sco("claim", "-f", written(tmp_path, OWN)).code == 0
        assert api.calls[0].headers["content-type"] == "application/yaml"

    def test_standard_input_is_a_file(
        self, sco: Sco, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api.on("POST", CLAIMS, document(answers.claimed()))
        with (tmp_path / written(tmp_path, OWN)).open() as file:
            monkeypatch.setattr("sys.stdin", file)
            assert sco("claim", "-f", "-").code == 0
        assert api.calls[0].body.decode() == OWN

    def test_what_was_counted_and_what_was_not(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        names = [f"ns/pod-{number}" for number in range(5)]
        left = [{"name": name, "reason": "not_pending", "detail": "it runs"} for name in names]
        left.append({"name": "ns/gated", "reason": "held", "detail": "a gate"})
        bad = [{"name": f"ns/bad-{number}", "problem": "cpu is 'x'"} for number in range(7)]
        answer = answers.claimed(
            None,
            leftOut=left,
            leftOutTotal=6,
            leftOutByReason={"held": 1, "not_pending": 5},
            unreadable=bad,
            unreadableTotal=9,
            notes=["asks for no memory: counted as 1 MiB (ns/pod-9)"],
        )
        api.on("POST", CLAIMS, document(answer))
        ran = sco("claim", "-f", written(tmp_path, OWN), "--dry-run")
        assert api.calls[0].query == {"dryRun": "true"}
        assert ran.out.splitlines() == [
            "workload orders-daily: counted, nothing stored",
            "42 units, 168 vCPU, 672 GiB, 0 GPUs",
            "left out: 6 entries",
            "  5 not_pending: ns/pod-0, ns/pod-1, ns/pod-2 and 2 more",
            "  1 held: ns/gated",
            "could not be read: 9 entries",
            *[f"  ns/bad-{number}: cpu is 'x'" for number in range(7)],
            "  and 2 more",
            "note: asks for no memory: counted as 1 MiB (ns/pod-9)",
        ]

    def test_a_document_of_another_kind_is_no_claim(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        ran = sco("claim", "-f", written(tmp_path, CONTRACT))
        assert ran.code == 2
        assert "holds a document of kind 'Contract'; allowed is Claim" in ran.err
        assert "sco apply -f FILE" in ran.err
        assert not api.calls

    def test_a_shorter_list_is_taken_only_when_it_is_allowed(
        self, sco: Sco, api: FakeApi, tmp_path: Path
    ) -> None:
        hint = "scale, or repeat with allowShrink=true (`sco claim --allow-shrink`)"
        refused = problem(409, "the list has 0 pending units", reason="would_shrink", whatToDo=hint)
        api.on("POST", CLAIMS, refused, document(answers.claimed(2, units=0)))
        name = written(tmp_path, json.dumps(PODS))
        ran = sco("claim", "-f", name, "--workload", "orders-daily")
        assert ran.code == 1
        assert ran.err.splitlines() == [
            "error: the list has 0 pending units",
            f"  what to do: {hint}",
        ]
        assert sco("claim", "-f", name, "--workload", "orders-daily", "--allow-shrink").code == 0
        assert [call.query for call in api.calls] == [{}, {"allowShrink": "true"}]

    def test_a_list_from_a_scheduler_needs_a_workload(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        ran = sco("claim", "-f", written(tmp_path, json.dumps(PODS)))
        assert ran.code == 2
        assert "'file.yaml' is a scheduler's list, which may hold work of many workloads" in ran.err
        assert "--workload NAME" in ran.err
        assert api.calls == []

    def test_two_claims_in_one_file_need_a_choice(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        two = f"{OWN}---\n{OWN.replace('orders-daily', 'web')}"
        ran = sco("claim", "-f", written(tmp_path, two))
        assert ran.code == 2
        assert "names orders-daily, web; exactly one is expected" in ran.err
        assert api.calls == []

    def test_a_dry_run_has_nothing_to_wait_for(self, sco: Sco, api: FakeApi, tmp_path: Path) -> None:
        ran = sco("claim", "-f", written(tmp_path, OWN), "--dry-run", "--wait")
        assert (ran.code, api.calls) == (2, [])

    @pytest.mark.parametrize("name", ["missing.yaml", ".", "\0"])
    def test_a_file_that_cannot_be_read(self, sco: Sco, api: FakeApi, name: str) -> None:
        ran = sco("claim", "-f", name, "--workload", "orders-daily")
        assert ran.code == 2
        assert "cannot read" in ran.err
        assert api.calls == []

    def test_bytes_that_are_no_text(self, sco: Sco, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
        ran = sco("claim", "-f", "binary")
        assert ran.code == 2
        assert "are not utf-" in ran.err


def test_scaling_sends_the_units(sco: Sco, api: FakeApi) -> None:
    api.on("POST", "/workloads/orders-daily/scale", document(answers.claimed(2, units=60)))
    ran = sco("scale", "orders-daily", "--units", "60")
    assert (ran.code, api.calls[0].document) == (0, {"units": 60})
    assert "workload orders-daily: claim 2" in ran.out


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("activate", "pool p1 activated\n"),
        ("drain", "pool p1 drains; it holds 4 units on 2 instances of orders, web; models llama\n"),
        ("resume", "pool p1 resumed\n"),
        ("retire", "pool p1 retired\n"),
    ],
)
@pytest.mark.parametrize(("given", "sent"), [((), "*"), (("--version", "7"), '"7"')])
def test_a_pool_takes_a_step(
    sco: Sco, api: FakeApi, *, verb: str, said: str, given: tuple[str, ...], sent: str
) -> None:
    api.on("POST", f"/factory/compute-pools/p1/{verb}", document(answers.pool("p1", held=answers.HELD)))
    ran = sco(verb, "pool", "p1", *given)
    assert (ran.code, ran.out) == (0, said)
    (call,) = api.calls
    assert (call.headers["if-match"], call.body) == (sent, b"")
    assert call.headers["idempotency-key"]


@pytest.mark.parametrize(
    ("given", "sent", "tag"),
    [
        (("--price", "1.25"), {"pricePerHourUsd": "1.25"}, "*"),
        (
            ("--guaranteed-price", "4", "--cold-start", "0", "--version", "7"),
            {"guaranteedPricePerHourUsd": "4", "coldStartSeconds": 0},
            '"7"',
        ),
        (("--endpoint", "http://10.0.0.7:11434"), {"endpointRef": "http://10.0.0.7:11434"}, "*"),
        (("--no-endpoint",), {"endpointRef": None}, "*"),
    ],
)
def test_a_pool_is_changed_in_what_is_named_alone(
    sco: Sco, api: FakeApi, given: tuple[str, ...], sent: dict[str, object], tag: str
) -> None:
    api.on("PATCH", "/factory/compute-pools/p1", document(answers.pool("p1")))
    ran = sco("change", "pool", "p1", *given)
    assert (ran.code, ran.out) == (0, "pool p1 changed\n")
    (call,) = api.calls
    assert (call.document, call.headers["if-match"]) == (sent, tag)
    assert call.headers["idempotency-key"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("change", "pool", "p1"),
        ("change", "pool", "p1", "--version", "3"),
        ("change", "pool", "p1", "--endpoint", "http://10.0.0.7", "--no-endpoint"),
        ("describe", "workload", "../status"),
        ("describe", "pool", "UPPER"),
        ("describe", "contract", "a/b"),
        ("explain", "x" * 64),
        ("scale", "orders-daily", "--units", "-1"),
        ("scale", "orders-daily"),
        ("explain", "orders-daily", "--reason", "bad_luck"),
        ("explain", "orders-daily", "--pool", "p1", "--replay"),
        ("get", "pools", "--limit", "0"),
        ("get", "pools", "--state", "asleep"),
        ("get", "pools", "-o", "xml"),
        ("place",),
        ("launch",),
        ("apply",),
    ],
)
def test_wrong_usage_ends_with_2_before_anything_is_sent(
    sco: Sco, api: FakeApi, arguments: tuple[str, ...]
) -> None:
    ran = sco(*arguments)
    assert (ran.code, ran.out, api.calls) == (2, "", [])
    assert ran.err


def test_every_write_has_a_key_of_its_own_and_no_read_has_one(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    api.on("POST", CLAIMS, document(answers.claimed()))
    api.on("GET", "/status", document({}))
    name = written(tmp_path, OWN)
    sco("claim", "-f", name)
    sco("claim", "-f", name)
    sco("status")
    first, second, read = (call.headers.get("idempotency-key") for call in api.calls)
    assert first
    assert second
    assert first != second
    assert read is None
