"""Checkpoints in a store that works: what was saved is found, what is too old goes, one writes at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clients.checkpoint import (
    Checkpoints,
    DamagedError,
    Keep,
    LeaseHeldError,
    LeaseLostError,
    LocalStore,
    MissingError,
    StoreDownError,
)
from tests.clients.checkpoint.stores import Fault, FaultyStore, ManualClock, MemoryStore, checkpoints, go_down

ROOT = Path(__file__).parents[3]
DAY = 24 * 3600.0


def test_the_last_saved_state_is_found_by_a_later_run() -> None:
    store = MemoryStore()
    with checkpoints(store) as first:
        assert first.latest() is None
        assert first.save(b"hello world") == (1, 11)
        assert first.save({"a": b"1", "folder/b": b"", "c": b"three"}, final=True) == (2, 6)
    with checkpoints(store) as second:
        found = second.latest()
        assert found is not None
        assert (found.generation, found.final, found.size) == (2, True, 6)
        assert found.files == ("a", "c", "folder/b")
        assert [found.read(name) for name in found.files] == [b"1", b"three", b""]
        with pytest.raises(KeyError, match="only a, c, folder/b"):
            found.read("d")
        assert second.save(b"more").generation == 3


def test_files_go_in_and_out_by_path(tmp_path: Path) -> None:
    big = tmp_path / "weights.bin"
    big.write_bytes(bytes(range(256)) * 50)
    with checkpoints(LocalStore(tmp_path / "store"), part_bytes=1000) as writer:
        writer.save({"model/weights.bin": big, "step": b"7"})
        found = writer.latest()
    assert found is not None
    assert len(found.manifest.files[0].parts) == 13
    found.copy_to(tmp_path / "out")
    assert (tmp_path / "out/model/weights.bin").read_bytes() == big.read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        "step",
        "weights.bin",
    ]


def test_a_damaged_generation_is_passed_over() -> None:
    store = MemoryStore()
    with checkpoints(store) as writer:
        for state in (b"first", b"second", b"third"):
            writer.save(state)
        [*_, newest] = [key for key in store.objects if "/parts/" in key]
        store.objects[newest] = b"?"
        found, trusted = writer.latest(), writer.latest(verify=False)
        assert found is not None
        assert found.read() == b"second"
        assert trusted is not None
        store.objects[newest] = b"?" * trusted.manifest.files[0].parts[-1].bytes
        unread = writer.latest(verify=False)
        assert unread is not None
        with pytest.raises(DamagedError, match="not what was written"):
            unread.read()
        manifest = sorted(key for key in store.objects if "/manifests/" in key)[1]
        store.objects[manifest] = store.objects[manifest][:-3]
        older = writer.latest()
        assert older is not None
        assert older.read() == b"first"


def test_three_generations_are_kept_unless_told_otherwise() -> None:
    store = MemoryStore()
    with checkpoints(store) as writer:
        for number in range(6):
            writer.save(b"%d" % number)
    manifests = [key for key in store.objects if "/manifests/" in key]
    assert [int(key.split("-")[-2]) for key in manifests] == [4, 5, 6]
    assert len([key for key in store.objects if "/parts/" in key]) == 3


def test_generations_of_some_days_are_kept_and_the_newest_whatever_its_age() -> None:
    store, clock = MemoryStore(), ManualClock()
    writer = checkpoints(store, clock=clock, keep=Keep(generations=None, days=7))
    for number in range(6):
        writer.save(b"%d" % number)
        clock.seconds += 2 * DAY
    assert len([key for key in store.objects if "/manifests/" in key]) == 4
    clock.seconds += 30 * DAY
    found = writer.latest()
    assert found is not None
    assert found.read() == b"5"


@pytest.mark.parametrize(("generations", "days"), [(0, None), (None, None), (None, 0), (-1, 3)])
def test_keeping_nothing_is_refused(generations: int | None, days: float | None) -> None:
    with pytest.raises(ValueError, match="keep"):
        checkpoints(MemoryStore(), keep=Keep(generations, days))


def test_what_a_crashed_run_left_behind_goes_with_the_next_save() -> None:
    store = MemoryStore()
    faulty = FaultyStore(store)
    writer = checkpoints(faulty)
    writer.save(b"good")
    faulty.arm(Fault(3, True, go_down))
    with pytest.raises(StoreDownError):
        writer.save(b"a state of many parts")
    assert len([key for key in store.objects if "/parts/" in key]) == 3
    writer.save(b"next")
    assert len([key for key in store.objects if "/parts/" in key]) == 2


def test_one_writer_at_a_time() -> None:
    store, clock = MemoryStore(), ManualClock()
    first, second = checkpoints(store, clock=clock), checkpoints(store, clock=clock)
    first.save(b"1")
    with pytest.raises(LeaseHeldError, match="holds the lease of job-1 until 2030"):
        second.save(b"2")
    first.close()
    second.save(b"2")
    with pytest.raises(LeaseHeldError):
        first.save(b"3")


def test_who_waits_gets_a_lease_that_lapses_and_the_former_holder_is_fenced_off() -> None:
    store, clock = MemoryStore(), ManualClock()
    first, second = checkpoints(store, clock=clock), checkpoints(store, clock=clock, wait=200.0)
    first.save(b"1")
    second.save(b"2")
    assert 60 < clock.seconds < 70
    with pytest.raises(LeaseLostError, match="took over job-1"):
        first.save(b"late")
    found = second.latest()
    assert found is not None
    assert found.read() == b"2"
    # What the former holder tried does not keep anybody waiting.
    second.close()
    checkpoints(store, clock=clock).save(b"3")


def test_a_claim_that_cannot_be_read_counts_as_held_for_one_period() -> None:
    """Where objects are replaced in place, a renewal may be read half-way: that frees no lease."""
    store, clock = MemoryStore(), ManualClock()
    holder = checkpoints(store, clock=clock)
    holder.save(b"1")
    [claim] = [key for key in store.objects if "/leases/" in key]
    store.objects[claim] = store.objects[claim][:20]
    with pytest.raises(LeaseHeldError):
        checkpoints(store, clock=clock).save(b"2")
    successor = checkpoints(store, clock=clock, wait=200.0)
    assert successor.save(b"2").generation == 2
    assert 60 < clock.seconds < 70


class Blinking(MemoryStore):
    """Says now and then of an object that is being replaced that there is none."""

    gone = 2

    def get(self, key: str) -> bytes:
        if "/leases/" in key and self.gone:
            self.gone -= 1
            raise MissingError(key)
        return super().get(key)


def test_a_claim_that_is_missing_for_a_moment_still_counts() -> None:
    store, clock = Blinking(), ManualClock()
    checkpoints(store, clock=clock).save(b"1")
    store.gone = 2
    with pytest.raises(LeaseHeldError):
        checkpoints(store, clock=clock).save(b"2")
    # A listing that lags names claims that were removed: they hold up nobody.
    store.gone = 100
    assert checkpoints(store, clock=clock).save(b"3").generation == 2


def test_objects_that_a_store_made_for_itself_are_left_alone() -> None:
    store = MemoryStore()
    with checkpoints(store) as writer:
        writer.save(b"first")
        [part, *_] = [key for key in store.objects if "/parts/" in key]
        foreign = [f"{part.rpartition('/')[0]}/.temporary-1", "checkpoints/job-1/outputs/staged/.temporary-2"]
        store.objects |= dict.fromkeys(foreign, b"")
        for number in range(5):
            writer.save(b"%d" % number)
        writer.stage("r", b"result")
        assert writer.publish().read("r") == b"result"
    assert set(foreign) <= set(store.objects)


def test_whether_the_store_keeps_a_result_is_asked_without_harm() -> None:
    for conditional in (True, False):
        store = MemoryStore(conditional=conditional)
        with checkpoints(store) as writer:
            before = dict(store.objects)
            assert writer.publishes_once() is conditional
            assert store.objects == before


def test_a_lapsed_lease_that_nobody_took_is_renewed() -> None:
    clock = ManualClock()
    writer = checkpoints(MemoryStore(), clock=clock)
    writer.save(b"1")
    clock.seconds += 3600
    assert writer.save(b"2").generation == 2


def test_while_the_store_is_down_the_lease_is_let_go_and_taken_again_later() -> None:
    store = MemoryStore()
    faulty = FaultyStore(store)
    writer, other = checkpoints(faulty), checkpoints(store)
    writer.save(b"1")
    faulty.arm(Fault(2, False, go_down))
    with pytest.raises(StoreDownError):
        writer.save(b"2")
    found = writer.latest()
    assert found is not None
    assert found.read() == b"1"
    assert writer.save(b"3").generation == 3
    faulty.arm(Fault(1, True, go_down))
    with pytest.raises(StoreDownError):
        writer.save(b"4")
    other.save(b"5")
    other.close()
    with pytest.raises(LeaseLostError, match="since this one let go"):
        writer.save(b"6")


def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_one() -> None:
    faulty = FaultyStore(MemoryStore())
    writer = checkpoints(faulty)
    writer.save(b"1")
    for at in range(1, 5):
        faulty.arm(Fault(at, True, go_down))
        with pytest.raises(StoreDownError):
            writer.latest()


@pytest.mark.parametrize(
    "state",
    [
        {"/etc/passwd": b""},
        {"../x": b""},
        {"a//b": b""},
        {"": b""},
        {"a\\b": b""},
        {"a\nb": b""},
        {"x" * 256: b""},
    ],
)
def test_a_name_that_leads_out_of_a_folder_is_refused(state: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="no file name"):
        checkpoints(MemoryStore()).save(state)


def test_what_is_no_state_is_refused() -> None:
    writer = checkpoints(MemoryStore())
    with pytest.raises(TypeError, match="not int"):
        writer.save({"a": 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="not str"):
        writer.save("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no name for a workload"):
        checkpoints(MemoryStore(), workload="../other")
    with pytest.raises(ValueError, match="part_bytes is 0"):
        Checkpoints(MemoryStore(), "job", part_bytes=0)


def test_a_result_is_published_once() -> None:
    store = MemoryStore()
    with checkpoints(store) as first:
        assert first.published() is None
        first.stage("table", b"wrong")
        first.stage("table", b"right")
        first.stage("log", b"done")
        assert first.published() is None
        result = first.publish()
        assert {name: result.read(name) for name in result.files} == {"table": b"right", "log": b"done"}
    with checkpoints(store) as resumed:
        resumed.stage("table", b"again")
        assert resumed.publish().read("table") == b"right"
        found = resumed.published()
        assert found is not None
        assert found.read("table") == b"right"


def test_who_was_taken_over_publishes_nothing() -> None:
    store, clock = MemoryStore(conditional=False), ManualClock()
    first, second = checkpoints(store, clock=clock), checkpoints(store, clock=clock, wait=200.0)
    first.stage("r", b"first")
    second.save(b"going on")
    with pytest.raises(LeaseLostError):
        first.publish()
    second.stage("r", b"second")
    assert second.publish().read("r") == b"second"
    assert first.publish().read("r") == b"second"


def test_the_client_imports_the_standard_library_alone() -> None:
    program = (
        f"import sys; sys.path.append({str(ROOT)!r}); before = set(sys.path); import clients.checkpoint\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "foreign = roots - sys.stdlib_module_names - {'clients', '__main__'}\n"
        "assert not foreign, foreign; print(clients.checkpoint.Checkpoints.__name__)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "Checkpoints\n", ran.stderr
