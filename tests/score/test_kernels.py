"""Tables of measured kernels: read as they are, odd rows left out and counted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hippo.cost.calibration import CALIBRATION
from hippo.cost.kernels import Kernels, roofline_s
from hippo.cost.surfaces import product_slowdown
from hippo.errors import InputError
from hippo.problem.gpus import gpu
from hippo.score.kernels import KernelErrors, kernel_errors, kernel_folder, read_table

H100 = gpu("H100")
PRODUCTS = "system,gemm_dtype,m,n,k,latency_ms_best,latency_ms_median,kernels\n"
EXPERTS = (
    "system,moe_dtype,distribution,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "latency_ms_best,kernels\n"
)
CORES = (
    "system,framework,kernel_source,attn_dtype,kv_cache_dtype,batch_size,isl,num_heads,num_key_value_heads,head_dim,"
    "window_size,latency_ms_median,versions\n"
)


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / name, "wt", encoding="utf-8") as file:
        file.write(text)
    return folder


def of(found: tuple[KernelErrors, ...], group: str) -> KernelErrors:
    return next(each for each in found if each.group == group)


def test_products_are_held_against_those_of_the_model(tmp_path: Path):
    """One row takes as long as is predicted, one twice that: in the median a quarter off."""
    predicted_ms = 1e3 * Kernels(H100, "bf16", CALIBRATION).gemm_s(4096, 4096, 4096)
    rows = [f"h100_sxm,bfloat16,4096,4096,4096,{ms},{ms},1\n" for ms in (predicted_ms, 2 * predicted_ms)]
    folder = written(tmp_path, "gemm.csv.gz", PRODUCTS + "".join(rows))
    found = of(kernel_errors(folder), "bfloat16, large")
    assert (found.n, found.left_out) == (2, 0)
    assert found.median == pytest.approx(0.25)
    assert found.bias == pytest.approx(-0.25)
    table_ms = 1e3 * roofline_s(H100, "bf16", (4096, 4096, 4096)) * product_slowdown("hopper", "bf16", *[4096.0] * 3)
    by_table = [abs(table_ms / ms - 1) for ms in (predicted_ms, 2 * predicted_ms)]
    assert found.by_table == pytest.approx(sum(by_table) / 2)


def test_rows_that_cannot_be_are_left_out_with_their_reason(tmp_path: Path):
    least_ms = 1e3 * roofline_s(H100, "bf16", (4096, 4096, 4096))
    rows = [
        f"h100_sxm,bfloat16,4096,4096,4096,{least_ms / 2},1,1\n",
        "h100_sxm,bfloat16,4096,4096,4096,,,1\n",
        "h100_sxm,bfloat16,4096,4096,4096,nan,nan,1\n",
        "rtx_pro_6000_server,bfloat16,4096,4096,4096,1,1,1\n",
    ]
    found = kernel_errors(written(tmp_path, "gemm.csv.gz", PRODUCTS + "".join(rows)))
    large = of(found, "bfloat16, large")
    assert (large.n, large.left_out, large.why) == (0, 3, "faster than the peak; no number")
    assert of(found, "all").why == "the catalogue lacks this GPU"


def test_experts_and_attention_have_groups_of_their_own(tmp_path: Path):
    experts = EXPERTS + "h100_sxm,bfloat16,balanced,4096,4096,1536,8,128,1,8,1,1\n"
    experts += "a100_sxm,bfloat16,balanced,4096,4096,1536,8,128,1,8,1,1\n"
    folder = written(tmp_path, "moe_experts.csv.gz", experts)
    cores = CORES + "h100_sxm,VLLM,vllm_flash_attn_fa2,bfloat16,bfloat16,1,4096,32,8,128,0,1,1\n"
    cores += "h100_sxm,VLLM,vllm_flash_attn_fa3,bfloat16,bfloat16,1,4096,32,8,128,1024,1,1\n"
    found = kernel_errors(written(folder, "context_attention.csv.gz", cores))
    assert {each.n for each in found if each.group == "bfloat16, width >= 1024, < 512 tokens each"} == {0, 1}
    odd = next(each for each in found if each.gpu.startswith("A100"))
    assert (odd.n, odd.why) == (0, "called odd by its publishers")
    old, new = of(found, "flash2, heads of 128"), of(found, "tuned, heads of 128, window")
    assert old.bias is not None
    flops = 4096**2 / 2 * 4 * 32 * 128
    assert old.bias == pytest.approx(Kernels(H100, "bf16", CALIBRATION).fused_attention_s(flops, False) / 1e-3 - 1)
    assert new.n == 1


def test_a_folder_may_hold_them_itself_or_under_published(tmp_path: Path):
    assert kernel_folder(tmp_path) is None
    there = written(tmp_path / "published" / "kernels", "gemm.csv.gz", PRODUCTS)
    assert kernel_folder(tmp_path) == there


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"a,b\n1,2\n", mtime=0), gzip.compress(b"", mtime=0)])
def test_what_is_no_table_of_kernels_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "gemm.csv.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"gemm\.csv\.gz.*To fix: give the"):
        read_table(tmp_path / "gemm.csv.gz")
