"""Placement: which pools, how many units in each, and why not the others.

Three steps, each a pure function over stored inputs:

- `scoring` ranks every pool of a partition, once per scoring run;
- `filters` turns a ranking into a shortlist for one requirement class, shared by all its claims;
- `portfolio` spreads one claim over a shortlist within floor and caps.
"""
