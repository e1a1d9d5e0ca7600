"""The keys: how people and workloads use the service."""
