"""The command line: `hbnode list | params | run | compare | report | data`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import tyro

from . import data
from .experiments import (
    EXPERIMENTS,
    METHODS,
    PRESETS,
    paper_settings,
    preset,
    settings_type,
)
from .launch import Run, all_diverged, launch, set_up
from .runs import RunError
from .tables import list_table, parameter_table, result_table
from .training import Interrupted

USAGE = """\
hbnode: heavy-ball neural ODEs, and the experiments of their paper

  hbnode list                          tasks, models, figures, data
  hbnode params [TASK]                 numbers of parameters beside the paper's
  hbnode run TASK --model M [...]      train one model
  hbnode compare TASK [--models ...]   train all models of a task, print a table, write the report
  hbnode report [RUNS]                 one page with all results and figures of a folder of runs
  hbnode data list|fetch|verify [NAME ...]

`hbnode run TASK --help` shows every setting of a task with its default.
Data lies in $HBNODE_DATA_DIR, or in the user's cache."""


class UsageError(Exception):
    """One line that says what to write instead."""


@dataclasses.dataclass(frozen=True)
class Common:
    """What `run` and `compare` share."""

    preset: Literal["quick", "paper"] = "quick"
    """quick: minutes on two cores; paper: the paper's settings."""
    seeds: int | None = None
    """How many seeds, from 0 on, are trained at once. (default: that of the task, see `list`)"""
    epochs: float | None = None
    """Short for --training.epochs."""
    precision: Literal[32, 64] | None = None
    """Bits of a number. (default: that of the task)"""
    out: Path = Path("runs")
    """Where the run folders go."""
    resume: bool = False
    """Go on with runs that are there."""
    overwrite: bool = False
    """Delete runs that are there."""


@dataclasses.dataclass(frozen=True)
class RunOptions(Common):
    model: str = ""
    """Which model; `hbnode list` names them."""
    method: Literal["paper", "fast"] = "paper"
    """paper: Dopri5 and the continuous adjoint; fast: the library's defaults."""


