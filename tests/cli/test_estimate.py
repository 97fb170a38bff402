"""``hippo estimate``: one layout; degrees that are wrong; too little memory and the nearest change that fits."""

from __future__ import annotations

import pytest

from hippo.problem.workload import DISPATCHERS

GPU = ("estimate", "--model", "llama-3-8b", "--gpu", "A100-SXM-80GB", "--global-batch", "64")


def test_the_document(hippo):
    answer = hippo(*GPU, "--tp", 4, "--pp", 2, "--dp", 2, "--micro-batch", 1, "--json")
    assert answer.code == 0
    document = answer.document
    assert document["gpus"] == 16
    assert document["fits"] is True
    assert len(document["stages"]) == len(document["memory"]) == 2
    assert 0.2 < document["score"]["mfu"] < 0.8
    assert document["reasons"] == []


def test_the_time_is_that_under_the_runtime_that_is_asked_for(hippo, refused):
    deep = ("--tp", 4, "--pp", 2, "--dp", 2)
    ideal, megatron = (hippo(*GPU, *deep, *more, "--json").document for more in ((), ("--runtime", "megatron")))
    assert (ideal["runtime"], megatron["runtime"]) == ("ideal", "megatron")
    assert ideal["runtime_is"] == "no runtime does this"
    assert ideal["score"]["step_time_s"] < megatron["score"]["step_time_s"]
    assert "under Megatron-LM" in hippo(*GPU, *deep, "--runtime", "megatron").out
    assert "deepspeed cannot express schedule" in refused(*GPU, *deep, "--interleave", 2, "--runtime", "deepspeed")


def test_people_read_time_and_memory(hippo):
    answer = hippo(*GPU, "--tp", 8)
    assert answer.code == 0
    assert "Time per micro-batch" in answer.out
    assert "Peak memory" in answer.out


def test_too_little_memory(hippo):
    answer = hippo(*GPU, "--dp", 2, "--json")
    assert answer.code == 3
    assert answer.document["status"] == "infeasible"
    assert answer.document["missing_bytes"] > 0
    missing, nearest = answer.document["reasons"]
    assert "GB more than" in missing
    options = nearest.split(": ")[1].rstrip(".").split()
    assert hippo(*GPU, "--dp", 2, *options).code == 0  # what is advised does fit


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tp", 0), "--tp"),
        (("--tp", 3), "tp"),
        (("--pp", 100), "--pp"),
        (("--pp", 8, "--interleave", 8), "--pp"),
        (("--dp", 3), "--global-batch"),
        (("--recompute", "some"), "--recompute"),
        (("--recompute", "full:0"), "--recompute"),
        (("--sharding", "zero3"), "--sharding"),
        (("--schedule", "zigzag", "--pp", 2), "zigzag"),
        (("--gpus-per-node", 0), "--gpus-per-node"),
        (("--node-gbps", -1), "inter_node_gbps"),
        (("--tp", 1_000_000, "--dp", 1_000_000), ""),
        (("--ep", 2), "expert"),
        (("--dp", -2), "--dp"),
        (("--micro-batch", 0), "--micro-batch"),
        (("--micro-batch", 1000), "--global-batch"),
        (("--cp", 0), "--cp"),
        (("--interleave", 0), "--interleave"),
        (("--seq", 0), "--seq"),
        (("--global-batch", 0), "--global-batch"),
        (("--precision", "int4"), "int4"),
        (("--node-gbps", "nan"), "gbps"),
        (("--node-gbps", 0), "gbps"),
        (("--profile", "absent.json"), "absent.json"),
        (("--model", "llama-9"), "llama-9"),
    ],
)
def test_wrong_degrees(refused, options, said):
    assert said in refused(*GPU, *options)


MIXTURE = ("estimate", "--model", "mixtral-8x7b", "--gpu", "H100", "--global-batch", "64", "--dp", 8)


def test_uneven_routing_takes_time_and_memory_by_how_experts_are_spread(hippo, tmp_path):
    counts = tmp_path / "counts.json"
    counts.write_text("[8, 8, 2, 2, 2, 2, 4, 4]")  # the fullest of 2, 4 and 8 ranks: 20, 16 and 8 of 32

    def scored(ep: int, *given: object) -> dict:
        return hippo(*MIXTURE, "--ep", ep, *given, "--json").document["score"]

    for ep, skew in ((1, 1.0), (2, 20 / 16), (4, 2.0), (8, 2.0)):
        even, counted, told = scored(ep), scored(ep, "--routing", counts), scored(ep, "--routing", skew)
        assert counted == pytest.approx(told)
        assert (counted["step_time_s"] > even["step_time_s"]) == (skew > 1.0)
        assert (counted["peak_memory_gb"] > even["peak_memory_gb"]) == (skew > 1.0)
    assert "routing as counted" in hippo(*MIXTURE, "--ep", 8, "--routing", counts).out


