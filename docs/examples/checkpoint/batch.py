"""A batch job over many records that counts none twice, however often it is taken off a node.

python batch.py /tmp/store totals input.txt
"""

from __future__ import annotations

import argparse
import json
import threading
from pathlib import Path

from clients.checkpoint import Checkpoints, LocalStore, Notice

RECORDS_PER_CHECKPOINT = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("job")
    parser.add_argument("input", type=Path)
    options = parser.parse_args()

    leaving = threading.Event()

    def on_notice(notice: Notice) -> None:
        if notice.level == "hard":
            leaving.set()

    writer = Checkpoints(LocalStore(options.store), options.job, deadline_file=None)
    writer.on_notice(on_notice)
    with writer:
        already = writer.published()
        if already is not None:
            print(f"done before: {already.read('totals.json').decode()}")
            return 0
        found = writer.latest()
        place, totals = json.loads(found.read()) if found is not None else (0, {})
        with options.input.open("rb") as records:
            records.seek(place)
            for number, record in enumerate(iter(records.readline, b""), start=1):
                word = record.decode().strip()
                totals[word] = totals.get(word, 0) + 1
                # The place and what was counted up to it go into one generation: they cannot come apart.
                if number % RECORDS_PER_CHECKPOINT == 0 or leaving.is_set():
                    writer.save(json.dumps([records.tell(), totals]).encode(), final=leaving.is_set())
                if leaving.is_set():
                    return 75
        writer.stage("totals.json", json.dumps(totals, sort_keys=True).encode())
        print(f"done: {writer.publish().read('totals.json').decode()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
