"""Peaks of a framework's allocator: rows in the form of ``megatron_memory_time.csv`` and of the dry runs' table.

Megatron-LM's rows state their arguments; what an argument is where a row leaves it out is Megatron-LM's own default
(``megatron/training/arguments.py``). The peak is that of the last rank (``torch.cuda.max_memory_allocated``): of what
lies outside of the allocator (context, communicators) and of blocks that it cannot use nothing is in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hippo.cost.calibration import Calibration
from hippo.cost.memory import activations_bytes, library_bytes, stage_memory
from hippo.cost.stage import Layout, StageMemory
from hippo.files import read_text
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Gpu
from hippo.problem.gpus import gpu
from hippo.problem.model import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    LayerKind,
    with_next_tokens,
)
from hippo.problem.routing import Routing
from hippo.problem.runtimes import WHOLE_BLOCKS
from hippo.problem.workload import Software, Workload
from hippo.score.pipelines import table_rows

PEAK = "mem_max_allocated_bytes_last_rank"
DRY_PEAK = "peak_memory_mb"
VOCABULARIES: tuple[tuple[str, int], ...] = (
    (r"bpe/vocab\.json", 50257),
    (r"bert-large-cased", 28996),
    (r"data/vocab\.txt", 30522),
    (r"nemotron_2_256k", 256000),
    (r"Llama2Tokenizer", 32000),
    (r"TikTokenizer|multiMix", 131072),
)
"""Words of a tokenizer by the file or the name that a row gives."""
LEFT_OUT: tuple[tuple[str, str, str], ...] = (
    ("family", r"t5", "an encoder beside a decoder is not represented"),
    ("family", r"multimodal|mimo", "a vision encoder is not represented"),
    ("family", r"hybrid|nemotron", "its Mamba layers are not represented"),
    ("other_args", r"hybrid-layer-pattern", "its Mamba layers are not represented"),
    ("other_args", r"perform-rl-step|grpo", "it generates, too: buffers of inference are not represented"),
    ("other_args", r"export-kd-cfg", "a teacher beside the model is not represented"),
    ("other_args", r"defer-embedding-wgrad", "the head's weight gradients wait, and gradients of logits with them"),
    ("test_case", r"offload", "activations wait in the host's memory"),
    ("test_case", r"release", "the row does not give gpus"),
    ("optimizer", r"muon", "its optimizer (Muon) is not represented"),
)
"""Columns, what they say, and why such a row is not predicted."""
USUAL_GPUS = 8
"""Of Megatron-LM's functional tests (``tests/test_utils/recipes``); 4 of those that end on ``_1node``, on GB200."""
OLD_IMAGES = r"^lts dgxa100_dracooci"
"""Environment and platform whose images have no fused attention where a row leaves it to Transformer Engine."""


DRY_RUN = Workload(
    seq=4096,
    state_bytes_per_parameter=18.0,
    gradient_bytes_per_parameter=4.0,
    routing=Routing(1.5),
)
"""Settings of the dry runs' ``pretrain_deepseek3_671b.yaml``: sums of gradients that are not shared, an optimizer that
is, room in every expert for 1.5 times its share. Which recomputation they leave open was chosen on ten rows: none."""
DRY_RUN_MICRO_BATCHES = 32
DRY_RUN_GPU = "A100-80GB"
"""The rows are of Ascend, and count no more than what is allocated; the device does not matter."""

Rank = tuple[tuple[tuple[Layer, ...], float], ...]
"""Layers of each chunk of a rank, and the micro-batches of it that are in flight at the peak."""


