"""Schedulers to drain from: a stand-in for a Kubernetes API, and a real Slurm from Debian's packages."""
