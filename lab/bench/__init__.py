"""Measurements: the planner alone, and durable placements end to end. `make bench` runs them all."""
