"""A policy file: the same answers as torch, at any size, without torch; and what is refused."""

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.network.observations import drawn, stirred
from torch import Tensor, nn

from hippo.errors import InputError
from hippo.network.hi_ppo.serving import SHIPPED, Policy, shipped
from hippo.network.observation.features import Observation
from hippo.network.train import export

torch.set_num_threads(1)
AGENT = stirred("sage", hidden=8)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "small.policy"
    export.save(path, AGENT, steps=7)
    return path


def assert_same(policy: Policy, agent: Any, seen: Any) -> None:
    """The policy's answers are the agent's."""
    answer = policy.act(Observation(*(each.numpy() for each in seen)))
    with torch.no_grad():
        heads = agent(seen)
    logits = torch.where(seen.option_mask, heads.logits, export.NEVER)
    expected = torch.log_softmax(logits, -1)
    kept = seen.option_mask.numpy()
    np.testing.assert_allclose(answer.log_probs[kept], expected.numpy()[kept], rtol=1e-4, atol=1e-4)
    assert (answer.log_probs[~kept] < -1e7).all()
    np.testing.assert_allclose(answer.value, heads.value, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(answer.attention, heads.attention, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("worlds", "domains", "options"), [(1, 2, 1), (1, 8, 24), (1, 64, 24), (7, 16, 5), (1, 1, 1), (3, 3, 3)]
)
def test_answers_are_those_of_torch_at_every_size(written: Path, worlds: int, domains: int, options: int) -> None:
    assert_same(Policy.load(written), AGENT, drawn(worlds, domains, options, fewest=min(2, domains)))


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["gatv2", "none"])
def test_other_encoders_are_exported_too(encoder: str, tmp_path: Path) -> None:
    agent = stirred(encoder)
    export.save(tmp_path / "a.policy", agent)
    assert_same(Policy.load(tmp_path / "a.policy"), agent, drawn(3, 11, 5))


def test_a_policy_says_how_it_was_made_and_names_no_file_of_the_machine(written: Path) -> None:
    assert Policy.load(written).meta["made"] == {"steps": 7}
    with zipfile.ZipFile(written) as folder:
        inside = b"".join(folder.read(name) for name in folder.namelist())
    assert b".py" not in inside
    assert str(Path.cwd()).encode() not in inside


def test_the_same_graphs_make_the_same_file(written: Path, tmp_path: Path) -> None:
    graphs, meta = contents(written)
    export.write(tmp_path / "again.policy", graphs, meta["made"])
    assert (tmp_path / "again.policy").read_bytes() == written.read_bytes()


def test_the_shipped_policy_is_small_and_serves_sixty_four_domains() -> None:
    assert SHIPPED.stat().st_size < 2_000_000
    seen = drawn(2, 64, 24)
    answer = shipped().act(Observation(*(each.numpy() for each in seen)))
    np.testing.assert_allclose(np.exp(answer.log_probs).sum(-1), 1.0, rtol=1e-5)
    assert np.isfinite(answer.value).all()


def test_serving_starts_without_torch() -> None:
    program = (
        "import sys; from hippo.network.hi_ppo.serving import shipped; shipped(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


class Doubled(nn.Module):
    def forward(self, numbers: Tensor) -> Tensor:
        return 2.0 * numbers


def test_other_graphs_live_in_the_same_file(written: Path, tmp_path: Path) -> None:
    made = export.graph(
        Doubled(), [torch.ones(3, 2)], inputs=["numbers"], outputs=["twice"], axes={"numbers": {0: "N"}}
    )
    graphs, _ = contents(written)
    export.write(tmp_path / "more.policy", {**graphs, "doubled": made})
    policy = Policy.load(tmp_path / "more.policy")
    assert policy.graphs == ("doubled", "global")
    (found,) = policy.run("doubled", {"numbers": np.full((5, 2), 1.5, np.float32)})
    assert found.tolist() == [[3.0, 3.0]] * 5
    with pytest.raises(InputError, match="arrange"):
        policy.run("arrange", {})


def contents(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Graphs and meta of a policy file."""
    with zipfile.ZipFile(path) as folder:
        meta = json.loads(folder.read("meta.json"))
        return {name: folder.read(f"{name}.onnx") for name in meta["graphs"]}, meta


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with another meta."""
    graphs, meta = contents(path)
    change(meta)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as folder:
        folder.writestr("meta.json", json.dumps(meta))
        for name, data in graphs.items():
            folder.writestr(f"{name}.onnx", data)
    return held.getvalue()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda meta: meta.update(hippo_policy=2), "another version"),
        (lambda meta: meta["features"]["options"].pop(), "features.options"),
        (lambda meta: meta["features"]["nodes"].reverse(), "features.nodes"),
        (lambda meta: meta.pop("features"), "features.nodes"),
        (lambda meta: meta["graphs"]["global"].update(sha256="0"), "graphs.global"),
        (lambda meta: meta.update(graphs={}), "upper agent"),
        (lambda meta: meta["graphs"].update(other={"sha256": "0"}), "not a policy file"),
        (lambda meta: meta.clear(), "not a policy file"),
    ],
)
def test_a_foreign_policy_is_refused(written: Path, tmp_path: Path, change: Any, said: str) -> None:
    path = tmp_path / "foreign.policy"
    path.write_bytes(rewritten(written, change))
    with pytest.raises(InputError, match=said) as error:
        Policy.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"[1, 2]", bytes(1000)])
def test_what_is_no_policy_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "no.policy").write_bytes(content)
    with pytest.raises(InputError, match="not a policy file"):
        Policy.load(tmp_path / "no.policy")


def test_a_graph_that_is_none_is_refused_though_its_hash_is_right(tmp_path: Path) -> None:
    export.write(tmp_path / "no.policy", {"global": b"not a graph"})
    with pytest.raises(InputError, match="graph cannot be read"):
        Policy.load(tmp_path / "no.policy")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Policy.load(tmp_path / "none.policy")
    with pytest.raises(InputError, match="cannot read"):
        Policy.load(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0.0, 1.0, exclude_max=True), value=st.integers(1, 255), cut=st.booleans())
def test_damage_is_noticed_or_harmless(written: Path, tmp_path: Path, where: float, value: int, cut: bool) -> None:
    """A byte changed, or the rest lost: refused, or (a byte that says nothing) the same graphs as before."""
    data = bytearray(written.read_bytes())
    place = int(where * len(data))
    data[place] ^= value
    path = tmp_path / "damaged.policy"
    path.write_bytes(bytes(data[:place]) if cut else bytes(data))
    try:
        found = Policy.load(path)
    except InputError:
        return
    assert not cut
    assert found.meta["graphs"] == Policy.load(written).meta["graphs"]
