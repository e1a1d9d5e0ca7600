"""The workshop: the embedded stack, a simulated private cloud, demo and benches."""
