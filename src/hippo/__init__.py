"""hippo plans how one large language model is trained over several data centres, and says why.

    import hippo

    decision = hippo.plan(hippo.problem(model="llama-3-70b", cluster="four-hubs"), hippo.Stop(time_limit_s=10), seed=0)
    print(decision.summary())

Nothing is imported until a name is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hippo.decide.decision import Decision
    from hippo.decide.pareto import Front
    from hippo.errors import HippoError, InfeasibleError, InputError
    from hippo.front_door.networks import SuiteChoice, evaluate, evaluate_suite, watch
    from hippo.front_door.planning import (
        Estimate,
        compare,
        estimate,
        explain,
        export,
        pareto,
        plan,
        schedule,
        simulate,
        validate,
    )
    from hippo.front_door.queues import JobsDrawing, JobsQuestion, generate_jobs, replay_jobs
    from hippo.front_door.rollouts import plan_rollouts
    from hippo.front_door.running import Checkpoints, run
    from hippo.front_door.service import Client
    from hippo.plan.codec import load_plan, save_plan
    from hippo.plan.plan import Plan
    from hippo.planners.base import Status, Stop
    from hippo.problem.load import load_problem as problem
    from hippo.problem.problem import Problem
    from hippo.run.job import RunOptions
    from hippo.score.score import Score

__version__ = "0.1.0"

__all__ = [
    "Checkpoints",
    "Client",
    "Decision",
    "Estimate",
    "Front",
    "HippoError",
    "InfeasibleError",
    "InputError",
    "JobsDrawing",
    "JobsQuestion",
    "Plan",
    "Problem",
    "RunOptions",
    "Score",
    "Status",
    "Stop",
    "SuiteChoice",
    "compare",
    "estimate",
    "evaluate",
    "evaluate_suite",
    "explain",
    "export",
    "generate_jobs",
    "load_plan",
    "pareto",
    "plan",
    "plan_rollouts",
    "problem",
    "replay_jobs",
    "run",
    "save_plan",
    "schedule",
    "simulate",
    "validate",
    "watch",
]

_DEFINED: Mapping[str, str] = {
    "Checkpoints": "hippo.front_door.running:Checkpoints",
    "Client": "hippo.front_door.service:Client",
    "Decision": "hippo.decide.decision:Decision",
    "Estimate": "hippo.front_door.planning:Estimate",
    "Front": "hippo.decide.pareto:Front",
    "HippoError": "hippo.errors:HippoError",
    "InfeasibleError": "hippo.errors:InfeasibleError",
    "InputError": "hippo.errors:InputError",
    "JobsDrawing": "hippo.front_door.queues:JobsDrawing",
    "JobsQuestion": "hippo.front_door.queues:JobsQuestion",
    "Plan": "hippo.plan.plan:Plan",
    "Problem": "hippo.problem.problem:Problem",
    "RunOptions": "hippo.run.job:RunOptions",
    "Score": "hippo.score.score:Score",
    "Status": "hippo.planners.base:Status",
    "Stop": "hippo.planners.base:Stop",
    "SuiteChoice": "hippo.front_door.networks:SuiteChoice",
    "compare": "hippo.front_door.planning:compare",
    "estimate": "hippo.front_door.planning:estimate",
    "evaluate": "hippo.front_door.networks:evaluate",
    "evaluate_suite": "hippo.front_door.networks:evaluate_suite",
    "explain": "hippo.front_door.planning:explain",
    "export": "hippo.front_door.planning:export",
    "generate_jobs": "hippo.front_door.queues:generate_jobs",
    "load_plan": "hippo.plan.codec:load_plan",
    "pareto": "hippo.front_door.planning:pareto",
    "plan": "hippo.front_door.planning:plan",
    "plan_rollouts": "hippo.front_door.rollouts:plan_rollouts",
    "problem": "hippo.problem.load:load_problem",
    "replay_jobs": "hippo.front_door.queues:replay_jobs",
    "run": "hippo.front_door.running:run",
    "save_plan": "hippo.plan.codec:save_plan",
    "schedule": "hippo.front_door.planning:schedule",
    "simulate": "hippo.front_door.planning:simulate",
    "validate": "hippo.front_door.planning:validate",
    "watch": "hippo.front_door.networks:watch",
}


class _FrontDoor(ModuleType):
    """The package as its users see it: public names are loaded when asked for.

    ``hippo.plan``, ``hippo.schedule`` and others are functions although packages inside bear these names: importing
    such a package does not put it in the function's place (``from hippo.schedule.x import y`` finds it all the same).
    """

    def __getattr__(self, name: str) -> object:
        if name not in _DEFINED:
            raise AttributeError(f"module 'hippo' has no attribute '{name}'; it has {', '.join(__all__)}")
        module, attribute = _DEFINED[name].split(":")
        value = getattr(import_module(module), attribute)
        if isinstance(value, FunctionType):
            value = _naming_arguments(value)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _DEFINED and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"})


def _naming_arguments(function: FunctionType) -> Callable[..., object]:
    """The function, which checks its arguments, and whose ``InputError`` names them where the command names options."""

    @wraps(function)
    def called(*arguments: object, **named: object) -> object:
        from hippo.arguments import check_call
        from hippo.errors import InputError

        check_call(function, arguments, named)
        try:
            return function(*arguments, **named)
        except InputError as error:
            raise error.in_python() from None

    return called


sys.modules[__name__].__class__ = _FrontDoor
