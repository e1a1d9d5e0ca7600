"""The secrets port: short-lived credentials of serving endpoints, and the adapter for OpenBao."""
