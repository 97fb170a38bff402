"""``hippo``: the table of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

import hippo
from hippo.cli.bench import bench
from hippo.cli.catalogue import catalogue
from hippo.cli.compare import compare
from hippo.cli.emulate import emulate
from hippo.cli.estimate import estimate
from hippo.cli.evaluate import evaluate
from hippo.cli.exit_codes import DONE, INFEASIBLE, INTERRUPTED, WRONG_INPUT
from hippo.cli.explain import explain
from hippo.cli.export import export
from hippo.cli.jobs import jobs
from hippo.cli.output import say, silence_stdout
from hippo.cli.pareto import pareto
from hippo.cli.plan import plan
from hippo.cli.prepare import prepare
from hippo.cli.probe import probe
from hippo.cli.profile import profile
from hippo.cli.run import run as run_plan
from hippo.cli.schedule import schedule
from hippo.cli.simulate import simulate
from hippo.cli.train import train
from hippo.cli.validate import validate
from hippo.cli.watch import watch
from hippo.errors import InfeasibleError, InputError

COMMANDS: tuple[Callable[..., None], ...] = (
    plan,
    compare,
    pareto,
    explain,
    simulate,
    estimate,
    validate,
    schedule,
    export,
    run_plan,
    train,
    evaluate,
    watch,
    emulate,
    probe,
    profile,
    catalogue,
    prepare,
    bench,
)

OTHERS: Mapping[str, str] = {
    **dict.fromkeys(("--global-batch-size", "--global_batch_size"), "--global-batch"),
    **dict.fromkeys(("--seq-length", "--seq_length", "--max_seq_length", "--max-seq-length"), "--seq"),
    **dict.fromkeys(("--micro-batch-size", "--per_device_train_batch_size"), "--micro-batch"),
    **dict.fromkeys(("--tensor-model-parallel-size", "--tensor-parallel-size"), "--tp"),
    **dict.fromkeys(("--pipeline-model-parallel-size", "--pipeline-parallel-size"), "--pp"),
    "--data-parallel-size": "--dp",
    "--context-parallel-size": "--cp",
    "--expert-model-parallel-size": "--ep",
    "--recompute-granularity": "--recompute",
    "--model_name_or_path": "--model",
}
"""Options as Megatron-LM and Hugging Face name them, and ours; help does not list them."""

TAKE_OTHERS = ("plan", "compare", "pareto", "estimate", "watch", "evaluate", "profile")
"""Commands that take those names too; others hand words on to programs that may know them."""

GARBAGE_EVERY = 100_000
"""New objects between two collections; with Python's own 700 a plan starts a tenth of a second later."""

app = typer.Typer(
    help="Plans how one large language model is trained over several data centres, and says why.",
    add_completion=True,
    rich_markup_mode=None,  # plain help: rich would triple the time of `hippo --help`
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
for command in COMMANDS:
    app.command(command.__name__)(command)
app.add_typer(jobs)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"hippo {hippo.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Plans how one large language model is trained over several data centres, and says why."""


def main() -> None:
    """Entry point of the ``hippo`` command."""
    gc.set_threshold(GARBAGE_EVERY, 50, 100)
    warnings.showwarning = lambda message, *where: say(str(message))
    try:
        code = run(sys.argv[1:])
    finally:
        sys.excepthook = _own_fault  # typer has put its own there
    # The process ends: to look for garbage among the modules once more would take a third of a second.
    gc.freeze()
    gc.disable()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line (without the program's name) and returns its exit code; errors are said on stderr."""
    try:
        code: Any = app(_as_ours(arguments), prog_name="hippo", standalone_mode=False)
        sys.stdout.flush()
        return _told(code) if isinstance(code, int) else DONE
    except InputError as error:
        return _refuse(str(error))
    except InfeasibleError as error:
        say(f"infeasible: {error}")
        return INFEASIBLE
    except typer.Exit as ending:
        return ending.exit_code
    except typer.TyperException as error:
        return _refuse(_usage(error, arguments))
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return INTERRUPTED
    except OSError as error:
        return _broken_stream(error)
    except SystemExit:  # typer's own answer to a reader that has gone
        return _broken_stream(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


def _as_ours(arguments: Sequence[str]) -> list[str]:
    """The command line with options of Megatron-LM and Hugging Face under our names, and ``help X`` as ``X --help``."""
    first, rest = (arguments[0], arguments[1:]) if arguments else ("help", ())
    if first == "help":
        return [*rest, "--help"]
    if first not in TAKE_OTHERS:
        return list(arguments)
    named = [argument.partition("=") for argument in rest]
    return [first, *(OTHERS.get(name, name) + sign + value for name, sign, value in named)]


def _told(code: int) -> int:
    """The exit code; typer makes one of an interruption without a word."""
    if code == INTERRUPTED:
        say("interrupted")
    return code


def _refuse(message: str) -> int:
    say(message)
    return WRONG_INPUT


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """Typer's complaint as one message with the value and a remedy."""
    context, names = getattr(error, "ctx", None), getattr(getattr(error, "param", None), "opts", ())
    path = context.command_path if context is not None else "hippo"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    value = next((_after(name, arguments) for name in names if _after(name, arguments) is not None), None)
    got = "" if value is None else f" (got {value!r})"
    told = f"{message.rstrip('.')}{got}"
    return f"{told}{'' if told.endswith('?') else '.'} To fix: see '{path} --help'."


def _after(option: str, arguments: Sequence[str]) -> str | None:
    """The value that the command line gives to an option."""
    for index, argument in enumerate(arguments):
        if argument == option:
            return arguments[index + 1] if index + 1 < len(arguments) else None
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def _broken_stream(error: OSError) -> int:
    """A reader that has gone (``| head``) is no error; a full disk behind stdout is."""
    silence_stdout()
    if error.errno == errno.EPIPE:
        return DONE
    where = f"{error.filename}: " if error.filename else ""
    return _refuse(f"{where}{error.strerror or error}. To fix: make room, or write elsewhere.")


def _own_fault(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Anything else is a fault of hippo's own: one line, and the trace for those who ask."""
    if os.environ.get("HIPPO_TRACE"):
        sys.__excepthook__(kind, error, trace)
    else:
        say(f"a fault of its own: {kind.__name__}: {error}. To fix: report it, with the output under HIPPO_TRACE=1.")
