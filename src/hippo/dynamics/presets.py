"""How links move where traffic was published: presets for ``Cluster.dynamics``, each with its source.

The series are traffic of others, a stand-in for what it leaves of a link: no public series of bandwidth between virtual
machines was found. From a series' residual standard deviation ``s`` and its daily peak over trough ``r`` (of log
traffic, after taking the daily and weekly harmonics off), with a mean load ``rho`` of others (``USUAL_LOAD``):

* what is left is ``1 - rho e^x``, so to first order ``sigma = s rho / (1 - rho)``;
* traffic is ``2 r / (1 + r)`` times its mean at the peak and ``2 / (1 + r)`` at the trough, so the best hour has
  ``(1 - 2 rho / (1 + r)) / (1 - 2 r rho / (1 + r))`` times the bandwidth of the worst;
* ``tau`` is the series' own (from its autocorrelation; white noise apart).

The figures of a row were fitted to the series named beside it: hippo's own fits of public data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hippo.dynamics.processes import USUAL_LOAD
from hippo.errors import UnknownNameError
from hippo.problem.cluster import Dynamics

MINUTE_S = 60.0
_ABILENE = "Abilene (Internet2) 2004, SNDlib traffic matrices, 5 min"


@dataclass(frozen=True)
class TrafficFit:
    """What was fitted to a published series of traffic."""

    sd_resid: float  # of log traffic, harmonics off
    tau_min: float  # correlation time of an Ornstein-Uhlenbeck process, minutes
    peak_to_trough: float  # of the daily harmonic
    source: str

    def dynamics(self, rho: float = USUAL_LOAD) -> Dynamics:
        """How a link moves that others load like that, at a mean load ``rho`` below one half."""
        r = self.peak_to_trough
        return Dynamics(
            sigma=self.sd_resid * rho / (1.0 - rho),
            tau_s=self.tau_min * MINUTE_S,
            diurnal_peak_to_trough=(1.0 - 2.0 * rho / (1.0 + r)) / (1.0 - 2.0 * rho * r / (1.0 + r)),
        )


FITS: Mapping[str, TrafficFit] = MappingProxyType(
    {
        "transatlantic": TrafficFit(0.516, 277.6, 1.193, "ISP, transatlantic link, 2005, 5 min"),
        "academic-backbone": TrafficFit(0.369, 1598.0, 2.434, "UK academic backbone, 2004-05, 5 min"),
        "abilene": TrafficFit(0.105, 521.6, 1.409, f"{_ABILENE}; total"),
        "abilene-washington-new-york": TrafficFit(0.280, 591.4, 1.345, f"{_ABILENE}; WASHng to NYCMng"),
        "abilene-washington-atlanta": TrafficFit(0.203, 387.6, 1.255, f"{_ABILENE}; WASHng to ATLAng"),
        "abilene-new-york-washington": TrafficFit(0.295, 393.1, 2.021, f"{_ABILENE}; NYCMng to WASHng"),
        "abilene-indianapolis-chicago": TrafficFit(0.231, 352.5, 1.391, f"{_ABILENE}; IPLSng to CHINng"),
        "geant": TrafficFit(0.065, 184.3, 1.733, "GEANT, total, 15 min"),
    }
)
"""Every fit by its name."""

PRESETS: Mapping[str, Dynamics] = MappingProxyType({name: fit.dynamics() for name, fit in FITS.items()})
"""Dynamics at the usual load."""


def preset(name: str) -> Dynamics:
    """The dynamics of that name; ``UnknownNameError`` lists the names."""
    if name not in PRESETS:
        raise UnknownNameError("preset of a moving network", name, PRESETS)
    return PRESETS[name]
