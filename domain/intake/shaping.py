"""Shapes of a claim: equal ones merged, too many of them rounded up onto a coarser grid.

The rounding rule. The grid keeps the leading binary digits of vCPU and memory: first five after the
leading one, then fewer, down to powers of 2, 4, 16, 256, and at last no distinction at all. Units that
fall into one cell of the grid share one shape: the largest vCPU, memory and GPU count found in that
cell. The finest grid with at most `MAX_SHAPES` cells is used. A rounded shape therefore always holds
its originals, the number of units never changes, and the order of the input does not matter. GPU
counts are kept apart as long as a grid of powers of 2 allows, then rounded up to powers of 2; a unit
without GPUs never gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from domain.claim import MAX_SHAPES, Shape, ShapeCount

_FINEST_DIGITS = 5
_COARSE_BITS = (2, 4, 8, 64)


class Size(NamedTuple):
    """One unit: thousandths of a vCPU, MiB of memory, whole GPUs. Sorts as claims are sorted."""

    vcpu_milli: int
    ram_mib: int
    gpus: int


class Shaping(NamedTuple):
    """The shapes, largest first (vCPU, then memory, then GPUs), and what rounding added in total."""

    shapes: tuple[ShapeCount, ...]
    distinct: int
    extra_vcpu_milli: int
    extra_ram_mib: int
    extra_gpus: int


def shape_units(units: Mapping[Size, int]) -> Shaping:
    """Merge and, above `MAX_SHAPES` distinct shapes, round up. `units` counts the units of each size."""
    cells = _cells(units)
    totals = [0, 0, 0]
    shapes: dict[Size, int] = {}
    for members in cells:
        size = _holding(members)
        shapes[size] = shapes.get(size, 0) + sum(units[member] for member in members)
        for member in members:
            for axis in range(3):
                totals[axis] += (size[axis] - member[axis]) * units[member]
    return Shaping(_counted(shapes), len(units), *totals)


def _counted(shapes: Mapping[Size, int]) -> tuple[ShapeCount, ...]:
    return tuple(
        ShapeCount(
            shape=Shape(vcpu_milli=size.vcpu_milli, ram_mib=size.ram_mib, gpus=size.gpus),
            units=shapes[size],
        )
        for size in sorted(shapes, reverse=True)
    )


def _cells(sizes: Iterable[Size]) -> list[list[Size]]:
    cells = [[size] for size in sizes]
    distinct = [size for (size,) in cells]
    for grid in _grids():
        if len(cells) <= MAX_SHAPES:
            break
        grouped: dict[Size, list[Size]] = {}
        for size in distinct:
            grouped.setdefault(grid(size), []).append(size)
        cells = list(grouped.values())
    return cells


def _grids() -> Iterator[Callable[[Size], Size]]:
    """Finest first. The last one has 2 by 2 by 8 cells, so it always suffices."""
    for digits in range(_FINEST_DIGITS, -1, -1):
        yield partial(_on_digits, digits)
    for bits in _COARSE_BITS:
        yield partial(_on_octaves, bits)


def _on_digits(digits: int, size: Size) -> Size:
    return Size(_leading(size.vcpu_milli, digits), _leading(size.ram_mib, digits), size.gpus)


def _on_octaves(bits: int, size: Size) -> Size:
    return Size(_octave(size.vcpu_milli, bits), _octave(size.ram_mib, bits), _octave(size.gpus, 1))


def _leading(value: int, digits: int) -> int:
    """The value rounded up to its leading binary digit and `digits` more."""
    drop = max(0, (value - 1).bit_length() - 1 - digits)
    return -(-value >> drop) << drop


def _octave(value: int, bits: int) -> int:
    """Which power of 2^bits holds the value; 0 stays by itself."""
    return 0 if value == 0 else 1 + -(-(value - 1).bit_length() // bits)


def _holding(members: list[Size]) -> Size:
    return Size(
        max(size.vcpu_milli for size in members),
        max(size.ram_mib for size in members),
        max(size.gpus for size in members),
    )
