"""The networks of construction: which domain next and with what claim, which recipe, which layout (torch).

Every score starts as what a greedy choice by the closed form would follow (the feature ``best``, scaled) and learns
the rest: the last layers begin at zero. Weights are shared over domains, recipes and layouts: any number will do.

Letters: W drafts, K domains, S claims, M rows, H width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hippo.network.construction.draft import CLAIMS, PLAIN
from hippo.network.construction.observe import CANDIDATES, DRAFTS, LAYOUTS, NODES, PAIRS, PLACES, RECIPES
from hippo.network.hi_ppo.constructor import GREED, SHY
from hippo.network.train.gnn_encoder import Encoder

WIDTH = 32


class Constructor(nn.Module):
    """The upper agent: logits (W, 2 K S + 1) over (next domain, end, claim) and to stop, and a value (W,)."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.encoder = Encoder("sage", NODES, 2 * PAIRS, hidden=width, layers=2)
        self.inner = nn.Linear(3 * width + DRAFTS + CANDIDATES, width)
        self.score = nn.Linear(width, len(CLAIMS))
        self.halt = nn.Linear(width, 1)
        self.value = nn.Sequential(nn.Linear(width + DRAFTS, width), nn.Tanh(), nn.Linear(width, 1))
        self.log_greed = nn.Parameter(torch.tensor(GREED).log())
        usual = torch.full((len(CLAIMS),), GREED * SHY)
        usual[PLAIN] = 0.0
        self.usual = nn.Parameter(usual)
        for layer in (self.score, self.halt):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, nodes: Tensor, edges: Tensor, node_mask: Tensor, context: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        near = (torch.maximum(edges[..., 0], edges[..., 0].transpose(1, 2)) > 0) & node_mask.unsqueeze(1)
        shown = node_mask.unsqueeze(-1).to(nodes.dtype)
        state = self.encoder(nodes, torch.cat([edges, edges.transpose(1, 2)], dim=-1), near)[0] * shown
        everywhere = state.sum(1) / shown.sum(1).clamp_min(1.0)
        used = nodes[..., 2:3]
        chain = (state * used).sum(1) / used.sum(1).clamp_min(1.0)
        around = torch.cat([everywhere, chain, context], dim=-1)
        each = torch.cat([state.repeat_interleave(2, dim=1), torch.zeros_like(state[:, :1])], dim=1)
        wide = torch.cat([each, around.unsqueeze(1).expand(-1, each.shape[1], -1), candidates], dim=-1)
        inner = torch.relu(self.inner(wide))
        greedy = self.log_greed.exp() * candidates[..., 0]
        joins = self.score(inner[:, :-1]) + greedy[:, :-1].unsqueeze(-1) + self.usual
        stop = self.halt(inner[:, -1]) + greedy[:, -1:]
        value = self.value(torch.cat([everywhere, context], dim=-1)).squeeze(-1)
        return torch.cat([joins.flatten(1), stop], dim=-1), value


class Chooser(nn.Module):
    """Logits (W, M) of rows: recipes for the upper agent, layouts for the lower one."""

    def __init__(self, features: int, context: int, width: int = WIDTH) -> None:
        super().__init__()
        self.rows = nn.Linear(features, width)
        self.around = nn.Linear(context, width)
        self.inner = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)
        self.log_greed = nn.Parameter(torch.tensor(GREED).log())
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, rows: Tensor, context: Tensor) -> Tensor:
        """See the class."""
        inner = torch.relu(self.rows(rows) + self.around(context).unsqueeze(1))
        inner = torch.relu(self.inner(inner))
        logits: Tensor = self.score(inner).squeeze(-1) + self.log_greed.exp() * rows[..., 0]
        return logits


class Builders(nn.Module):
    """All three: ``constructor`` and ``recipe`` are the upper agent's, ``arrange`` is the lower agent's."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.constructor = Constructor(width)
        self.recipe = Chooser(RECIPES, DRAFTS, width)
        self.arrange = Chooser(LAYOUTS, PLACES, width)
