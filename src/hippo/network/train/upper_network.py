"""The upper agent: what the network is like, and which of at most 24 options to take.

A graph network reads domains and links. Every option is scored by its own features, by the embeddings of the domains
that hold its layers and of the links that carry its traffic, each in its share, and by what is common to all. Scores
start as a planner's with a receding horizon: proportional to the option's net worth over the rest of the run under the
forecast. What is learned is the rest.

Letters: W worlds of a batch, K domains (padded), M options (padded), D hidden features, G costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hippo.errors import InputError, UnknownNameError
from hippo.network.observation.features import (
    CONTEXT,
    EDGE_FEATURES,
    EDGES,
    NODES,
    OPTION_FEATURES,
    OPTIONS,
    Observation,
)
from hippo.network.train.gnn_encoder import Encoder, mean, pool

ENCODERS = ("sage", "gatv2", "none")
COSTS = 3
"""Constraints with a value of their own: bandwidth floor, balance, stability."""

MOST_FEATURE = 20.0
"""Features of options beyond this are cut: all are logarithms or shares, so nothing real lies there."""

SIZES = (4, 8, 16, 32)
"""Worlds of a batch are worked on in groups of at most so many domains: pairs grow with the square."""

EXISTS, WORTH = EDGE_FEATURES.index("exists"), OPTION_FEATURES.index("worth_rest")


@dataclass(frozen=True)
class NetworkConfig:
    """What the network is made of."""

    encoder: str = "sage"  # sage | gatv2 | none: features of domains and links pooled as they are
    layers: int = 2  # of message passing, 1 to 8
    hidden: int = 32  # 4 to 1024
    heads: int = 2  # of gatv2
    worth_scale: float = 3.0  # logits start as this times ``worth_rest``; 0: as nothing

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            raise UnknownNameError("encoder", self.encoder, ENCODERS, key="encoder")
        for name, value, most in (("layers", self.layers, 8), ("hidden", self.hidden, 1024), ("heads", self.heads, 16)):
            if not 1 <= value <= most:
                raise InputError("out of range", key=name, value=value, remedy=f"give a whole number from 1 to {most}")


class Heads(NamedTuple):
    """What the agent thinks of a batch."""

    logits: Tensor  # (W, M) of the options, before any mask
    value: Tensor  # (W,) reward to come
    cost_values: Tensor  # (W, G) costs to come
    attention: Tensor  # (W, K, K) how much row hears column in the last layer


class GlobalAgent(nn.Module):
    """Scores options and says what is to be expected. Small: about 20,000 parameters."""

    def __init__(self, config: NetworkConfig = NetworkConfig()) -> None:
        super().__init__()
        self.config, hidden = config, config.hidden
        pairs = 2 * EDGES  # both directions
        self.encoder = Encoder(config.encoder, NODES, pairs, hidden=hidden, layers=config.layers, heads=config.heads)
        domain = self.encoder.out
        self.link = None if config.encoder == "none" else _Link(domain, hidden)
        link = EDGES if self.link is None else hidden
        self.common = nn.Linear(CONTEXT + 2 * domain + link, hidden)
        self.option = nn.Linear(OPTIONS, hidden)
        self.by_domain = nn.Linear(domain, hidden, bias=False)
        self.by_link = nn.Linear(link, hidden, bias=False)
        self.by_common = nn.Linear(hidden, hidden, bias=False)
        self.mixed = nn.Linear(hidden, hidden)
        self.residual = nn.Linear(hidden, 1)
        self.prior = nn.Linear(OPTIONS, 1, bias=False)
        self.judge = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1 + COSTS))
        self._start()

    def _start(self) -> None:
        """Logits are the scaled worth at first; values are near zero."""
        with torch.no_grad():
            for last in (self.residual, self.judge[2]):
                assert isinstance(last, nn.Linear)
                last.weight.mul_(0.01)
                last.bias.zero_()
            self.prior.weight.zero_()
            self.prior.weight[0, WORTH] = self.config.worth_scale

    def forward(self, batch: Any) -> Heads:
        """``batch``: an ``Observation`` whose fields are tensors."""
        sizes = [size for size in SIZES if size < batch.node_mask.shape[1]]
        if not sizes or len(batch.context) == 1:
            return self.dense(batch)
        return self._grouped(batch, [*sizes, batch.node_mask.shape[1]])

    def dense(self, batch: Any) -> Heads:
        """The same without looking at how many domains there are: no step depends on values (for export)."""
        nodes, edges, mask, context, options, by_node, by_edge, allowed = batch
        domains, attention = self._domains(nodes, edges, mask)
        links, linked = self._links(domains, edges)
        common = torch.relu(self.common(torch.cat([context, pool(domains, mask), mean(links, linked)], dim=-1)))
        options = options.clamp(-MOST_FEATURE, MOST_FEATURE)
        own = self.option(options) + by_node @ self.by_domain(domains)
        own = own + self.by_link(by_edge.flatten(2) @ links) + self.by_common(common)[:, None]
        made = torch.relu(self.mixed(torch.relu(own)))
        logits = (self.residual(made) + self.prior(options)).squeeze(-1)
        values = self.judge(torch.cat([common, pool(made, allowed)], dim=-1))
        return Heads(logits, values[:, 0], values[:, 1:], attention)

    def _domains(self, nodes: Tensor, edges: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of the domains (W, K, ..) and the attention."""
        linked = (edges[..., EXISTS] > 0) & mask[:, :, None] & mask[:, None]
        near = linked | linked.transpose(1, 2)
        domains, attention = self.encoder(nodes, torch.cat([edges, edges.transpose(1, 2)], dim=-1), near)
        return domains, attention * mask[:, :, None]

    def _links(self, domains: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of the links (W, K x K, ..) and which of them there are."""
        links = edges if self.link is None else self.link(domains, edges)
        return links.flatten(1, 2), (edges[..., EXISTS] > 0).flatten(1)

    def _grouped(self, batch: Any, sizes: list[int]) -> Heads:
        """Worlds of about the same size together, padding beyond them left out."""
        worlds, most = batch.node_mask.shape
        last = (batch.node_mask * torch.arange(1, most + 1)).amax(1)
        group = torch.bucketize(last, torch.tensor(sizes))
        rows = [torch.nonzero(group == index)[:, 0] for index in range(len(sizes))]
        found = [self.dense(_cut(batch, row, size)) for row, size in zip(rows, sizes, strict=True) if len(row)]
        back = torch.empty(worlds, dtype=torch.long)
        back[torch.cat(rows)] = torch.arange(worlds)
        wide = [nn.functional.pad(each.attention, 2 * (0, most - each.attention.shape[-1])) for each in found]
        logits, value, costs = (torch.cat(parts)[back] for parts in list(zip(*found, strict=True))[:3])
        return Heads(logits, value, costs, torch.cat(wide)[back])


class _Link(nn.Module):
    """Embedding of a link from its features and both its ends."""

    def __init__(self, domain: int, hidden: int) -> None:
        super().__init__()
        self.own = nn.Linear(EDGES, hidden)
        self.source = nn.Linear(domain, hidden, bias=False)
        self.destination = nn.Linear(domain, hidden, bias=False)

    def forward(self, domains: Tensor, edges: Tensor) -> Tensor:
        """(W, K, K, hidden) of domains (W, K, domain) and links (W, K, K, EDGES)."""
        made: Tensor = (self.own(edges) + self.source(domains)[:, :, None]).add_(self.destination(domains)[:, None])
        return made.relu_()


def _cut(batch: Any, rows: Tensor, size: int) -> Any:
    """Some worlds of a batch, with room for ``size`` domains only."""
    nodes, edges, mask, context, options, by_node, by_edge, allowed = batch
    return Observation(
        nodes[rows, :size],
        edges[rows, :size, :size],
        mask[rows, :size],
        context[rows],
        options[rows],
        by_node[rows, :, :size],
        by_edge[rows, :, :size, :size],
        allowed[rows],
    )
