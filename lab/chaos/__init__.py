"""The fault matrix: what the hands make of a provider that fails in every way, at every step.

A cell is a fault at a step. A case is one cell with one seed: a fresh workload on the simulated cloud and
a real database, placed, grown, shrunk and given back by the real hands, with the fault armed on the way
and the process killed at moments that the seed chooses. Afterwards nothing may be left over.

`table` says which cells exist, `arming` how a fault is armed, `lane` what cases run on, `process` and
`killing` what a process is and how it ends, `promises` what the workflows do, `life` what a workload goes
through, `judge` what must hold, `matrix` runs the cases, and `report` shows them.
"""
