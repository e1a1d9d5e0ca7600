"""Rankings and shortlists kept in memory between decisions: computed once, referenced by thousands."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from domain.placement.filters import RequirementClass, Shortlist, shortlist
from domain.placement.scoring import Ranking
from store import rankings
from store.engine import Connection

RANKINGS_KEPT = 8
SHORTLISTS_KEPT = 512


class ShortlistCache:
    """The last rankings and shortlists of one process. What is stored never changes, so nothing expires."""

    def __init__(self) -> None:
        self._rankings: OrderedDict[UUID, Ranking] = OrderedDict()
        self._shortlists: OrderedDict[tuple[UUID, str], Shortlist] = OrderedDict()

    async def ranking(self, connection: Connection, tenant_id: str, ranking_id: UUID) -> Ranking:
        known = self._rankings.get(ranking_id)
        if known is None:
            known = await rankings.load_ranking(connection, tenant_id, ranking_id)
            self._rankings[ranking_id] = known
            if len(self._rankings) > RANKINGS_KEPT:
                self._rankings.popitem(last=False)
        return known

    def shortlist(self, ranking: Ranking, wanted: RequirementClass) -> tuple[Shortlist, bool]:
        """The shortlist of a class, and whether it was computed just now and is still to be stored."""
        key = (UUID(ranking.ranking_id), wanted.key)
        known = self._shortlists.get(key)
        return (known, False) if known is not None else (shortlist(ranking, wanted), True)

    def stored(self, listed: Shortlist) -> None:
        """Remember a shortlist once the transaction that stored it is committed."""
        self._shortlists[(UUID(listed.ranking_id), listed.class_key)] = listed
        if len(self._shortlists) > SHORTLISTS_KEPT:
            self._shortlists.popitem(last=False)
