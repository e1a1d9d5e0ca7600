"""Signals that people send: extra arguments, typed in a web form, must not stop a workflow."""

from __future__ import annotations

from temporalio import workflow
from temporalio.worker import (
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)


class ForgivingSignals(Interceptor):
    """Every worker and every replay of our workflows needs it.

    Type hints are dropped when their count differs from that of the arguments, and calling a handler
    with too many would fail every further workflow task. Such a signal is taken as one without a body.
    """

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        del input
        return _WithoutExtras


class _WithoutExtras(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:
        if len(input.args) > 1:
            workflow.logger.warning(
                "signal %s came with %d arguments, it takes one or none: its body is left out",
                input.signal,
                len(input.args),
            )
            input.args = []
        await super().handle_signal(input)
