"""Every queue, timeout and retry of the workflows, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from temporalio.common import RetryPolicy, SearchAttributeKey

from activities.placement_calls import NOTHING_TO_PLACE

# One store transaction. Local activities are cancelled with the workflow task's heartbeat, so this is short.
DECIDE_TIMEOUT = timedelta(seconds=10)
# A decision waits for a database that restarts or for the first ranking; it is never given up.
DECIDE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=15),
    non_retryable_error_types=[NOTHING_TO_PLACE],
)
# After this the retry waits in the server and not in the worker's memory.
LOCAL_RETRY_THRESHOLD = timedelta(seconds=5)

# How often one run plans again after failed launches before it records a shortfall.
MAX_REPLANS = 5

# The worker says every few seconds that it lives, whatever its hands wait for: a dead one is noticed soon.
# A call that hangs is bounded by its own timeout, and a hand by its start-to-close timeout.
HEARTBEAT = timedelta(seconds=10)

# One store transaction that may wait for locks of others; tried until the database is back.
STORE_TIMEOUT = timedelta(seconds=20)
STORE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=30)
)

# One run of an acquisition ends within the patience for one build; a longer one is a worker that hangs.
REGION_TIMEOUT = timedelta(minutes=30)
# A region that cannot be reached for so long is reported as unreachable, and its units stay where they are.
REGION_PATIENCE = timedelta(hours=1)
REGION_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60))

# Reads and ranks several hundred pools and stores them: seconds, never minutes.
SCORE_TIMEOUT = timedelta(seconds=60)

# Observation must not pile up: the next one comes in a minute.
OBSERVE_TIMEOUT = timedelta(seconds=50)
OBSERVE_RETRY = RetryPolicy(initial_interval=timedelta(seconds=2), maximum_attempts=3)

# A sweep reads, then pokes a bounded number of workflows.
SWEEP_TIMEOUT = timedelta(seconds=50)
SWEEP_RETRY = RetryPolicy(initial_interval=timedelta(seconds=2), maximum_attempts=3)
# How many workloads one sweep may poke; the next sweep takes the rest.
SWEEP_LIMIT = 200

# Lists a region's servers twice, with the settle time in between; 20,000 of them are read in a minute.
AUDIT_TIMEOUT = timedelta(minutes=4)
# A region that nobody looks at for so long fails the audit: what was not seen is not clean.
AUDIT_PATIENCE = timedelta(minutes=8)
AUDIT_RETRY = RetryPolicy(initial_interval=timedelta(seconds=2), maximum_attempts=3)

PHASE = SearchAttributeKey.for_keyword("ScoPhase")
PLACING = "placing"

# Lists tens of thousands of servers and rebuilds their records; a longer cycle is a worker that hangs.
CYCLE_TIMEOUT = timedelta(minutes=5)
# A cycle that no worker takes up is given up for the next one, which sees everything anew.
CYCLE_PATIENCE = timedelta(minutes=10)
# A failed list is no cycle. The next one is asked for after a pause, by the workflow and not by retries.
CYCLE_RETRY = RetryPolicy(maximum_attempts=1)
FAILED_CYCLE_PAUSE = timedelta(seconds=10)
# Hundreds of notifications in a second ask for one look, and a look costs tokens of the region's budget.
LOOK_AT_MOST_EVERY = timedelta(seconds=2)

# Looks at a few dozen leases and makes two calls for each that is due, behind the token budget.
LEASES_TIMEOUT = timedelta(minutes=10)
# Leases are due days before they end: what these attempts do not reach is left to the next look.
LEASES_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=5), maximum_interval=timedelta(seconds=60), maximum_attempts=5
)
# What a person reads at a glance; the table holds the rest.
PROBLEMS_SHOWN = 3

# One store transaction, then a start for each workload that holds units in the pool.
DRAIN_LOOK_TIMEOUT = timedelta(seconds=60)
# How the drain of a pool ends.
DRAINED = "drained"
RESUMED = "resumed"

# Goes over all pools in a few statements each; the next run comes in a minute and makes up for this one.
COLLECT_TIMEOUT = timedelta(seconds=50)
COLLECT_RETRY = RetryPolicy(initial_interval=timedelta(seconds=2), maximum_attempts=3)
# Hundreds of endpoints at once, each bounded by its own timeout. A round is not repeated: the next one comes
# within seconds, and a probe that is repeated would count as one more failure.
PROBE_TIMEOUT = timedelta(minutes=5)
PROBE_RETRY = RetryPolicy(maximum_attempts=1)
# What a person reads at a glance of a list of pools.
POOLS_SHOWN = 5


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - POOLS_SHOWN
    return ", ".join(names[:POOLS_SHOWN]) + (f" and {more} more" if more > 0 else "")


# A large model takes many minutes to load, and the hand says every few seconds that it goes on.
LOAD_TIMEOUT = timedelta(minutes=20)
# A load that no attempt brought to its end within this time has failed, and the placement is given back.
LOAD_PATIENCE = timedelta(minutes=30)
# An endpoint that is away for a moment is asked again; one that refuses says so with its first answer.
LOAD_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=2), maximum_interval=timedelta(seconds=30), maximum_attempts=4
)
# A deadline that has passed here and not yet by the store's clock is asked about at this pace.
LEAST_WAIT = timedelta(seconds=1)
# Where a model placement is, and how it ends besides `released` and `expired`.
LOADING = "loading"
HELD = "held"
FAILED = "failed"

# Asks one endpoint, decides in one transaction, and unloads a few models, each within the time for an answer.
MODELS_LOOK_TIMEOUT = timedelta(minutes=5)
# What a pool that is kept warm was found to be: it has all its models, misses some, or nobody could look.
WARM = "warm"
MISSING = "missing"
UNSEEN = "unseen"
# How the keeping of a pool ends.
ENDED = "ended"
