"""The checkpoint client for workloads: the standard library alone."""
