"""Nodes of the laboratory: real agents with plain workloads, and the metadata that a cloud shows them."""
