"""Message passing over networks of a few dozen domains, dense and masked: every pair has its place in an array.

With at most 64 domains of which nearly all pairs are linked, arrays are quicker than lists of edges, and export to ONNX
with any number of domains. Both kinds of layer read the features of the link between two domains, which PyG's SAGEConv
does not: bandwidth, latency and price *are* the state here.

Letters: W worlds of a batch, K domains (padded), F features of a node, P features of a pair, D features made.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SLOPE = 0.2  # of the leaky rectifier in GATv2, as in its paper


class SageLayer(nn.Module):
    """GraphSAGE with the mean of the neighbours (Hamilton et al. 2017, algorithm 1), messages that see the link.

    ``out_i = A h_i + B mean_j m_ij`` with ``m_ij = relu(U h_j + V p_ij)``, or ``m_ij = h_j`` where pairs have no
    features, which is PyG's ``SAGEConv``. A node without neighbours hears zero.
    """

    def __init__(self, nodes: int, pairs: int, out: int) -> None:
        super().__init__()
        self.sender = nn.Linear(nodes, out) if pairs else None
        self.pair = nn.Linear(pairs, out, bias=False) if pairs else None
        self.heard = nn.Linear(out if pairs else nodes, out)
        self.own = nn.Linear(nodes, out, bias=False)

    def forward(self, nodes: Tensor, pairs: Tensor | None, near: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes (W, K, F), pairs (W, K, K, P) as row hears column, ``near`` (W, K, K) who is a neighbour of whom.

        Returns the new nodes (W, K, D) and the weights (W, K, K) with which row hears column.
        """
        weights = near.to(nodes.dtype)
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1.0)
        if self.sender is None or self.pair is None or pairs is None:
            heard = weights @ nodes
        else:
            messages = (self.pair(pairs) + self.sender(nodes)[:, None]).relu_()
            heard = (weights[:, :, None] @ messages).squeeze(2)
        return self.heard(heard) + self.own(nodes), weights


class Gatv2Layer(nn.Module):
    """GATv2 (Brody et al. 2022, equation 7) with features of pairs; heads averaged; every node hears itself too.

    ``out_i = sum_j a_ij L h_j`` with ``a_ij = softmax_j(w . leaky_relu(L h_j + R h_i + E p_ij))``. The pair of a node
    with itself has the mean features of the pairs it hears, as PyG's ``GATv2Conv`` fills them in.
    """

    def __init__(self, nodes: int, pairs: int, out: int, *, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.out = heads, out
        self.sender = nn.Linear(nodes, heads * out)
        self.hearer = nn.Linear(nodes, heads * out)
        self.pair = nn.Linear(pairs, heads * out, bias=False)
        self.attention = nn.Parameter(torch.empty(heads, out))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.xavier_uniform_(self.attention)

    def forward(self, nodes: Tensor, pairs: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """As of ``SageLayer``; the weights are the attention, mean over the heads."""
        worlds, k = nodes.shape[0], nodes.shape[1]
        oneself = torch.eye(k, dtype=torch.bool, device=nodes.device)
        pairs = torch.where(oneself[..., None], _mean_heard(pairs, near)[:, :, None], pairs)
        sent = self.sender(nodes).reshape(worlds, k, self.heads, self.out)
        mixed = (self.pair(pairs) + sent.flatten(2)[:, None]).add_(self.hearer(nodes)[:, :, None])
        scores = nn.functional.leaky_relu_(mixed, SLOPE) @ self._spread()  # (W, K, K, heads)
        scores = scores.masked_fill(~(near | oneself)[..., None], -torch.inf)
        attention = torch.softmax(scores, dim=2)
        heard = attention.permute(0, 3, 1, 2) @ sent.permute(0, 2, 1, 3)  # (W, heads, K, D)
        return heard.mean(1) + self.bias, attention.mean(-1)

    def _spread(self) -> Tensor:
        """The heads' vectors as one matrix (heads D, heads): each meets its own part."""
        own = torch.eye(self.heads, dtype=self.attention.dtype, device=self.attention.device)
        return (self.attention[:, :, None] * own[:, None]).flatten(0, 1)


def _mean_heard(pairs: Tensor, near: Tensor) -> Tensor:
    """Mean features (W, K, P) of the pairs that each node hears; zero where it hears nobody."""
    weights = near.to(pairs.dtype)
    count = weights.sum(-1).clamp_min(1.0)
    return (pairs * weights[..., None]).sum(2) / count[..., None]


class Encoder(nn.Module):
    """Layers of one kind with a rectifier behind each.

    ``kind``: ``sage``, ``gatv2``, or ``none``: no messages at all, nodes and pairs go through as they are (ablation).
    """

    def __init__(self, kind: str, nodes: int, pairs: int, *, hidden: int, layers: int, heads: int = 2) -> None:
        super().__init__()
        self.out = nodes if kind == "none" else hidden
        self.layers = nn.ModuleList()
        for index in range(0 if kind == "none" else layers):
            size = nodes if index == 0 else hidden
            made = SageLayer(size, pairs, hidden) if kind == "sage" else Gatv2Layer(size, pairs, hidden, heads=heads)
            self.layers.append(made)

    def forward(self, nodes: Tensor, pairs: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (W, K, ``out``) of the nodes, and the attention (W, K, K) of the last layer."""
        attention = torch.zeros_like(near, dtype=nodes.dtype)
        for layer in self.layers:
            nodes, attention = layer(nodes, pairs, near)
            nodes = torch.relu(nodes)
        return nodes, attention


def mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the rows that count: (W, K, D) and (W, K) make (W, D); zero where none counts."""
    weights = mask.to(values.dtype)
    return ((weights / weights.sum(1, keepdim=True).clamp_min(1.0))[:, None] @ values).squeeze(1)


def pool(values: Tensor, mask: Tensor) -> Tensor:
    """Mean and maximum over the rows that count: (W, K, D) and (W, K) make (W, 2 D); zero where none counts."""
    most = values.masked_fill(~mask[..., None], -torch.inf).amax(1)
    return torch.cat([mean(values, mask), torch.where(mask.any(1, keepdim=True), most, 0.0)], dim=-1)
