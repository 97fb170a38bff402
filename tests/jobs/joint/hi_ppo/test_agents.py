"""The agents that share out a site: the same worlds and answers from the same numbers, the same policy in torch and in
numpy, nobody going round in circles, a resumed run that is the same run."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from hippo.errors import HippoError
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms
from hippo.jobs.joint.env import JOBS, WorldEnv, prices
from hippo.jobs.joint.hi_ppo import policy as served
from hippo.jobs.joint.hi_ppo.learner import SiteAgents, decide, tensors
from hippo.jobs.joint.hi_ppo.settings import WorldLearning, parse_settings
from hippo.jobs.joint.hi_ppo.train import POLICY, learned, packed
from hippo.jobs.joint.hi_ppo.worlds import BESIDE, RuleCurve, WorldBatch, beside, by_rule, paid
from hippo.jobs.joint.moment import Moment
from hippo.jobs.joint.play import opened, play_jointly
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.traces.elastic import usual_trainings
from hippo.learn.checkpoint import load
from hippo.problem.catalogue.clusters import cluster

DOCUMENTS = """
ppo: {lr: 3.0e-4, gamma: 0.99, gae_lambda: 0.95, clip_range: 0.2, entropy_coef: 0.01, value_coef: 0.5,
      max_grad_norm: 0.5, target_kl: 0.02, num_steps: 2048, update_epochs: 10, minibatch_size: 256}
