"""Every kind of reason says itself in whole sentences and gives its figures as plain JSON."""

from __future__ import annotations

import json
from math import inf

import pytest

from hippo.decide.reasons import (
    Better,
    Binding,
    Bottleneck,
    Capacity,
    Degree,
    Dropped,
    ExpertsInside,
    Gap,
    IdleDomain,
    LeftOut,
    LinkThreshold,
    LocalSgd,
    MemoryHeadroom,
    MissingMemory,
    NearestChange,
    NoSwitch,
    Note,
    NothingFound,
    Reason,
    Rejected,
    RewardParts,
    RunnerUp,
    Sensitivity,
    Switch,
    UnusableProfile,
    Violated,
)

EXAMPLES: tuple[tuple[Reason, str], ...] = (
    (
        Binding("bandwidth", 0.6, 0.1, 0.2, 0.05, 0.05, 0.1, 0.05, 0.09, 0.01),
        "Bandwidth between domains binds: 10 % quicker links would take 9.0 % off the step, less latency 1.0 % and "
        "quicker GPUs 5.0 %. The busiest stage computes 60 % of the step; 10 % goes to fill, drain and imbalance, "
        "20 % to waiting for bandwidth between domains, 5.0 % to waiting for latency between domains and 5.0 % to "
        "agreeing on gradients and the optimizer; 10 % of the fullest GPU's memory is free.",
    ),
    (
        Binding("compute", 0.99, 0.0, 0.0, 0.0, 0.01, 0.1, 0.099, 0.0, 0.0),
        "Compute binds: 10 % quicker GPUs would take 9.9 % off the step, anything else nothing. The busiest stage "
        "computes 99 % of the step; 1.0 % goes to agreeing on gradients and the optimizer; 10 % of the fullest GPU's "
        "memory is free.",
    ),
    (
        Bottleneck("the link a -> b", 0.08, 0.07, 0.9),
        "The bottleneck is the link a -> b, busy 90 % of the step: 10 % slower, the step would take 8.0 % longer; "
        "10 % faster, 7.0 % less.",
    ),
    (
        Binding("bandwidth", 0.97, 0.0, 0.02, 0.0, 0.01, 0.1, 0.02, 0.03, 0.0),
        "GPUs and links are matched, neither binds alone: 10 % quicker links would take 3.0 % off the step, quicker "
        "GPUs 2.0 %. The busiest stage computes 97 % of the step; 2.0 % goes to waiting for bandwidth between domains "
        "and 1.0 % to agreeing on gradients and the optimizer; 10 % of the fullest GPU's memory is free.",
    ),
    (
        Binding("bandwidth", 0.93, 0.007, 0.063, 0.0, 0.0, 0.1, 0.001, 0.062, 0.0),
        "Bandwidth between domains binds, the GPUs close behind: 10 % quicker links would take 6.2 % off the step, "
        "quicker GPUs 0.1 %. The busiest stage computes 93 % of the step; 0.7 % goes to fill, drain and imbalance and "
        "6.3 % to waiting for bandwidth between domains; 10 % of the fullest GPU's memory is free.",
    ),
    (
        Bottleneck("stage 1 (layers 0-9 in a)", 0.03, 0.01, 0.97, alone=False),
        "What tells most is stage 1 (layers 0-9 in a), busy 97 % of the step: 10 % slower, the step would take 3.0 % "
        "longer; 10 % faster, 1.0 % less.",
    ),
    (
        LinkThreshold("the link a <-> b", "bandwidth", 0.5e9, 0.925e9, 0.05, 0.38, crossed=True),
        "Bandwidth of the link a <-> b is 4.00 Gbit/s, and 38 % of the step is waiting for it; from 7.40 Gbit/s on "
        "it would cost no more than 5.0 %.",
    ),
    (
        LinkThreshold("the link a <-> b", "latency", 0.04, 0.012, 0.05, 0.13, crossed=True),
        "Latency of the link a <-> b is 40.0 ms, and 13 % of the step is waiting for it; up to 12.0 ms it would cost "
        "no more than 5.0 %.",
    ),
    (
        LinkThreshold("the link a <-> b", "bandwidth", 0.5e9, 0.25e9, 0.05, 0.01, crossed=False),
        "Bandwidth of the link a <-> b is 4.00 Gbit/s; only below 2.00 Gbit/s would it cost more than 5.0 %.",
    ),
    (
        LinkThreshold("the link a <-> b", "latency", 0.04, 0.12, 0.05, 0.0, crossed=False),
        "Latency of the link a <-> b is 40.0 ms; only above 120 ms would it cost more than 5.0 %.",
    ),
    (
        Capacity("the link a -> b", 0.5e9, 31_250, 62_000, 62_000, in_use=True),
        "The link a -> b carries 31,200 tokens/s at 4.00 Gbit/s; the GPUs of the plan compute 62,000: "
        "the GPUs wait for it.",
    ),
    (
        Capacity("the link a -> b", 0.5e9, 31_250, 62_000, 124_000, in_use=False),
        "The link a -> b carries 31,200 tokens/s at 4.00 Gbit/s, less than the 62,000 that the plan's "
        "GPUs compute without "
        "it: more domains only wait.",
    ),
    (
        Capacity("the link a -> b", 0.5e9, 31_250, 12_500, 63_000, in_use=True, lost_share=0.19),
        "The link a -> b carries 31,200 tokens/s at 4.00 Gbit/s; the GPUs of the plan compute 12,500: over the whole "
        "step it would keep up, but 19 % of the step waits for what crosses late or all at once.",
    ),
    (
        Capacity("the link a -> b", 0.5e9, 31_250, 31_500, 63_000, in_use=True),
        "The link a -> b carries 31,200 tokens/s at 4.00 Gbit/s; the GPUs of the plan compute 31,500: the two match.",
    ),
    (
        ExpertsInside("the link a -> b", ("a", "b"), 8, 4e12, 2e12, 1250.0, 98.0, 125.0),
        "With experts spread over a and b tokens and results would be 4,000 GB a step: the link a -> b alone would "
        "send 2,000 GB and take at least 1,250 s, 10.0 times the 125 s of the step; spread over 8 ranks inside a "
        "domain they exchange for 98.0 s of it.",
    ),
    (
        ExpertsInside("the link a -> b", ("a", "b"), 1, 4e12, 2e12, 12.5, 0.0, 125.0),
        "With experts spread over a and b tokens and results would be 4,000 GB a step, the link a -> b alone would "
        "send 2,000 GB, 12.5 s in a step of 125 s: links would carry it, but groups over domains are not searched; "
        "kept together they exchange nothing.",
    ),
    (
        Sensitivity("links", 0.3, ("the link a <-> b", "the link b <-> c"), (0.2, 0.05), (0.1, 0.0)),
        "With 30 % less bandwidth on the link a <-> b the step takes 20 % longer (on the link b <-> c 5.0 %); "
        "with 30 % more, 10 % less.",
    ),
    (
        Sensitivity("links", 0.3, ("the link a -> b",), (0.0,), (0.0,)),
        "Every link may lose 30 % of its bandwidth without moving the step time.",
    ),
    (
        MemoryHeadroom("stage 1 in a", (70e9, 60e9), 76e9),
        "The fullest GPU, in stage 1 in a, needs 70.0 GB of 76.0 GB usable: 6.00 GB free; the emptiest "
        "stage needs 60.0 GB.",
    ),
    (
        MemoryHeadroom("stage 1 in a", (70e9,), 76e9, inside_bytes=90e9),
        "The fullest GPU, in stage 1 in a, needs 70.0 GB of 76.0 GB usable: 6.00 GB free. Were its state not shared "
        "out over all replicas it would need 90.0 GB, which does not fit.",
    ),
    (
        Capacity("the link a -> b", 0.5e9, 31_250, 25_000, 100_000, in_use=False),
        "The link a -> b carries 31,200 tokens/s at 4.00 Gbit/s, 1.25 times what the GPUs of the plan compute "
        "(25,000).",
    ),
    (Gap("exact", 0.0, 3.0, ()), "Gap 0: exact searched to the end; no plan that it knows is better."),
    (
        Gap("exact", 0.012, 3.0, ("The time limit stopped it.",)),
        "Gap at most 1.2 %: no plan that exact knows takes less than 3.00 s a step. The time limit stopped it.",
    ),
    (
        Gap("exact", 0.00031, 111.3704, ()),
        "Gap below 0.05 %: no plan that exact knows takes less than 111.37 s a step.",
    ),
    (Gap("exact", 0.002, None, ()), "Gap at most 0.2 %: no plan that exact knows is better by more."),
    (Gap("even", None, None, ()), "Gap unknown: even proves nothing about the optimum."),
    (
        RewardParts("the plan of even", 0.4, 0.8, 0.5, 1.0, 0.5, 0.5, 0.55, 10.0, 2.0, 8.0),
        "Against the plan of even (10.0 s a step) the plan takes 40 % less time (R_eff), keeps its "
        "domains busy 80 % of it "
        "(R_util) and pays 0.500 times its egress (R_cost): R = 1.00 x 0.400 + 0.500 x 0.800 - 0.500 x 0.500 = 0.550.",
    ),
    (
        RewardParts("the plan of even", 0.4, 0.8, 1.0, 1.0, 0.5, 0.5, 0.3, 10.0, 0.0, 0.0),
        "Against the plan of even (10.0 s a step) the plan takes 40 % less time (R_eff), keeps its "
        "domains busy 80 % of it "
        "(R_util) and pays for egress alone, where that one costs nothing (R_cost): "
        "R = 1.00 x 0.400 + 0.500 x 0.800 - 0.500 x 1.000 = 0.300.",
    ),
    (
        RunnerUp("pipeline across domains, a -> b", ("a", "b"), "pipeline across domains", 12.0, 4.2, 1.5, 0.2),
        "Runner-up: pipeline across domains, a -> b; 12.0 s and $4.20 a step ($1.50 egress), 20 % worse; found, not "
        "searched to the end.",
    ),
    (
        RunnerUp("one domain, a", ("a",), "one domain", 9.0, 0.0, 0.0, -0.1, True, True, ("b", "c")),
        "Better than the answer: one domain, a; 9.00 s a step, 10 % better. Found after the answer was chosen; to get "
        "it, leave b and c out of the cluster file.",
    ),
    (
        RunnerUp("one domain, a", ("a",), "one domain", 9.0, 0.0, 0.0, -0.1, True, True),
        "Better than the answer: one domain, a; 9.00 s a step, 10 % better. Found after the answer was chosen; no "
        "option asks for it.",
    ),
    (
        Switch("the link a <-> b", "add c and d", "bandwidth", "Gbit/s", 4.0, 7.4, 1.85, verified=True),
        "Above 7.40 Gbit/s on the link a <-> b (today 4.00) it pays to add c and d, both plans kept as they are.",
    ),
    (
        Switch("all links", "add c", "bandwidth", "x", 1.0, 1.97, 1.97, True, planned_anew=True, low=1.9, high=2.05),
        "Between 1.90 and 2.05 times today's bandwidth on all links it starts to pay to add c.",
    ),
    (
        Switch("the link a <-> b", "leave out b", "bandwidth", "Gbit/s", 4.0, 2.0, 0.5, False, True, 4.0, 1.0),
        "Somewhere between 4.00 and 1.00 Gbit/s on the link a <-> b (today 4.00) it starts to pay to leave out b; not "
        "searched to the end.",
    ),
    (
        Switch("all links", "stay in a alone", "latency", "x", 1.0, 3.0, 3.0, verified=False),
        "Above 3.00 times today's latency on all links it pays to stay in a alone "
        "(at the limit the two are too close to tell), both plans kept as they are.",
    ),
    (
        NoSwitch("stay in a alone", ("bandwidth", "latency"), 100.0),
        "No change of bandwidth or latency between 1/100 and 100 times today's makes it pay to stay in a alone, both "
        "plans kept as they are.",
    ),
    (
        NoSwitch("add c", ("bandwidth",), 16.0, "", (1 / 16, 0.25, 4.0, 16.0)),
        "No change of bandwidth between 1/16 and 16 times today's makes it pay to add c (planned anew at 1/16, 1/4, 4 "
        "and 16 times).",
    ),
    (
        NoSwitch("add c", ("bandwidth",), 16.0, "the link a <-> c", (16.0,), searched=False),
        "No change of bandwidth on the link a <-> c up to 16 times today's makes it pay to add c (planned anew at 16 "
        "times); not searched to the end.",
    ),
    (
        RunnerUp("one domain, a", ("a",), "one domain", 8.0, 2.0, 0.0, -0.2, searched=True),
        "Runner-up: one domain, a; 8.00 s and $2.00 a step, 20 % better.",
    ),
    (
        IdleDomain("b", 64, "a -> b", 31_250, 62_000, 12.0, 10.0, searched=True),
        "Domain b (64 GPUs) stays idle: the best plan with it (each domain once in a pipeline) takes 12.0 s a step "
        "(20 % longer); a -> b "
        "carries 31,200 tokens/s, "
        "the GPUs in use compute 62,000 without it.",
    ),
    (
        IdleDomain("b", 64, "a -> b", 31_250, 62_000, 12.0, 10.0, searched=True, alone=True),
        "Domain b (64 GPUs) stays idle: the best plan with it (in it alone) takes 12.0 s a step (20 % longer); a -> b "
        "carries 31,200 tokens/s, the GPUs in use compute 62,000 without it.",
    ),
    (
        IdleDomain("b", 64, "a -> b", 31_250, 62_000, 12.0, 10.0),
        "Domain b (64 GPUs) stays idle: a plan with it takes 12.0 s a step (20 % longer; found, not searched to the "
        "end); a -> b carries 31,200 tokens/s, the GPUs in use compute 62,000 without it.",
    ),
    (
        IdleDomain("b", 1, None, 0.0, 9.0, None, 10.0),
        "Domain b (1 GPU) stays idle: no pair of links joins it to the domains in use.",
    ),
    (
        Degree("context parallelism", 8, ((1, 0.064), (2, 0.026), (16, None))),
        "Context parallelism 8 in all stages: without it 6.4 % worse, with 2 2.6 % worse and with 16 nothing within "
        "50 %.",
    ),
    (
        LocalSgd("a | b", 500, 5.0, 0.5, "Its price is known.", searched=True),
        "If local SGD were allowed (--allow-local-sgd): a | b; 5.00 s a step (50 % less). Its price is known.",
    ),
    (
        LeftOut("reasons", 2.4, 3, ("all links", "the link a <-> b"), local_sgd=True),
        "Searches for these sentences ended with their limit (2.40 s of work). Left out, or cut short: 3 sets of "
        "domains; whole plans for other bandwidths of all links and the link a <-> b; local SGD. With a higher time "
        "limit (--time-limit) they go on.",
    ),
    (
        LeftOut("reasons", 12.0, 1, (), local_sgd=False),
        "Searches for these sentences ended with their limit (12.0 s of work). Left out, or cut short: 1 set of "
        "domains. With a higher time limit (--time-limit) they go on.",
    ),
    (
        Better("exact", "one domain, a", 8.0, 10.0, 0.25),
        "exact finds a better plan: 8.00 s a step (one domain, a); this one takes 10.0 s, 25 % worse.",
    ),
    (Better("exact", "x", 8.0, 8.0, 0.0), "exact finds nothing better: its best takes 8.00 s a step (x)."),
    (Rejected("exact", (("memory", 1200), ("devices", 3))), "Turned down by exact, by cause: memory 1,200, devices 3."),
    (Dropped("zero", "it does not fit"), "The plan of zero was dropped: it does not fit."),
    (Note("sailor", "it cuts evenly"), "sailor: it cuts evenly"),
    (Violated("stage 1", "layers overlap"), "Stage 1: layers overlap."),
    (
        MissingMemory("llama-3-405b", 76e9, 90.5e9, 90e9),
        "llama-3-405b needs 90.5 GB on a GPU, 76.0 GB are usable: 14.5 GB of memory are missing per GPU.",
    ),
    (
        MissingMemory("llama-3-405b", 76e9, 90.5e9, 80e9),
        "llama-3-405b needs 90.5 GB on a GPU, 76.0 GB are usable: 14.5 GB of memory are missing per GPU, "
        "or as little as 4.00 GB.",
    ),
    (
        MissingMemory("llama-3-405b", 76e9, 90.5e9, 76e9),
        "llama-3-405b needs 90.5 GB on a GPU, 76.0 GB are usable: 14.5 GB of memory are missing per GPU at most.",
    ),
    (NearestChange("with twice the nodes", 8.0), "It fits with twice the nodes: 8.00 s a step."),
    (
        UnusableProfile("p.json", (3,), 64, ("no domain has the 16 GPUs of tp 16", "3 does not divide 64")),
        "No plan can use the profile (p.json): no domain has the 16 GPUs of tp 16; 3 does not divide 64.",
    ),
    (UnusableProfile("", (), 64, ("no",)), "No plan can use the profile: no."),
    (NothingFound("exact", ("a", "b")), "exact finds no plan, and none with a or b."),
    (NothingFound("exact", ()), "exact finds no plan, nor a change with which one fits before time runs out."),
)


@pytest.mark.parametrize(("reason", "sentence"), EXAMPLES, ids=lambda value: getattr(value, "kind", ""))
def test_sentences(reason, sentence):
    assert reason.sentence() == sentence


@pytest.mark.parametrize("reason", [reason for reason, _ in EXAMPLES], ids=lambda reason: reason.kind)
def test_documents_are_plain_json(reason):
    document = json.loads(json.dumps(reason.document(), allow_nan=False))
    assert document["kind"] == reason.kind
    assert document["subject"] == reason.subject
    assert document["sentence"] == reason.sentence()
    assert "subject" not in document["figures"]


def test_every_kind_has_an_example_and_a_name_of_its_own():
    kinds = {reason.kind for reason, _ in EXAMPLES}
    here = [kind for kind in Reason.__subclasses__() if not kind.__module__.startswith("hippo.network")]
    assert kinds == {kind.kind for kind in here}
    assert len(kinds) == len(here)


def test_unlimited_figures_become_null():
    assert Sensitivity("x", 0.3, ("a",), (inf,), (0.1,)).figures["slower_share"] == [None]
