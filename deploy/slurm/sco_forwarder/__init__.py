"""Stands beside slurmctld and does for an agent what its own node may ask, and nothing else."""