@dataclass(frozen=True)
class MemoryRun:
    """One measured peak. ``ranks``: those of which the fullest is meant."""

    id: str
    family: str
    measured_bytes: float | None
    refusal: str | None
    layout: Layout | None = None
    workload: Workload = Workload()
    gpu: Gpu | None = None
    ranks: tuple[Rank, ...] = ()
    deterministic: bool = False
    ran: bool = True  # False: it was compiled alone
    unknown: tuple[str, ...] = ()

    def allocated_bytes(self, calibration: Calibration) -> float:
        """What the allocator of the fullest rank holds at the peak."""
        return max(
            self._memory(rank, calibration).allocated_bytes
            + library_bytes(
                self._device.family,
                deterministic=self.deterministic,
                grouped=any(layer.expert_parameters for chunk, _ in rank for layer in chunk),
            )
            for rank in self.ranks
        )

    def peak_bytes(self, calibration: Calibration, *, times: int = 1) -> float:
        """What the device holds at the peak, with so many times the micro-batch."""
        return max(self._memory(rank, calibration, times).peak_bytes for rank in self.ranks)

    def _memory(self, rank: Rank, calibration: Calibration, times: int = 1) -> StageMemory:
        assert self.layout is not None
        layout = replace(self.layout, micro_batch=times * self.layout.micro_batch)
        layers = tuple(layer for chunk, _ in rank for layer in chunk)
        whole = stage_memory(layers, layout, self.workload, self._device, calibration)
        one = replace(layout, interleave=1)
        live = sum(live * activations_bytes(chunk, one, self.workload) for chunk, live in rank)
        return replace(whole, activation_bytes=live, live_micro_batches=1.0)

    @property
    def _device(self) -> Gpu:
        assert self.gpu is not None
        return self.gpu


def is_allocated(path: Path) -> bool:
    """Whether a table has one of the two forms."""
    names = read_text(path, what="table of runs").partition("\n")[0].split(",")
    return PEAK in names or DRY_PEAK in names


def cases(path: Path) -> tuple[MemoryRun, ...]:
    """The rows of a file; what a row lacks is its refusal."""
    rows = table_rows(path, what="table of measured peaks", needed=(), told=(PEAK, DRY_PEAK))
    if DRY_PEAK in rows[0]:
        return tuple(_dry_run(row, index) for index, row in enumerate(rows))
    worlds = {row["test_case"]: row["gpus"] for row in rows if row.get("gpus")}
    return tuple(_MemoryRow(row, worlds).case(index) for index, row in enumerate(rows))


def _dry_run(row: Mapping[str, str], index: int) -> MemoryRun:
    """A compiled dry run of DeepSeek-V3 on 1,024 devices, by the settings of ``DRY_RUN``.

    The rank that the authors compile is the first of those with a layer more (``calculate_rank_id``); stages before it
    have a layer less, the last one the further token's block and the head.
    """
    family = "mindspore-dry-run"
    dp, tp, pp, ep = (int(row.get(key) or 0) for key in ("dp", "tp", "pp", "ep"))
    nothing = MemoryRun(f"{family}[{index}]", family, float(row[DRY_PEAK]) * 2**20, None)
    if not all((dp, tp, pp, ep)):
        return replace(nothing, refusal="the row does not give dp, tp, pp and ep")
    layers = with_next_tokens(MODELS["deepseek-v3"]).layers
    blocks = layers[1:-2]
    each, more = divmod(len(blocks), pp)
    stage = min(pp - more, pp - 1)
    start = stage * each + max(0, stage - (pp - more))
    held = (*layers[:1],) * (stage == 0) + blocks[start : start + each + (more > 0)] + layers[-2:] * (stage == pp - 1)
    layout = Layout(tp=tp, dp=dp, micro_batch=1, ep=ep, etp=1, sharding="optimizer", num_stages=pp, replicas=dp)
    live = float(min(pp - stage, DRY_RUN_MICRO_BATCHES))
    return replace(nothing, layout=layout, workload=DRY_RUN, gpu=gpu(DRY_RUN_GPU), ranks=(((held, live),),), ran=False)


