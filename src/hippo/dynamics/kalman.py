"""Kalman forecast of a link: usual level, daily harmonic, mean-reverting swing, and excursions that end or stay.

Every series (log of the ratio to its base) is ``level + a cos(w t) + b sin(w t) + x + noise`` with ``x`` an
Ornstein-Uhlenbeck process. Four filters differ in its memory and are weighted by how likely they made what was seen;
the strength of ``x`` follows the innovations of a sliding window (``WINDOW``), so nothing has to be fitted beforehand.

A collapse is no swing: a value far below what was expected begins an *excursion*, during which the filters go on
without measurements and the excursion's own level is tracked. It ends within a further time h with the probability
``1 - ((FRESH_S + age) / (FRESH_S + age + h)) ** ENDING``: what has lasted long will last longer (a Pareto law).
While nothing is heard, h counts from the last measurement.

References: Kalman 1960; Mehra 1970 (adaptation by innovations); Magill 1965 (bank of filters).
L or T instants, H horizons in epochs, E series, M filters; NaN is an instant without a measurement.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dynamics.processes import DAY_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MEMORY_S = np.array((900.0, 3600.0, 4 * 3600.0, 24 * 3600.0))  # (M,)
WINDOW = 64  # epochs whose innovations say how strong the swing is
USUAL_SIGMA, USUAL_COUNT = 0.08, 8.0  # before any were seen
NOISE = 0.003  # standard deviation of a measurement
LEVEL_SD, HARMONIC_SD = 0.1, 0.08  # of level and harmonic at the start
DRIFT_SD_PER_DAY = 0.05  # of level and harmonic
FORGET = 0.98  # of the weights of the filters, per epoch
DEEP, STRANGE = 0.35, 4.0  # an excursion begins that far below (log), and that many standard deviations
CLOSE, USUAL = 0.2, 2.5  # and ends that close
FOLLOW = 0.5  # share of the news that the level of an excursion takes up
FRESH_S, ENDING = 7200.0, 0.5  # these and the deviations above: least error on worlds of the train split

RISK, DEPTH = 0.15, 0.8
"""Of the next excursion: so many a day before any were seen, and how deep (log): they widen the doubt, not the mean."""


def predict(history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """Mean and standard deviation, each (H, E), after a history (L, E)."""
    mean, sd = _run(history, horizons, epoch_s, True)
    return mean[0], sd[0]


def predict_all(history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """The same after every instant of a history (T, E): each (T, H, E)."""
    return _run(history, horizons, epoch_s, False)


def _run(history: Floats, horizons: Ints, epoch_s: float, last: bool) -> tuple[Floats, Floats]:
    values = np.ascontiguousarray(history, dtype=np.float64)
    ahead = np.asarray(horizons, dtype=np.float64)
    shape = (1 if last else len(values), len(ahead), values.shape[1])
    mean, sd = np.empty(shape), np.empty(shape)
    for series in range(values.shape[1]):
        _series(values[:, series], ahead, float(epoch_s), MEMORY_S, last, mean[:, :, series], sd[:, :, series])
    return mean, sd


@kernel
def _series(values, ahead, epoch_s, memory_s, last, mean, sd):  # type: ignore[no-untyped-def]
    """Forecasts of one series; ``mean`` and ``sd`` (T or 1, H) are filled."""
    filters, turn = len(memory_s), 2.0 * np.pi * epoch_s / DAY_S
    state, spread = np.zeros((filters, 4)), np.zeros((filters, 4, 4))
    sigma2, weight = np.full(filters, USUAL_SIGMA**2), np.full(filters, 1.0 / filters)
    keep = np.exp(-epoch_s / memory_s)
    for each in range(filters):
        spread[each, 0, 0] = LEVEL_SD**2
        spread[each, 1, 1] = spread[each, 2, 2] = HARMONIC_SD**2
        spread[each, 3, 3] = sigma2[each]
    away, age_s, silent_s, low, seen, begun = False, 0.0, 0.0, 0.0, 0.0, RISK
    for instant in range(len(values)):
        now = values[instant]
        if instant > 0:
            for each in range(filters):
                _age(state[each], spread[each], keep[each], sigma2[each], epoch_s)
        usual, variance = _expected(state, spread, weight, turn * instant, keep, sigma2, 0.0, turn)
        age_s += epoch_s
        silent_s += epoch_s
        if not np.isnan(now):
            silent_s = 0.0
            gap, doubt = now - usual, np.sqrt(variance + NOISE**2)
            if away:
                away = gap < -max(CLOSE, min(USUAL * doubt, 0.5 * DEEP))
                low += FOLLOW * (now - low)
            elif gap < -max(DEEP, min(STRANGE * doubt, 2.0 * DEEP)):
                away, age_s, low, begun = True, 0.0, now, begun + 1.0
            if not away:
                seen += 1.0
                _measure(state, spread, sigma2, weight, now, turn * instant, seen)
        if last and instant < len(values) - 1:
            continue
        row = 0 if last else instant
        for at in range(len(ahead)):
            value, variance = _expected(state, spread, weight, turn * instant, keep, sigma2, ahead[at], turn)
            if away:
                known_s = FRESH_S + age_s - silent_s
                stays = (known_s / (known_s + silent_s + ahead[at] * epoch_s)) ** ENDING
                variance += stays * (1.0 - stays) * (value - low) ** 2
                value = stays * low + (1.0 - stays) * value
            else:
                holds = np.exp(-ahead[at] * epoch_s * begun / (DAY_S + instant * epoch_s))
                variance += holds * (1.0 - holds) * DEPTH**2
            mean[row, at], sd[row, at] = value, np.sqrt(variance)


@kernel(lean=True)
def _age(state, spread, keep, sigma2, epoch_s):  # type: ignore[no-untyped-def]
    """One epoch passes: the swing fades, everything gets less certain."""
    drift = DRIFT_SD_PER_DAY**2 * epoch_s / DAY_S
    state[3] *= keep
    for other in range(3):
        spread[other, 3] *= keep
        spread[3, other] *= keep
        spread[other, other] += drift
    spread[3, 3] = keep**2 * spread[3, 3] + (1.0 - keep**2) * sigma2


@kernel(lean=True)
def _expected(state, spread, weight, angle, keep, sigma2, ahead, turn):  # type: ignore[no-untyped-def]
    """Mean and variance over all filters ``ahead`` epochs from now (0: now)."""
    filters, cos, sin = len(weight), np.cos(angle + ahead * turn), np.sin(angle + ahead * turn)
    mean, square = 0.0, 0.0
    for each in range(filters):
        fade = keep[each] ** ahead
        seen = (1.0, cos, sin, fade)
        value, variance = 0.0, (1.0 - fade**2) * sigma2[each]
        for row in range(4):
            value += seen[row] * state[each, row]
            for column in range(4):
                variance += seen[row] * spread[each, row, column] * seen[column]
        mean += weight[each] * value
        square += weight[each] * (variance + value**2)
    return mean, max(1e-8, square - mean**2)


@kernel
def _measure(state, spread, sigma2, weight, value, angle, seen):  # type: ignore[no-untyped-def]
    """Every filter takes the measurement up; its swing gets stronger or weaker, and its weight changes."""
    cos, sin = np.cos(angle), np.sin(angle)
    total = 0.0
    for each in range(len(weight)):
        gain = np.zeros(4)
        for row in range(4):
            gain[row] = (
                spread[each, row, 0] + cos * spread[each, row, 1] + sin * spread[each, row, 2] + spread[each, row, 3]
            )
        variance = gain[0] + cos * gain[1] + sin * gain[2] + gain[3] + NOISE**2
        news = value - (state[each, 0] + cos * state[each, 1] + sin * state[each, 2] + state[each, 3])
        for row in range(4):
            state[each, row] += gain[row] * news / variance
        for row in range(4):
            for column in range(4):
                spread[each, row, column] -= gain[row] * gain[column] / variance
        surprise = min(news**2 / variance, 9.0)
        rate = 1.0 / min(seen + USUAL_COUNT, WINDOW)
        sigma2[each] = min(max(sigma2[each] * (1.0 + rate * (surprise - 1.0)), 1e-4), 0.25)
        weight[each] = weight[each] ** FORGET * np.exp(-0.5 * surprise) / np.sqrt(variance)
        total += weight[each]
    for each in range(len(weight)):
        weight[each] = max(weight[each] / total, 1e-6)