def test_another_dispatcher_takes_another_time(hippo):
    alone, once, hybrid = (
        hippo(*MIXTURE, "--ep", 8, "--dispatcher", given, "--json").document["score"]["step_time_s"]
        for given in DISPATCHERS
    )
    assert once == hybrid < alone
    assert "tokens by deepep," in hippo(*MIXTURE, "--ep", 8, "--dispatcher", "deepep").out
    told = hippo(*MIXTURE, "--ep", 8, "--dispatcher", "hybridep").out
    assert "tokens by hybridep (assumed to take as long as deepep)" in " ".join(told.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--routing", "power:-1"), "--routing: is no falling power law"),
        (("--routing", "absent.json"), "absent.json"),
        (("--dispatcher", "hybrid"), "--dispatcher: unknown dispatcher 'hybrid'. To fix: did you mean"),
    ],
)
def test_wrong_routing(refused, options, said):
    assert said in refused(*MIXTURE, *options)


def test_a_dense_model_has_no_routing(refused):
    assert "--routing: llama-3-8b has no experts" in refused(*GPU, "--routing", 2)


def test_an_unknown_gpu(refused):
    assert "did you mean" in refused("estimate", "--model", "llama-3-8b", "--gpu", "A100-SXM-80")


def figures(hippo, *options) -> tuple[float, float]:
    """Step time in seconds and memory of the fullest GPU in GB; both are told for layouts that do not fit, too."""
    answer = hippo(*GPU, *options, "--json")
    assert answer.code in (0, 3)
    score = answer.document["score"]
    return score["step_time_s"], score["peak_memory_gb"]


def test_recomputation_buys_memory_with_time(hippo):
    (plain_s, plain_gb), (some_s, some_gb), (full_s, full_gb) = (
        figures(hippo, "--tp", 4, "--micro-batch", 2, "--no-sequence-parallel", "--recompute", kind)
        for kind in ("none", "selective", "full")
    )
    assert plain_s < some_s < full_s
    assert plain_gb > some_gb > full_gb


def test_of_some_layers_computed_again_each_takes_its_time(hippo):
    """32 layers on two stages: as many more seconds for the eighth layer as for the first, and none beyond the
    sixteenth."""
    layout = ("--tp", 4, "--pp", 2, "--micro-batch", 2, "--recompute")
    found = [figures(hippo, *layout, f"full:{number}") for number in (1, 2, 8, 16, 40)]
    seconds, sizes = zip(*found, strict=True)
    assert seconds[1] - seconds[0] == pytest.approx((seconds[2] - seconds[0]) / 7, rel=1e-9)
    assert found[3] == found[4] == figures(hippo, *layout, "full")
    assert list(sizes) == sorted(sizes, reverse=True)


def test_sharding_saves_memory(hippo):
    sizes = [figures(hippo, "--dp", 8, "--sharding", kind)[1] for kind in ("none", "optimizer", "gradients", "full")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_interleaving_shrinks_the_bubble(hippo):
    layout = ("--tp", 8, "--pp", 4, "--global-batch", 16)
    assert figures(hippo, *layout, "--interleave", 2)[0] < figures(hippo, *layout)[0]


def test_context_parallelism_divides_activations(hippo):
    layout = ("--tp", 4, "--seq", 8192)
    assert figures(hippo, *layout, "--cp", 2)[1] < figures(hippo, *layout)[1]


def test_fp8_is_quicker_where_the_gpu_has_it(hippo, refused):
    layout = ("estimate", "--model", "llama-3-8b", "--gpu", "H100", "--tp", 4, "--global-batch", 64)
    half, quarter = (hippo(*layout, "--precision", kind, "--json").document["score"] for kind in ("bf16", "fp8"))
    assert quarter["step_time_s"] < half["step_time_s"]
    assert "fp8" in refused(*GPU, "--tp", 4, "--precision", "fp8")


def test_experts_are_divided(hippo):
    layout = ("estimate", "--model", "mixtral-8x7b", "--gpu", "H100", "--tp", 2, "--dp", 8, "--global-batch", 64)
    spread, whole = (hippo(*layout, *more, "--json").document["score"] for more in (("--ep", 8), ()))
    assert spread["peak_memory_gb"] < whole["peak_memory_gb"] / 2


def test_a_layout_costs_its_rent(hippo):
    score = hippo(*GPU, "--tp", 8, "--json").document["score"]
    assert score["egress_usd_per_step"] == 0
    assert score["usd_per_step"] == pytest.approx(8 * 1.80 * score["step_time_s"] / 3600)