@dataclass(frozen=True)
class _MemoryRow:
    """One of Megatron-LM's rows being read; ``worlds``: GPUs of the test cases that say theirs."""

    values: Mapping[str, str]
    worlds: Mapping[str, str]

    def case(self, index: int) -> MemoryRun:
        """The row as a case."""
        family = f"megatron-memory {self.values['family']}"
        peak = float(self.values.get(PEAK) or 0.0) or None
        nothing = MemoryRun(f"{family}[{index}]", family, peak, self._refusal(peak))
        if nothing.refusal is not None:
            return nothing
        layout, device = self._layout(), self._gpu()
        return replace(
            nothing,
            layout=layout,
            workload=self._workload(device),
            gpu=device,
            ranks=(self._rank(layout),),
            deterministic=self._says("deterministic-mode"),
        )

    def _refusal(self, peak: float | None) -> str | None:
        if peak is None:
            return "the row gives no peak"
        for column, pattern, why in LEFT_OUT:
            if re.search(pattern, self.values.get(column) or ""):
                return why
        if self.values.get("recompute-method") == "uniform" and self._number("recompute-num-layers", 1) > 1:
            return "several layers that are computed again as one are not represented"
        for name in ("num-layers", "hidden-size", "num-attention-heads", "seq-length"):
            if not self.values.get(name):
                return f"the row does not give {name}"
        return None if self._vocab(1) else "the row does not give the vocabulary"

    def _world(self) -> int:
        usual = 4 if self.values["test_case"].endswith("_1node") else USUAL_GPUS
        return int(self.values.get("gpus") or self.worlds.get(self.values["test_case"]) or usual)

    def _gpu(self) -> Gpu:
        platform = self.values.get("platform") or ""
        return gpu(next((name for name in ("GB200", "H100") if name.lower() in platform), "A100-80GB"))

    def _layout(self) -> Layout:
        tp, pp = self._number("tensor-model-parallel-size", 1), self._number("pipeline-model-parallel-size", 1)
        cp, ep = self._number("context-parallel-size", 1), self._number("expert-model-parallel-size", 1)
        # No lane is without a micro-batch, whatever the column gpus says of the machine.
        most = max(1, self._number("global-batch-size", 1) // self._number("micro-batch-size", 1))
        lanes = min(most, max(1, self._world() // (tp * pp * cp)))
        # Several instances of the optimizer share it over fewer lanes each.
        dp = max(1, lanes // self._number("num-distributed-optimizer-instances", 1))
        sharding = "optimizer" if self._on("use-distributed-optimizer") else "none"
        if self.values.get("data-parallel-sharding-strategy") == "optim_grads_params":
            sharding = "hybrid"
        return Layout(
            tp=tp,
            dp=dp,
            micro_batch=self._number("micro-batch-size", 1),
            cp=cp,
            ep=ep,
            etp=self._number("expert-tensor-parallel-size", tp),
            recompute=self._recompute(),
            sharding=sharding,
            sequence_parallel=tp > 1 and self._on("sequence-parallel"),
            interleave=self._chunks(pp),
            precision="fp8" if self.values.get("fp8-format") else self._precision(),
            num_stages=pp,
            replicas=lanes,
        )

    def _precision(self) -> str:
        return next((name for name in ("bf16", "fp16") if self._on(name)), "fp32")

    def _recompute(self) -> str:
        kind = self.values.get("recompute-granularity") or "none"
        if kind == "full" and self.values.get("recompute-method") == "block":
            return f"{WHOLE_BLOCKS}{self._number('recompute-num-layers', 1)}"
        if kind != "selective":
            return kind
        return "+".join((self.values.get("recompute-modules") or "core_attn").strip("[]").split())

    def _workload(self, device: Gpu) -> Workload:
        """Sums of gradients are fp32 for bf16, and in 16 bit for fp16 (``validate_args``)."""
        precision = self._precision()
        wide = precision == "fp32" or (precision == "bf16" and not self._says("grad-reduce-in-bf16"))
        summed = 4.0 if wide or self._on("accumulate-allreduce-grads-in-fp32") else 2.0
        state = 16.0 if precision == "fp32" else 14.0 + summed
        software = Software(
            self._attention(device), logit_bytes=10.0 if self._says("cross-entropy-loss-fusion") else 6.0
        )
        return Workload(
            seq=self._number("seq-length", 1),
            precision=precision,
            state_bytes_per_parameter=state,
            gradient_bytes_per_parameter=summed,
            software=software,
        )

    def _attention(self, device: Gpu) -> str:
        """Of Transformer Engine left alone: cuDNN's on Hopper, the flash-attn package's elsewhere."""
        named = self.values.get("attention-backend") or ""
        where = f"{self.values.get('environment')} {self.values.get('platform')}"
        old = not named and re.search(OLD_IMAGES, where) is not None
        if old or named in ("unfused", "local") or self.values.get("transformer-impl") == "local":
            return "unfused"
        return "tuned" if named == "fused" or (named != "flash" and device.family == "hopper") else "flash2"

    def _rank(self, layout: Layout) -> Rank:
        """Chunks of the last rank: of the last one a micro-batch is in flight, of those before it a whole group."""
        blocks, pp, chunks = self._blocks(layout), layout.num_stages, layout.interleave
        text = self.values.get("pipeline-model-parallel-layout") or ""
        if text:
            stages = _stages(text)
            before = [sum(stage.count("t") for stage in stages[:at]) for at in range(len(stages) + 1)]
            mine = [blocks[before[at] : before[at + 1]] for at in range(pp - 1, len(stages), pp)]
        else:
            mine = self._dealt([*blocks], pp, chunks)
        mtp = self._number("mtp-num-layers", 0)
        vocab = self._vocab(layout.tp)
        head = Layer(LayerKind.HEAD, self._hidden, vocab=vocab, norm_bias=self._norm_bias, tied=not self._untied)
        ends = [*[replace(blocks[-1], vocab=vocab)] * mtp, head]
        begins = [self._embedding(layout.tp)] if pp == 1 or mtp else []
        whole = [tuple(chunk) for chunk in mine]
        whole[-1] = (*begins, *whole[-1], *ends)
        said = re.search(r"microbatch-group-size-per-virtual-pipeline-stage=(\d+)", self.values["other_args"])
        waves = max(1, self._number("global-batch-size", 1) // (layout.micro_batch * layout.replicas))
        group = min(waves, int(said[1]) if said is not None else pp)
        return (*((chunk, float(group)) for chunk in whole[:-1]), (whole[-1], 1.0))

    def _dealt(self, blocks: list[Layer], pp: int, chunks: int) -> list[list[Layer]]:
        """Blocks of each chunk of the last rank; the embedding and the loss may count as a block each."""
        first, last = (self._number(f"decoder-{end}-pipeline-num-layers", 0) for end in ("first", "last"))
        loss = self._on("account-for-loss-in-pipeline-split")
        if first or last:
            held = last or (len(blocks) - first) // max(1, pp - 1)
            return [blocks[len(blocks) - held :]]
        slots = [None] * self._on("account-for-embedding-in-pipeline-split") + blocks + [None] * loss
        each = len(slots) // (pp * chunks)
        starts = ((chunk * pp + pp - 1) * each for chunk in range(chunks))
        return [[layer for layer in slots[start : start + each] if layer is not None] for start in starts]

    def _chunks(self, pp: int) -> int:
        if text := self.values.get("pipeline-model-parallel-layout"):
            return max(1, len(_stages(text)) // pp)
        if each := self._number("num-layers-per-virtual-pipeline-stage", 0):
            return max(1, self._number("num-layers", 1) // (each * pp))
        return self._number("num-virtual-stages-per-pipeline-rank", 1)

    def _blocks(self, layout: Layout) -> list[Layer]:
        """Every block of the decoder."""
        total = self._number("num-layers", 1)
        dense = self._block(None)
        experts = self._experts()
        if experts is None:
            return [dense] * total
        pattern = self.values.get("moe-layer-freq") or "1"
        chosen = _pattern(pattern, total)
        return [self._block(experts) if each else dense for each in chosen]

    def _experts(self) -> Experts | None:
        count = self._number("num-experts", 0)
        if not count:
            return None
        shared = self._number("moe-shared-expert-intermediate-size", 0)
        return Experts(
            count,
            self._number("moe-router-topk", 2),
            self._number("moe-ffn-hidden-size", self._ffn),
            shared=1 if shared else 0,
            shared_width=shared or None,
        )

    def _block(self, experts: Experts | None) -> Layer:
        heads = self._number("num-attention-heads", 1)
        bias = not self._on("disable-bias-linear")
        latent = None
        if self._on("multi-latent-attention"):
            latent = LatentAttention(
                self._said("q-lora-rank"),
                self._said("kv-lora-rank") or 32,
                self._said("qk-head-dim") or 128,
                self._said("qk-pos-emb-head-dim") or 64,
                self._said("v-head-dim") or 128,
            )
        groups = self._number("num-query-groups", heads) if self._on("group-query-attention") else heads
        attention = Attention(
            heads,
            groups,
            self._number("kv-channels", self._hidden // heads),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=self._says("qk-layernorm") and latent is None,
            latent=latent,
        )
        forward = FeedForward(self._ffn, self._on("swiglu"), bias=bias and experts is None, experts=experts)
        return Layer(
            LayerKind.BLOCK, self._hidden, attention=attention, feed_forward=forward, norm_bias=self._norm_bias
        )

    def _embedding(self, tp: int) -> Layer:
        learned = (self.values.get("position-embedding-type") or "learned_absolute") == "learned_absolute"
        positions = (self._said("max-position-embeddings") or 0) if learned else 0
        return Layer(LayerKind.EMBEDDING, self._hidden, vocab=self._vocab(tp), positions=positions)

    def _vocab(self, tp: int) -> int:
        """Words, padded so that each rank has a whole multiple (``_vocab_size_with_padding``); 0: not known."""
        told = " ".join(self.values.get(key) or "" for key in ("vocab-file", "tokenizer-type", "other_args"))
        known = next((size for pattern, size in VOCABULARIES if re.search(pattern, told)), 0)
        multiple = self._number("make-vocab-size-divisible-by", 128) * tp
        return math.ceil(self._number("vocab-size", known) / multiple) * multiple

    @property
    def _hidden(self) -> int:
        return self._number("hidden-size", 1)

    @property
    def _ffn(self) -> int:
        usual = int(4 * self._hidden * 2 / 3 / 64) * 64 if self._on("swiglu") else 4 * self._hidden
        return self._number("ffn-hidden-size", usual)

    @property
    def _norm_bias(self) -> bool:
        return not self._says("normalization=RMSNorm")

    @property
    def _untied(self) -> bool:
        return self._on("untie-embeddings-and-output-weights")

    def _says(self, words: str) -> bool:
        return f"--{words}" in self.values.get("other_args", "")

    def _said(self, name: str) -> int | None:
        found = re.search(rf"--{name}=(\d+)(?: |$)", self.values.get("other_args", ""))
        return int(found[1]) if found else None

    def _on(self, name: str) -> bool:
        return self.values.get(name) == "True"

    def _number(self, name: str, otherwise: int) -> int:
        text = self.values.get(name) or ""
        return int(float(text)) if text else otherwise


def _stages(layout: str) -> list[str]:
    """Stages of a layout in Megatron-LM's grammar, written out: ``Et|(tt|)*2mL`` is Et, tt, tt, mL."""
    text = layout.replace(",", "")
    while (found := re.search(r"\(([^()]*)\)\*(\d+)", text)) is not None:
        text = text[: found.start()] + found[1] * int(found[2]) + text[found.end() :]
    text = re.sub(r"(\w)\*(\d+)", lambda each: each[1] * int(each[2]), text)
    return text.split("|")


def _pattern(text: str, total: int) -> Sequence[bool]:
    """Which of the blocks hold experts: every n-th, or as a list says (``moe_layer_freq``)."""
    if text.isdigit():
        return [at % int(text) == 0 for at in range(total)]
    found: list[bool] = []
    for value, times in re.findall(r"\[(\d)\](?:\*(\d+))?", text):
        found += [value == "1"] * int(times or 1)
    return found[:total] + [True] * (total - len(found))
