"""How good a plan is: the numbers of the ``score`` contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hippo.records import html_table


@dataclass(frozen=True)
class Score:
    """Figures of one plan; keys of the ``score`` document are these field names."""

    step_time_s: float
    utilization: float  # mean of U_k = T_k^compute / T_step over the domains in use
    utilization_all: float  # the same mean over all domains of the cluster
    cross_domain_gb_per_step: float
    egress_usd_per_step: float
    usd_per_step: float  # rent of the GPUs in use + egress
    tokens_per_s: float
    mfu: float
    peak_memory_gb: float
    reward: float  # w1 R_eff + w2 R_util - w3 R_cost against the baseline plan; 0 when no baseline was given
    r_eff: float = 0.0
    r_util: float = 0.0  # the utilisation; needs no baseline
    r_cost: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """Figures by name, the keys of the ``score`` document; units stand in the names."""
        return asdict(self)

    def __repr__(self) -> str:
        names = ("step_time_s", "tokens_per_s", "mfu", "usd_per_step", "peak_memory_gb")
        return f"Score({', '.join(f'{name}={getattr(self, name):.6g}' for name in names)}, ...)"

    def _repr_html_(self) -> str:
        return html_table([{"figure": name, "value": value} for name, value in self.to_dict().items()], title="Score")
