"""What a model server has in its memory: loads take time, may fail, and never exceed the memory."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field, SecretStr

from domain.model import Frozen
from domain.serving.models import plain_name

SIZED = re.compile(r".*[:-](?P<size>[1-9][0-9]{0,3})gb")
CATALOGUE = {"qwen3-8b": 6, "gemma-3-27b": 18, "llama-3.3-70b": 42, "mixtral-8x22b": 80, "nomic-embed": 1}


class ModelSettings(Frozen):
    """How a model server starts. With a `token`, requests must bring it as Bearer."""

    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    vram_gb: Annotated[int, Field(ge=1, le=100_000)] = 80
    seconds_per_gb: Annotated[float, Field(ge=0, le=60)] = 0.1
    failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: int = 20_260
    token: SecretStr | None = None


class Stage(StrEnum):
    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"


class LoadRefused(Exception):
    """A load that did not happen, in the words in which real servers say it."""


class UnknownModel(LoadRefused):
    """No such model is there to load."""


class NoMemory(LoadRefused):
    """The model does not fit beside the others."""


class LoadFailed(LoadRefused):
    """The load began and ended without a model."""


@dataclass(slots=True)
class Held:
    """One model that takes memory: while it loads, `loading` ends when it is decided."""

    size_gb: int
    stage: Stage = Stage.LOADING
    loading: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Ledger:
    """What happened: loads begun by model, the most at one time, and the most memory ever taken."""

    loads: Counter[str] = field(default_factory=Counter)
    unloads: Counter[str] = field(default_factory=Counter)
    at_once: Counter[str] = field(default_factory=Counter)
    most_at_once: Counter[str] = field(default_factory=Counter)
    most_used_gb: int = 0


def size_of(model: str) -> int:
    """GB that a model takes: from the catalogue, or from a name such as `anything:12gb`."""
    name = plain_name(model)
    match = SIZED.fullmatch(name)
    if match is not None:
        return int(match["size"])
    if name not in CATALOGUE:
        raise UnknownModel(f"model '{model}' not found, try pulling it first")
    return CATALOGUE[name]


class Memory:
    """The models of one server. All methods belong to the server's loop."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.held: dict[str, Held] = {}
        self.failed: set[str] = set()
        self.ledger = Ledger()
        self.fail_next = 0
        self._random = random.Random(settings.seed)

    @property
    def used_gb(self) -> int:
        return sum(one.size_gb for one in self.held.values())

    def loaded(self) -> dict[str, int]:
        """GB of every model that is ready, by name."""
        return {name: one.size_gb for name, one in self.held.items() if one.stage is Stage.LOADED}

    def stage(self, model: str) -> Stage:
        held = self.held.get(plain_name(model))
        return Stage.UNLOADED if held is None else held.stage

    async def load(self, model: str) -> None:
        """Load a model or wait for the load that runs; `LoadRefused` when it does not come."""
        name = plain_name(model)
        held = self.held.get(name)
        if held is None:
            await self._load(name, self._admit(name))
            return
        await held.loading.wait()
        if self.stage(name) is not Stage.LOADED:
            raise LoadFailed(f"{name}: the load that was under way ended without the model")

    def unload(self, model: str) -> bool:
        """Free a model's memory; False when it has none. A load that runs ends without the model."""
        held = self.held.pop(plain_name(model), None)
        if held is None:
            return False
        held.stage = Stage.UNLOADED
        held.loading.set()
        self.ledger.unloads[plain_name(model)] += 1
        return True

    def _admit(self, name: str) -> Held:
        size = size_of(name)
        free = self.settings.vram_gb - self.used_gb
        if size > free:
            raise NoMemory(
                f"model requires more system memory ({size}.0 GiB) than is available ({free}.0 GiB)"
            )
        held = self.held[name] = Held(size)
        self.failed.discard(name)
        self.ledger.loads[name] += 1
        self.ledger.most_used_gb = max(self.ledger.most_used_gb, self.used_gb)
        return held

    async def _load(self, name: str, held: Held) -> None:
        ledger = self.ledger
        ledger.at_once[name] += 1
        ledger.most_at_once[name] = max(ledger.most_at_once[name], ledger.at_once[name])
        try:
            await asyncio.sleep(held.size_gb * self.settings.seconds_per_gb)
            if self._fails():
                self.failed.add(name)
                raise LoadFailed("llama runner process has terminated: exit status 2")
            if self.held.get(name) is not held:
                raise LoadFailed(f"{name} was unloaded while it loaded")
            held.stage = Stage.LOADED
        finally:
            ledger.at_once[name] -= 1
            if held.stage is not Stage.LOADED and self.held.get(name) is held:
                del self.held[name]
            held.loading.set()

    def _fails(self) -> bool:
        if self.fail_next > 0:
            self.fail_next -= 1
            return True
        return self._random.random() < self.settings.failure_rate
