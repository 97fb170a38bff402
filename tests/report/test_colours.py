"""Operations stay apart for readers with any common kind of colour vision, on light and on dark pages.

Colour blindness is simulated with the matrices of Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB;
distance is CIE 1976 (L*a*b*), where about 2.3 is just noticeable.
"""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from hippo.report.frame import template_text

VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
SRGB_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
APART = 25.0
"""Least distance of two kinds of operation: ten times what is just noticeable."""


def palette(theme: int) -> dict[str, str]:
    """Variables of the light (0) or the dark (1) theme."""
    block = re.findall(r":root[^{]*\{(.*?)\n\}", template_text("report.css"), re.DOTALL)[theme]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = SRGB_TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2."""
    light, dark = sorted((float(linear(c) @ np.array([0.2126, 0.7152, 0.0722])) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [0, 1])
def test_operations_stay_apart(theme: int, vision: str) -> None:
    colours = palette(theme)
    seen = {name: lab(VISION[vision] @ linear(colours[name])) for name in ("k0", "k1", "k2", "k3", "k4", "idle")}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > APART, f"{one} and {other}"


@pytest.mark.parametrize("theme", [0, 1])
def test_words_stand_out(theme: int) -> None:
    colours = palette(theme)
    for ink in ("ink", "muted", "accent", "good", "bad"):
        for ground in ("page", "surface"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, f"{ink} on {ground}"


@pytest.mark.parametrize("theme", [0, 1])
def test_figures_on_bars_stand_out(theme: int) -> None:
    colours = palette(theme)
    for bar in ("k0", "k1", "k3", "d6"):
        assert contrast(colours[f"on-{bar}"], colours[bar]) >= 3.0, bar
