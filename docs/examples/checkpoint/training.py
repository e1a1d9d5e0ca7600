"""A training loop that loses at most one interval when its node is taken back, and nothing upon a notice.

Run it again with the same folder and it goes on where it was:

    python training.py /tmp/store run-7 --steps 200 --every 50
"""

from __future__ import annotations

import argparse
import json
import random
import threading

from clients.checkpoint import Checkpoints, LocalStore, Notice, StoreDownError


class Model:
    """Stands for a network and its optimizer; with torch, `state` is torch.save into a BytesIO."""

    def __init__(self) -> None:
        self.step, self.weight = 0, 0.0
        self.dice = random.Random(7)  # noqa: S311 - it stands for the chance in training

    def train(self) -> None:
        self.weight += 0.1 * (self.dice.gauss(3.0, 1.0) - self.weight)
        self.step += 1

    def state(self) -> dict[str, bytes]:
        # What chance did so far belongs to the state: a resumed run is the same run.
        version, internal, gauss = self.dice.getstate()
        chance = [version, list(internal), gauss]
        return {
            "weights.json": json.dumps([self.step, self.weight]).encode(),
            "chance.json": json.dumps(chance).encode(),
        }

    def load(self, weights: bytes, chance: bytes) -> None:
        self.step, self.weight = json.loads(weights)
        version, internal, gauss = json.loads(chance)
        self.dice.setstate((version, tuple(internal), gauss))


def main() -> int:
    options = parse()
    leaving = threading.Event()

    def on_notice(notice: Notice) -> None:
        print(f"notice: {notice.level}, {notice.remaining_seconds} s left", flush=True)
        if notice.level == "hard":
            leaving.set()

    model = Model()
    writer = Checkpoints(
        LocalStore(options.store), options.run, agent_socket=options.agent, deadline_file=None
    )
    # Before anything else: from here on a signal is a notice, not the end.
    writer.on_notice(on_notice)
    with writer:
        found = writer.latest()
        if found is not None:
            model.load(found.read("weights.json"), found.read("chance.json"))
            print(f"resumed at step {model.step}", flush=True)
        while model.step < options.steps and not leaving.is_set():
            model.train()
            leaving.wait(options.pause)
            if model.step % options.every == 0:
                save(writer, model)
        if model.step < options.steps:
            save(writer, model, final=True)
            print(f"left at step {model.step}", flush=True)
            return 75
        writer.stage("weights.json", model.state()["weights.json"])
        writer.publish()
    print(f"done: {model.weight:.6f}", flush=True)
    return 0


def save(writer: Checkpoints, model: Model, *, final: bool = False) -> None:
    try:
        writer.save(model.state(), final=final)
    except StoreDownError as error:
        # The run is worth more than this one checkpoint.
        print(f"not saved: {error}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="folder that outlives the node")
    parser.add_argument("run", help="name of the run, the same when it is resumed")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps between two checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a step takes longer")
    parser.add_argument("--agent", default="/run/sco-agent/agent.sock", help="socket of the node's agent")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