@dataclasses.dataclass(frozen=True)
class CompareOptions(Common):
    models: tuple[str, ...] = ()
    """Which models, each with a method of its own where it is written MODEL:METHOD.
    (default: all of the task)"""
    methods: tuple[Literal["paper", "fast"], ...] = ("paper",)
    """Which methods for the models that name none."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """One page with all results and figures of a folder of runs, for any browser."""

    runs: tyro.conf.Positional[Path] = Path("runs")
    """The folder of the runs."""
    out: Path | None = None
    """The page to write. (default: report.html in the folder of the runs)"""
    figures: Path | None = None
    """A folder to write every figure to, as SVG, PDF and CSV."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(args)
    except UsageError as error:
        print(f"hbnode: {error}", file=sys.stderr)
        return 2
    except (RunError, data.DataError) as error:
        print(f"hbnode: {error}", file=sys.stderr)
        return 1
    except Interrupted:
        again = [arg for arg in args if arg not in ("--resume", "--overwrite")]
        command = shlex.join(["hbnode", *again, "--resume"])
        print(f"hbnode: interrupted, everything is saved. Go on with: {command}", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("hbnode: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def entry() -> NoReturn:
    """The console script."""
    sys.exit(main())


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    commands = {
        "list": _list, "params": _params, "run": _run, "compare": _compare, "report": _report,
        "data": _data,
    }  # fmt: skip
    command = commands[nearest("command", args[0], commands)]
    return command(args[1:])


def nearest(kind: str, name: str, names: Iterable[str]) -> str:
    """`name`, in the spelling of `names`; or an error that says which name is near."""
    spelled = {known.lower(): known for known in names}
    if name.lower().replace("_", "-") in spelled:
        return spelled[name.lower().replace("_", "-")]
    close = difflib.get_close_matches(name.lower(), spelled, 1, 0.4)
    hint = f"did you mean {spelled[close[0]]}?" if close else f"one of {', '.join(names)}."
    raise UsageError(f"there is no {kind} {name!r}: {hint}")


def _list(args: list[str]) -> int:
    _no_more(args, "list")
    print(list_table())
    return 0


def _params(args: list[str]) -> int:
    _no_more(args[1:], "params")
    tasks = [nearest("task", args[0], EXPERIMENTS)] if args else list(EXPERIMENTS)
    print(parameter_table(tasks))
    return 0


def _run(args: list[str]) -> int:
    task = _task(args, "run")
    experiment = EXPERIMENTS[task]
    rest, names = args[1:], (*experiment.models, *experiment.others)
    helped = "--help" in rest or "-h" in rest
    if not helped and not _value(rest, "--model"):
        raise UsageError(f"say which model with --model: one of {', '.join(names)}.")
    model = nearest("model", _value(rest, "--model") or names[-1], names)
    method = nearest("method", _value(rest, "--method") or "paper", METHODS)
    parsed = _parse(RunOptions, "run", task, model, method, rest)
    set_up(parsed.precision or experiment.precision)
    summaries = _launch([_make_run(task, model, method, parsed)], parsed)
    return int(all(all_diverged(summary) for summary in summaries))


def _compare(args: list[str]) -> int:
    task = _task(args, "compare")
    experiment = EXPERIMENTS[task]
    rest, names = args[1:], (*experiment.models, *experiment.others)
    first = _parse(CompareOptions, "compare", task, names[0], "paper", rest)
    wanted: dict[tuple[str, str], None] = {}
    for method in first.methods:
        for item in first.models or experiment.models:
            model, _, own = item.partition(":")
            own = nearest("method", own, METHODS) if own else method
            wanted[nearest("model", model, names), own] = None
    set_up(first.precision or experiment.precision)
    runs = [
        _make_run(task, model, method, _parse(CompareOptions, "compare", task, model, method, rest))
        for model, method in wanted
    ]
    summaries = _launch(runs, first)
    try:
        _write_report(ReportOptions(first.out))
    except RunError as error:  # the runs are there all the same
        print(f"hbnode: no report: {error}", file=sys.stderr)
    return int(all(all_diverged(summary) for summary in summaries))


def _report(args: list[str]) -> int:
    _check_names(args, ReportOptions())
    options = _typed(ReportOptions, args, ReportOptions(), "hbnode report")
    if not options.runs.is_dir():
        raise UsageError(f"there is no folder {options.runs}: write hbnode report RUNS.")
    if options.out is not None and options.out.is_dir():
        raise UsageError(f"--out {options.out} is a folder: name a file, such as report.html.")
    if options.figures is not None and options.figures.is_file():
        raise UsageError(f"--figures {options.figures} is a file: name a folder.")
    _write_report(options)
    return 0


def _write_report(options: ReportOptions) -> None:
    from .report import (
        write_report,  # matplotlib takes a second to load, which others need not wait
    )

    page = options.out or options.runs / "report.html"
    report = write_report(options.runs, page, paper=paper_settings(), figures=options.figures)
    for problem in report.problems:
        print(f"hbnode: {problem.folder}: {problem.text}", file=sys.stderr)
    if options.figures is not None:
        print(f"{options.figures} ({len(report.figures)} files)")
    print(report.page)


def _launch(runs: list[Run], options: Any) -> list[dict]:
    if options.resume and options.overwrite:
        raise UsageError("--resume and --overwrite exclude each other.")
    summaries = []
    for run in runs:
        try:
            summaries.append(
                launch(run, options.out, resume=options.resume, overwrite=options.overwrite)
            )
        except ValueError as error:  # settings that do not go together
            raise UsageError(" ".join(str(error).split())) from error
    print(result_table(runs, summaries))
    for run in runs:
        print(run.folder(options.out))
    return summaries


def _make_run(task: str, model: str, method: str, parsed: Any) -> Run:
    experiment = EXPERIMENTS[task]
    seeds = experiment.seeds if parsed.seeds is None else parsed.seeds
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {seeds}.")
    sections = [field.name for field in dataclasses.fields(settings_type(task))]
    settings = settings_type(task)(**{name: getattr(parsed, name) for name in sections})
    if parsed.epochs is not None:
        if not hasattr(settings, "training"):
            raise UsageError(f"{task} trains nothing: there are no --epochs to set.")
        try:
            training = dataclasses.replace(settings.training, epochs=parsed.epochs)
        except ValueError as error:
            raise UsageError(str(error)) from error
        settings = dataclasses.replace(settings, training=training)
    precision = parsed.precision or experiment.precision
    return Run(task, model, method, parsed.preset, seeds, precision, settings)


def _task(args: list[str], command: str) -> str:
    if args and args[0] in ("-h", "--help"):
        print(f"usage: hbnode {command} TASK [options]\n\n{list_table()}\n")
        print(f"`hbnode {command} TASK --help` shows every setting of a task.")
        raise SystemExit(0)
    if not args or args[0].startswith("-"):
        raise UsageError(f"say which task: hbnode {command} TASK, one of {', '.join(EXPERIMENTS)}.")
    return nearest("task", args[0], EXPERIMENTS)


def _parse(kind: type, command: str, task: str, model: str, method: str, args: list[str]) -> Any:
    """The options of a command and all settings of a task, over the preset of a model."""
    named = nearest("preset", _value(args, "--preset") or "quick", PRESETS)
    defaults = preset(task, model, named, method)
    sections = {f.name: getattr(defaults, f.name) for f in dataclasses.fields(defaults)}
    every = dataclasses.make_dataclass(
        "Options", [(name, type(value)) for name, value in sections.items()], bases=(kind,),
        frozen=True, kw_only=True,
    )  # fmt: skip
    every.__doc__ = f"{command} {task}: {EXPERIMENTS[task].title} ({EXPERIMENTS[task].figures})"
    default = every(**sections)
    _check_names(args, default)
    return _typed(every, args, default, f"hbnode {command} {task}")


def _typed(kind: type, args: list[str], default: Any, prog: str) -> Any:
    """Options as an instance of a dataclass."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(kind, args=args, default=default, prog=prog)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UsageError(_complaint(told.getvalue())) from None
    except ValueError as error:  # raised by the settings themselves
        raise UsageError(str(error)) from None


def _check_names(args: list[str], default: Any) -> None:
    """That every option is one of the settings."""
    known = ["--help"]
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        inner = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        for name, of in [(f"{field.name}.{f.name}", value) for f in inner] or [
            (field.name, default)
        ]:
            name = name.replace("_", "-")
            known.append(f"--{name}")
            if isinstance(getattr(of, name.rpartition(".")[2].replace("-", "_")), bool):
                section, dot, last = name.rpartition(".")
                known.append(f"--{section}{dot}no-{last}")
    for arg in args:
        if arg.startswith("--"):
            option = arg.partition("=")[0].replace("_", "-")
            if option not in known:
                nearest("setting", option, known)


def _complaint(message: str) -> str:
    """What tyro says between its title and the next rule, on one line."""
    words: list[str] = []
    for line in message.splitlines()[1:]:
        text = line.strip(" │╭╮╰╯")
        if set(text) <= set("─-"):
            if words:
                break
            continue
        words += text.split()
    return " ".join(words) or "the command could not be read; see --help."


def _value(args: list[str], option: str) -> str | None:
    """What is given for an option, before everything is parsed."""
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1]
        if arg.startswith(f"{option}="):
            return arg.partition("=")[2]
    return None


def _no_more(args: list[str], command: str) -> None:
    if args and args[0] in ("-h", "--help"):
        print(USAGE)
        raise SystemExit(0)
    if args:
        raise UsageError(f"`hbnode {command}` takes no {args[0]!r}.")


def _data(args: list[str]) -> int:
    actions = ("list", "fetch", "verify")
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    action = nearest("action", args[0], actions)
    names = [nearest("data set", name, data.DATASETS) for name in args[1:]]
    names = names or list(data.DATASETS)
    print(f"data folder: {data.data_dir()}")
    good = True
    for name in names:
        dataset = data.DATASETS[name]
        if action == "fetch":
            data.fetch(name)
        if action == "verify":
            found = data.verify(name)
            wrong = [(path, status) for path, status in found if status is not data.Status.OK]
            print(
                f"{name:10s} {len(found) - len(wrong)} of {len(found)} files are as they should be"
            )
            for path, status in wrong:
                print(f"  {status}: {path}")
            good &= not wrong
        else:
            present, total = data.status(name)
            print(f"{name:10s} {present} of {total} files, {dataset.megabytes} MB: {dataset.title}")
    return 0 if good else 1
