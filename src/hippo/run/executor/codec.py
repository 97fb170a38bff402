"""What crosses the WAN in fewer bits: bf16, or eight bits with one scale per message (fp8 e4m3, int8).

The scale makes the largest magnitude of the message the largest that the format holds. Activations and their gradients
alike; gradients of weights, and everything inside a domain, travel as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from hippo.run.work import Transfer, Work

Tensor = torch.Tensor
SCALE_BYTES = 4
LARGEST: Mapping[str, float] = MappingProxyType({"fp8": 448.0, "int8": 127.0})


class Codec:
    """One kind of compression; a message is a tensor of bytes."""

    def __init__(self, kind: str) -> None:
        assert kind == "bf16" or kind in LARGEST, kind
        self.kind = kind

    def room(self, like: Tensor) -> Tensor:
        """Where a message for such a tensor fits."""
        size = 2 * like.numel() if self.kind == "bf16" else SCALE_BYTES + like.numel()
        return torch.empty(size, dtype=torch.uint8, device=like.device)

    @torch.no_grad()
    def encode(self, tensor: Tensor) -> Tensor:
        """The message."""
        flat = tensor.detach().reshape(-1)
        if self.kind == "bf16":
            return flat.to(torch.bfloat16).view(torch.uint8)
        values = flat.float()
        scale = values.abs().amax().clamp_min(torch.finfo(torch.float32).tiny) / LARGEST[self.kind]
        scaled = values / scale
        packed = scaled.round().to(torch.int8) if self.kind == "int8" else scaled.to(torch.float8_e4m3fn)
        return torch.cat([scale.reshape(1).view(torch.uint8), packed.view(torch.uint8)])

    @torch.no_grad()
    def decode(self, message: Tensor, into: Tensor) -> None:
        """Writes what a message says."""
        if self.kind == "bf16":
            into.copy_(message.view(torch.bfloat16).view_as(into))
            return
        scale = message[:SCALE_BYTES].clone().view(torch.float32)
        body = message[SCALE_BYTES:].clone()
        values = body.view(torch.int8 if self.kind == "int8" else torch.float8_e4m3fn).float()
        into.copy_((values * scale).view_as(into))


def codec_of(work: Work, transfer: Transfer) -> Codec | None:
    """How a message is packed; None: as it is. A stand-in's messages have their size already."""
    if work.whole_stages:
        return None
    pair = work.seats[transfer.source].domain, work.seats[transfer.destination].domain
    kinds = {(one.source, one.destination): one.kind for one in work.plan.compression}
    kind = kinds.get(pair, "none")
    return None if kind == "none" or pair[0] == pair[1] else Codec(kind)
