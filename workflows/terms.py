"""Every queue, timeout and retry of the workflows, each with its reason."""

from __future__ import annotations

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

PHASE = SearchAttributeKey.for_keyword("ScoPhase")
PLACING = "placing"