gnn: {type: GraphSAGE, num_layers: 2, hidden_dim: 128, out_dim: 128, aggregation: mean}
"""


def table() -> OfferTable:
    """One kind of training: 1 to 32 GPUs in one domain, in two shapes each, or twice as many in two."""
    rows = [(size, 0, block) for size in (1, 2, 4, 8, 16, 32) for block in {1, min(size, 8)}] + [(8, 8, 8), (16, 16, 8)]
    gpus = np.zeros((len(rows), MOST_PARTS), np.int64)
    gpus[:, :2] = [row[:2] for row in rows]
    block = np.array([row[2] for row in rows])
    rate = gpus.sum(axis=1) / 32.0 * np.where(block > 1, 1.0, 0.95)
    alone = gpus[:, 1] == 0
    grid = np.where(alone[:, None, None], 1.0, np.array([0.3, 0.8, 0.95])[None, None]) * rate[:, None, None]
    return OfferTable(
        kinds=usual_trainings(("llama-3.2-1b",)),
        kind=np.zeros(len(rows), np.int64),
        parts=(gpus > 0).sum(axis=1),
        gpus=gpus,
        block=block,
        ring=np.zeros(len(rows), np.bool_),
        layout=np.ones((len(rows), 3), np.int64),
        rate=np.repeat(grid, 2, axis=1),
        hop_bytes=np.where(alone, 0.0, 1e7),
        memory_left=np.full(len(rows), 0.2),
        inside_comm=np.where(block > 1, 0.02, 0.05),
        bandwidth_bytes_per_s=np.array([1e7, 1e8, 1e9]),
        latency_s=np.array([0.001, 0.1]),
        tokens_per_s=np.array([2e5]),
        state_bytes=np.array([2e10]),
    )


def scenes(jobs: int = 14, **terms: object) -> DrawnScenes:
    site = JobSite.of(cluster("four-hubs"))
    return DrawnScenes(WorldTerms(site, ("mixed", "steady"), jobs, (1.0,), **terms), table(), 3)  # type: ignore[arg-type]


def small(out: Path, **run: object) -> WorldLearning:
    found = WorldLearning()
    return replace(
        found,
        ppo=replace(found.ppo, steps_per_update=64, minibatch=32),
        network=replace(found.network, hidden=8, layers=1),
        worlds=replace(found.worlds, jobs=10, validation=2),
        run=replace(found.run, updates=3, parallel=4, value_updates=1, checkpoint_every=1, validate_every=2, **run),
    )


def test_the_documents_configuration_loads_as_it_stands():
    found = parse_settings(yaml.safe_load(DOCUMENTS))
    ppo, network = found.ppo, found.network
    assert (ppo.learning_rate, ppo.learning_rate_end, ppo.gamma, ppo.gae_lambda, ppo.clip) == (
        3e-4,
        3e-4,
        0.99,
        0.95,
        0.2,
    )
    assert (ppo.entropy, ppo.value, ppo.max_grad_norm, ppo.target_kl) == (0.01, 0.5, 0.5, 0.02)
    assert (ppo.steps_per_update, ppo.passes, ppo.minibatch) == (2048, 10, 256)
    assert (network.encoder, network.layers, network.hidden, network.out) == ("GraphSAGE", 2, 128, 128)


def shipped_settings() -> WorldLearning:
    path = Path(__file__).parents[4] / "configs" / "algo" / "world.yaml"
    document = yaml.safe_load(path.read_text())
    assert document.pop("learner") == "world"
    return parse_settings(document)


def test_the_configuration_that_ships_says_the_defaults():
    assert shipped_settings() == WorldLearning()


def test_the_agents_that_ship_were_made_by_the_configuration_that_ships_and_are_its_start():
    """No update of that run was better than the rule that it begins as: what ships is what its seed draws."""
    content = (files("hippo.jobs.joint.hi_ppo") / served.SHIPPED).read_bytes()
    arrays, made = served.FORM.unpacked(content, served.SHIPPED)
    settings = shipped_settings()
    assert made["settings"] == json.loads(json.dumps(asdict(settings)))
    torch.manual_seed(settings.run.seed)
    start, _ = served.FORM.unpacked(packed(SiteAgents(settings), settings), "here")
    assert arrays.keys() == start.keys()
    assert all(np.array_equal(arrays[name], start[name]) for name in arrays)


def test_an_unknown_key_is_refused_by_name():
    with pytest.raises(HippoError, match="hiden"):
        parse_settings({"network": {"hiden": 8}})


def test_lists_have_any_length_but_none():
    found = parse_settings({"worlds": {"models": ["llama-3-8b"], "loads": [1.0, 1.1]}}).worlds
    assert (found.models, found.loads) == (("llama-3-8b",), (1.0, 1.1))
    with pytest.raises(HippoError, match="a list of numbers"):
        parse_settings({"worlds": {"loads": []}})
    with pytest.raises(HippoError, match="a list of words"):
        parse_settings({"worlds": {"models": []}})


def test_equal_numbers_make_equal_worlds():
    one, two, other = scenes().scene(5), scenes().scene(5), scenes().scene(6)
    assert np.array_equal(one.workload.arrival_s, two.workload.arrival_s)
    assert one.site == two.site or np.array_equal(one.site.history.time_s, two.site.history.time_s)  # type: ignore[union-attr]
    assert not np.array_equal(one.workload.arrival_s, other.workload.arrival_s)


def test_torch_and_numpy_score_alike():
    torch.manual_seed(1)
    policy = SiteAgents(replace(WorldLearning(), network=replace(WorldLearning().network, hidden=16)))
    for each in policy.parameters():  # the last layers begin at zero
        torch.nn.init.normal_(each, std=0.3)
    arrays, _ = served.FORM.unpacked(packed(policy, WorldLearning()), "here")
    agents, batch = served.Agents.of(arrays), WorldBatch(scenes(), 3, 4)
    rng = np.random.default_rng(0)
    for _ in range(25):
        with torch.no_grad():
            seen = tensors(batch.sights)
            thought = policy.upper.think(seen)
            whom = policy.upper.whom(thought).numpy()
        found = decide(policy, batch, rng)
        with torch.no_grad():
            whither = policy.upper.whither(thought, torch.from_numpy(found.action[:, 0]), seen).numpy()
            how = policy.lower.scores(seen.shapes).numpy()
        for each, env in enumerate(batch.envs):
            nodes, rows, around, advised = served.think(agents.upper, env.sight)
            np.testing.assert_allclose(served.whom(agents.upper, rows, around, advised), whom[each], atol=1e-4)
            slot = int(found.action[each, 0])
            if slot < JOBS:
                places = served.whither(agents.upper, nodes, rows[slot], around, env.sight.places, env.sight.where)
                there = batch.sights.may_place[each]
                np.testing.assert_allclose(places[there], whither[each][there], atol=1e-4)
            np.testing.assert_allclose(served.how(agents.lower, env.sight.shapes), how[each], atol=1e-4)
        batch.answer(found.action)


def test_whatever_is_answered_nobody_goes_round_in_circles():
    torch.manual_seed(2)
    batch, rng = WorldBatch(scenes(), 6, 4, endless=False), np.random.default_rng(2)
    policy = SiteAgents(WorldLearning())
    for _ in range(1200):
        if batch.over:
            break
        batch.answer(decide(policy, batch, rng).action)
    assert batch.over
    for env in batch.envs:
        mark, row = env.world.mark, env.world.job
        ended = mark[:, c.STATUS] == c.DONE
        stayed_s = (row[:, c.FINISH] - row[:, c.ARRIVAL])[ended]
        assert (mark[ended, c.STOPS] <= stayed_s / observe.DWELL_S + len(mark)).all()


def test_worlds_go_on_from_what_was_kept_of_them():
    policy, rng = SiteAgents(WorldLearning()), np.random.default_rng(4)
    batch = WorldBatch(scenes(), 3, 4, regret=True)
    for _ in range(40):
        batch.answer(decide(policy, batch, rng).action)
    other = WorldBatch(scenes(), 3, 4, regret=True)
    other.restore(batch.state())
    for mine, its in zip(batch.sights[:4], other.sights[:4], strict=True):
        assert np.array_equal(mine, its)
    assert np.allclose(batch.paid, other.paid)
    assert other.state()["first"] == batch.state()["first"]


def test_beside_the_rule_the_rule_regrets_nothing():
    """Rewards are told beside what the rule pays meanwhile: whoever answers as it does earns 0."""

    batch, found = WorldBatch(scenes(), 2, 4, regret=True, endless=False), np.zeros(2, np.int64)
    earned = np.zeros(2)
    for _ in range(2000):
        if batch.over:
            break
        action = np.zeros((2, 3), np.int64)
        for each, env in enumerate(batch.envs):
            found[:] = env.advised()
            action[each, :2] = JOBS if found[0] < 0 else found[0], found[1]
        batch.ask(action[:, 0])
        earned += batch.answer(action)[0]
    assert batch.over
    assert earned == pytest.approx(0.0, abs=1e-3)
    assert [each.of_rule for each in batch.ended] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_shapes_keep_the_place_and_the_first_is_the_quickest():
    env = WorldEnv(scenes().scene(1), prices(scenes().scene(1)))
    seen = 0
    while not env.done and seen < 30:
        count = env.places(0)
        offers = [place for place in range(count) if env.sight.offer[place] >= 0]
        for place in offers[:3]:
            taken = env.sight.offer[place]
            shapes = env.shapes(0, place)
            assert shapes >= observe.ORDERS
            assert env.sight.shape[0] == taken
            for each in env.sight.shape[:shapes]:
                assert np.array_equal(env.scene.offers.gpus[each], env.scene.offers.gpus[taken])
            assert np.isfinite(env.sight.shapes[:shapes]).all()
            seen += 1
        env.answer(0 if count else -1, 0)
    assert seen


def test_calm_nodes_come_first_where_that_is_asked():
    scene = scenes(failing=0.0, tenants=0.0, moving=0.0).scene(2)
    env = WorldEnv(scene, prices(scene))
    world, domain = env.world, 0
    inside = [
        each for each in range(len(world.bin)) if world.pool[world.bin[each, c.BIN_POOL], c.POOL_DOMAIN] == domain
    ]
    world.bin[inside[0], c.BIN_FAILURES] = 2
    observe.rank_nodes(world, domain, observe.CALMEST)
    assert world.bin[inside[0], c.BIN_RANK] > max(world.bin[each, c.BIN_RANK] for each in inside[1:])
    observe.rank_nodes(world, domain, observe.FULLEST)
    assert not world.bin[inside, c.BIN_RANK].any()


def test_what_was_paid_by_a_time_lies_between_two_rows():
    curve = RuleCurve(np.array([0.0, 10.0, 40.0]), np.array([0.0, 5.0, 20.0]), np.zeros((3, 4)), np.zeros(4))
    asked = [-5.0, 0.0, 4.0, 10.0, 25.0, 40.0, 1e12, np.inf]
    assert [paid(curve, each) for each in asked] == [0.0, 0.0, 2.0, 5.0, 12.5, 20.0, 20.0, 20.0]
    assert [paid(curve, each) for each in asked] == np.interp(asked, curve.time_s, curve.paid_s).tolist()


def test_who_does_as_the_rule_stands_as_the_rule():
    scene = scenes().scene(5)
    env, curve, found = WorldEnv(scene, prices(scene)), by_rule(scene), np.zeros(2, np.int64)
    stands = np.zeros(BESIDE)
    while not env.done:
        beside(curve, env.world.clock[c.NOW], env.standing, len(env.price), stands)
        assert np.isfinite(stands).all()
        if not found[0] >= 0:  # time went on: all that the rule answers at once counts as one
            assert stands[4] == pytest.approx(0.0, abs=1e-9)
        found[:] = env.advised()
        env.answer(int(found[0]), int(found[1]))


@pytest.mark.parametrize(("places", "jobs"), [(2, 24), (32, 24), (32, 3)])
def test_who_does_as_the_rule_pays_as_the_rule_however_few_places_and_jobs_are_shown(
    places: int, jobs: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("hippo.jobs.joint.env.PLACES", places)
    monkeypatch.setattr("hippo.jobs.joint.env.JOBS", jobs)
    for number in range(6):
        scene = scenes(jobs=40, stops=0.0).scene(number)
        env = WorldEnv(scene, prices(scene))
        paid_s = env.paid_s
        while not env.done:
            env.answer(*env.advised())
            paid_s += env.paid_s
        assert paid_s == pytest.approx(by_rule(scene).total_s, rel=1e-9)


def test_the_served_policy_plays_a_whole_workload():
    scene = scenes().scene(3)
    arrays, _ = served.FORM.unpacked(packed(SiteAgents(WorldLearning()), WorldLearning()), "here")
    scheduler = served.HiPpoScheduler(agents=served.Agents.of(arrays))
    found = play_jointly(
        scene.workload, scene.site, scheduler, scene.settings, offers=scene.offers, tenants=scene.tenants
    )
    refused = {job for job, _ in found.refused}
    ended = np.isfinite(found.finish_s)
    assert all(ended[job] for job in range(len(scene.workload)) if job not in refused)
    opening = opened(scene.workload, scene.site, scene.settings, offers=scene.offers, tenants=scene.tenants)
    assert prices(Moment.of(opening.world, scene.workload, scene.site, scene.offers)).mean() == pytest.approx(1.0)
    assert by_rule(scene).total_s > 0


@pytest.mark.parametrize("limits", [{}, {"egress_usd_per_hour": 0.001, "unfairness": 0.01, "worlds": 1, "by_rule": 3}])
def test_a_resumed_run_is_the_same_run(tmp_path: Path, limits: dict[str, float]):
    """Cut off after each update; under limits their multipliers ascend from where they were."""
    settings, site = small(tmp_path), cluster("four-hubs")
    run = replace(settings.run, updates=6)
    settings = replace(settings, limits=replace(settings.limits, **limits), run=run)
    learned(settings, table(), tmp_path / "whole", cluster=site)
    short = replace(settings, run=replace(run, minutes=1e-9))
    for update in range(1, 7):
        parts = learned(short, table(), tmp_path / "parts", cluster=site, resume=update > 1)
        assert parts.updates == update
    one, other = (load(tmp_path / name / "checkpoint.pt") for name in ("whole", "parts"))  # the last, not the best
    for name, mine in one.policy.items():
        assert torch.allclose(mine, other.policy[name], atol=1e-4), name  # a bias of all places is noise alone
    assert one.multipliers == other.multipliers
    assert bool(one.policy["multipliers"].any()) == bool(limits)
    assert (tmp_path / "whole" / POLICY).exists()
