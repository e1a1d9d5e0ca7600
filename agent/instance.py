"""Which instance this is: as set, as the provider says, or as it was at the last start.

A disk may have been another instance's: an image is made of a node that ran, and hundreds start from it. Who
takes its name for their own would refuse every notice as foreign.
"""

from __future__ import annotations

import asyncio
import logging

from pydantic import TypeAdapter, ValidationError

from agent.bounded import bounded, describe
from agent.clock import ProviderClock, SystemClock
from agent.files import read_bounded, write_atomic
from agent.metadata import Metadata
from agent.settings import AgentSettings
from agent.systemd import notify
from wire.node import InstanceId

INSTANCE_FILE = "instance-id"
ASK_AGAIN_SECONDS = 1.0
# How long a start waits for the provider where the last one is remembered: it may not answer for hours.
CONFIRM_SECONDS = 1.0
# A change is believed when it was told so often in a row, with a moment between.
TIMES, MOMENT_SECONDS = 3, 0.2
# Beside the file: what belongs to one instance. Whom to believe holds for all; bundles and keys name theirs.
OF_ONE = ("drain.json", "bus.creds", "spool.db", "spool.db-wal", "spool.db-shm", "spool.db-journal")
# Who believed to be that one, as long as the provider was silent, may have gone on with its drain.
IN_RUN = ("drain.json", "deadline")
log = logging.getLogger("sco.agent")


class Instance:
    """The identity of this machine at its provider, which outlives restarts but not the copying of a disk."""

    def __init__(self, settings: AgentSettings) -> None:
        clock = SystemClock()
        self._set = settings.instance_id
        self._file = settings.state_dir / INSTANCE_FILE
        self._run_dir = settings.run_dir
        self._metadata = Metadata(settings.metadata_url, clock, ProviderClock(clock), lambda: None)

    async def find(self) -> str:
        """The id as set, as the provider says, or as kept where it does not answer. Changes nothing."""
        if self._set is not None:
            return self._set
        kept = self._kept()
        if kept is None:
            notify("STATUS=waiting for the metadata service to say which instance this is")
            return await self._as_told()
        try:
            return await bounded(self._as_told(kept), CONFIRM_SECONDS)
        except TimeoutError:
            return kept

    def keep(self, instance_id: str) -> None:
        """Remember it for starts at which nobody answers; what another left on this disk is put away."""
        kept = self._kept()
        if self._set is not None or kept == instance_id:
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if kept is not None:
                log.warning("this disk was that of instance %s, this is %s", kept, instance_id)
                left = [self._file.parent / name for name in OF_ONE] + [
                    self._run_dir / name for name in IN_RUN
                ]
                for path in left:
                    path.unlink(missing_ok=True)
            write_atomic(self._file, f"{instance_id}\n".encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", self._file, error.strerror)

    async def until_another(self, instance_id: str) -> str:
        """Wait until the provider says that this is another instance, and return which."""
        if self._set is None:
            told = await self._as_told(instance_id)
            if told != instance_id:
                return told
        await asyncio.Event().wait()
        raise AssertionError("nothing ends the wait")

    async def _as_told(self, believed: str | None = None) -> str:
        """What the provider says, once it does; something else than what is believed only again and again."""
        others: list[str] = []
        while True:
            found = await self._asked()
            if found is None:
                others.clear()
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                continue
            if believed is None or found == believed:
                return found
            others = [found] if others and others[-1] != found else [*others, found]
            if len(others) == TIMES:
                return found
            await asyncio.sleep(MOMENT_SECONDS)

    async def _asked(self) -> str | None:
        try:
            return _valid(await self._metadata.instance_id())
        except OSError as error:
            log.info("the provider does not say which instance this is: %s", describe(error))
            return None

    def _kept(self) -> str | None:
        return _valid((read_bounded(self._file) or b"").decode(errors="replace").strip())


def _valid(text: str) -> str | None:
    try:
        found: str = TypeAdapter(InstanceId).validate_python(text)
    except ValidationError:
        return None
    return found
