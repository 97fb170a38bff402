"""The constructing agents as graphs of a policy file: ``construct`` and ``recipe`` (upper), ``arrange`` (lower)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hippo.network.construction.observe import CANDIDATES, DRAFTS, NODES, PAIRS
from hippo.network.hi_ppo.constructor import ARRANGE, CONSTRUCT, DOMAIN_INPUTS, RECIPE, ROW_INPUTS
from hippo.network.train.construction_networks import Builders, Chooser, Constructor
from hippo.network.train.export import graph


def graphs(builders: Builders) -> dict[str, bytes]:
    """ONNX graphs by name: any number of drafts, domains and rows."""
    return {
        CONSTRUCT: _construct(builders.constructor),
        RECIPE: _choose(builders.recipe),
        ARRANGE: _choose(builders.arrange),
    }


class _Logits(nn.Module):
    """The constructor without its value."""

    def __init__(self, network: Constructor) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, nodes: Tensor, edges: Tensor, node_mask: Tensor, context: Tensor, joins: Tensor, stop: Tensor
    ) -> Tensor:
        """Logits of every answer, (W, 2 K S + 1)."""
        candidates = torch.cat([joins.flatten(1, 2), stop], dim=1)
        scores: Tensor = self.network(nodes, edges, node_mask, context, candidates)[0]
        return scores


def _construct(network: Constructor) -> bytes:
    w, k = 3, 5
    shown = (
        torch.zeros(w, k, NODES),
        torch.ones(w, k, k, PAIRS),
        torch.ones(w, k, dtype=torch.bool),
        torch.zeros(w, DRAFTS),
        torch.zeros(w, k, 2, CANDIDATES),
        torch.zeros(w, 1, CANDIDATES),
    )
    letters = ("WK", "WKK", "WK", "W", "WK", "W")
    axes = {name: dict(enumerate(each)) for name, each in zip(DOMAIN_INPUTS, letters, strict=True)}
    return graph(_Logits(network), shown, inputs=DOMAIN_INPUTS, outputs=("logits",), axes=axes)


def _choose(network: Chooser) -> bytes:
    w, m = 3, 5
    shown = (torch.zeros(w, m, network.rows.in_features), torch.zeros(w, network.around.in_features))
    axes = {name: dict(enumerate(each)) for name, each in zip(ROW_INPUTS, ("WM", "W"), strict=True)}
    return graph(network, shown, inputs=ROW_INPUTS, outputs=("logits",), axes=axes)
