"""A policy: the same answers as torch, at any size, without torch; and what is refused."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.network.observations import drawn, stirred

from hippo.errors import InputError
from hippo.learn.serving import NEVER
from hippo.network.hi_ppo.serving import FORM, SHIPPED, Policy, shipped
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
    logits = torch.where(seen.option_mask, heads.logits, NEVER)
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


@pytest.mark.parametrize("encoder", ["gatv2", "none"])
def test_other_encoders_answer_as_torch_too(encoder: str, tmp_path: Path) -> None:
    agent = stirred(encoder)
    export.save(tmp_path / "a.policy", agent)
    assert_same(Policy.load(tmp_path / "a.policy"), agent, drawn(3, 11, 5))


def test_a_policy_says_how_it_was_made(written: Path) -> None:
    assert Policy.load(written).made == {"steps": 7}


def test_the_same_networks_make_the_same_file(written: Path, tmp_path: Path) -> None:
    arrays, made = FORM.read(written)
    assert FORM.packed(arrays, **made) == written.read_bytes()


def recorded() -> list[tuple[str, dict[str, Any], list[Any]]]:
    """What the shipped policy was asked in runs over moving networks, and what onnxruntime answered by the graphs that
    it was exported to before its arrays were (``recorded.npz``): network, inputs by name, outputs."""
    with np.load(Path(__file__).with_name("recorded.npz")) as stored:
        entries = sorted({tuple(key.split("/")[:2]) for key in stored.files})
        found = []
        for number, name in entries:
            inside = {key.removeprefix(f"{number}/{name}/"): stored[key] for key in stored.files if key[:2] == number}
            asked = {key.removeprefix("asked/"): each for key, each in inside.items() if key.startswith("asked/")}
            found.append((name, asked, [inside[f"answered/{n}"] for n in range(len(inside) - len(asked))]))
    return found


def test_the_shipped_policy_decides_as_onnxruntime_did() -> None:
    policy, asked = shipped(), recorded()
    assert {name for name, *_ in asked} == set(policy.networks)
    for name, inputs, answers in asked:
        for new, old in zip(policy.run(name, inputs), answers, strict=True):
            scale = max(1.0, float(np.abs(old[old > NEVER / 2]).max()))
            np.testing.assert_allclose(new, old, rtol=0, atol=1e-6 * scale)
            assert (new.argmax(-1) == old.argmax(-1)).all()


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


def test_constructing_networks_live_in_the_same_file(written: Path) -> None:
    assert tuple(shipped().networks) == ("arrange", "construct", "global", "recipe")
    policy = Policy.load(written)
    assert tuple(policy.networks) == ("global",)
    with pytest.raises(InputError, match="arrange"):
        policy.run("arrange", {})


def test_a_policy_without_an_upper_agent_is_refused(written: Path, tmp_path: Path) -> None:
    (tmp_path / "no.policy").write_bytes(FORM.packed({}))
    with pytest.raises(InputError, match="upper agent"):
        Policy.load(tmp_path / "no.policy")


@pytest.mark.parametrize("name", ["option.weight", "judge.2.bias", "encoder.layers.0.own.weight"])
def test_a_network_of_another_shape_is_refused(written: Path, tmp_path: Path, name: str) -> None:
    arrays, _ = FORM.read(written)
    path = tmp_path / "other.policy"
    for changed in (arrays[f"global/{name}"][..., :-1], arrays[f"global/{name}"] * np.float32("nan")):
        path.write_bytes(FORM.packed(arrays | {f"global/{name}": changed}))
        with pytest.raises(InputError, match="global: network cannot be used"):
            Policy.load(path)
    path.write_bytes(FORM.packed({key: each for key, each in arrays.items() if key != f"global/{name}"}))
    if name.endswith("weight"):
        with pytest.raises(InputError, match="global: network cannot be used"):
            Policy.load(path)


def test_a_network_that_nobody_asks_is_refused(written: Path, tmp_path: Path) -> None:
    arrays, _ = FORM.read(written)
    (tmp_path / "more.policy").write_bytes(FORM.packed(arrays | {"other/weight": np.ones(1)}))
    with pytest.raises(InputError, match="other: network cannot be used"):
        Policy.load(tmp_path / "more.policy")


@pytest.mark.parametrize("group", ["nodes", "edges", "context", "options", "horizons"])
def test_a_policy_for_other_features_is_refused(written: Path, tmp_path: Path, group: str) -> None:
    other = replace(FORM, features={**FORM.features, group: FORM.features[group][::-1]})
    (tmp_path / "foreign.policy").write_bytes(other.packed(FORM.read(written)[0]))
    with pytest.raises(InputError, match=f"features.{group}") as error:
        Policy.load(tmp_path / "foreign.policy")
    assert str(tmp_path / "foreign.policy") in str(error.value)
