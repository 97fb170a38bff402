"""Which points are not beaten in everything, and how much space they cover together.

All objectives are minimised; a caller who maximises one negates it. P points, D objectives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def non_dominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Mask (P,) of the points that no other point beats.

    A point is dominated when another is nowhere worse and somewhere better. Of equal points the first is kept.

    Raises
    ------
    ValueError
        Points are not a (P, D) array of finite numbers.
    """
    values = _checked(points)
    keep = np.zeros(len(values), dtype=bool)
    # In lexicographic order (ties: as given) a point can only be dominated by one that comes before it.
    order = np.lexsort((np.arange(len(values)), *values.T[::-1]))
    front = np.empty((0, values.shape[1]))
    for index in order:
        if not np.any(np.all(front <= values[index], axis=1)):
            keep[index] = True
            front = np.vstack([front, values[index]])
    return keep


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """Volume of the space that the points dominate, up to the reference point (exact).

    Sweeps one objective and measures the slices recursively ("Hypervolume by slicing objectives", While et al. 2006):
    O(P^2 log P) for three objectives. Points not better than the reference in every objective add nothing.
    """
    values = _checked(points)
    limit = np.asarray(reference, dtype=float)
    if limit.shape != (values.shape[1],):
        raise ValueError(f"the reference point needs {values.shape[1]} numbers, got {limit.shape}")
    return _volume(values[np.all(values < limit, axis=1)], limit)


def _volume(points: NDArray[np.float64], limit: NDArray[np.float64]) -> float:
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(limit[0] - points[:, 0].min())
    ordered = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        # Left to right in the second objective, a point adds the strip that its first objective newly covers.
        best = np.minimum.accumulate(ordered[:, 0])
        heights = np.append(ordered[1:, 1], limit[1]) - ordered[:, 1]
        return float(np.sum((limit[0] - best) * heights))
    depths = np.append(ordered[1:, -1], limit[-1]) - ordered[:, -1]
    slices = (_volume(ordered[: index + 1, :-1], limit[:-1]) for index in range(len(ordered)))
    return float(sum(depth * area for depth, area in zip(depths, slices, strict=True) if depth > 0))


def _checked(points: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(points, dtype=float)
    if values.ndim != 2 or not np.all(np.isfinite(values)):
        raise ValueError(f"points must be a finite (points, objectives) array, got shape {values.shape}")
    return values
