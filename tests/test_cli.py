"""The command line, in processes of its own where it computes."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from hbnode import cli
from hbnode.experiments import EXPERIMENTS, METHODS, PRESETS, preset, settings_type

SMALL = ["--epochs", "75", "--training.evaluate-every", "1", "--seeds", "2", "--method", "fast"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of the commands: what is compiled once is kept."""
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "COLUMNS": "100",
    }


def command(*args):
    return [sys.executable, "-c", "from hbnode.cli import entry; entry()", *map(str, args)]


@pytest.fixture
def hbnode(environment):
    def run(*args, expect=0):
        done = subprocess.run(command(*args), capture_output=True, text=True, env=environment)
        assert done.returncode == expect, done.stderr
        return done

    return run


def usage(capsys, *args):
    """The one line that a usage error prints."""
    assert cli.main([str(arg) for arg in args]) == 2
    told = capsys.readouterr()
    assert not told.out
    (line,) = told.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["runn"], "there is no command 'runn': did you mean run?"),
        (["run"], "say which task: hbnode run TASK, one of descent, silverbox, point-cloud"),
        (["run", "--model", "NODE"], "say which task"),
        (["run", "point-clowd"], "there is no task 'point-clowd': did you mean point-cloud?"),
        (["run", "xyz"], "there is no task 'xyz': one of descent"),
        (["run", "mnist"], "say which model with --model: one of NODE, ANODE"),
        (["run", "mnist", "--model", "HBNOD"], "there is no model 'HBNOD': did you mean HBNODE?"),
        (["run", "mnist", "--model", "NODE", "--method", "fst"], "did you mean fast?"),
        (["run", "mnist", "--model", "NODE", "--preset", "papr"], "did you mean paper?"),
        (
            ["run", "mnist", "--model", "NODE", "--training.batsh", "3"],
            "there is no setting '--training.batsh': did you mean --training.batch?",
        ),
        (["run", "mnist", "--model", "NODE", "--training.batch", "many"], "'many'"),
        (
            ["run", "mnist", "--model", "NODE", "--training.batch", "0"],
            "training.batch must be positive, got 0.",
        ),
        (["run", "mnist", "--model", "NODE", "--seeds", "0"], "--seeds must be at least 1, got 0."),
        (["run", "mnist", "--model", "NODE", "--precision", "16"], "invalid choice '16'"),
        (["run", "descent", "--model", "NODE", "--epochs", "3"], "descent trains nothing"),
        (["run", "descent", "--model", "GHBNODE"], "there is no model 'GHBNODE'"),
        (["compare", "mnist", "--models", "NODE:fsat"], "there is no method 'fsat'"),
        (["compare", "mnist", "--models", "NODEE"], "there is no model 'NODEE'"),
        (["list", "all"], "`hbnode list` takes no 'all'."),
        (["params", "mnst"], "did you mean mnist?"),
        (["data", "fetsh"], "there is no action 'fetsh': did you mean fetch?"),
        (["data", "list", "minst"], "there is no data set 'minst': did you mean mnist?"),
    ],
)
def test_usage_errors_are_one_line_that_helps(capsys, tmp_path, args, told):
    if args[0] in ("run", "compare"):
        args = [*args, "--out", tmp_path / "runs"]
    assert told in usage(capsys, *args)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["list", "--help"], ["data", "--help"]])
def test_help(capsys, args):
    try:
        status = cli.main(args)
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    assert "hbnode compare TASK" in capsys.readouterr().out


@pytest.mark.parametrize("task", EXPERIMENTS)
@pytest.mark.parametrize("verb", ["run", "compare"])
def test_help_shows_every_setting_with_its_default(capsys, monkeypatch, task, verb):
    monkeypatch.setenv("COLUMNS", "200")
    model = EXPERIMENTS[task].models[0]
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, task, "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    defaults = preset(task, model, "quick", "paper")
    for section in settings_type(task).__dataclass_fields__:
        values = getattr(defaults, section)
        for name in values.__dataclass_fields__:
            assert f"--{section}.{name}".replace("_", "-") in shown
    assert "(default: 4096)" in shown and f"(default: {defaults.solver.tolerance})" in shown


def test_every_setting_has_a_help_text():
    import inspect

    from hbnode import settings, training

    for module in (settings, sys.modules[training.TrainingSettings.__module__]):
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__:
                source = inspect.getsource(kind)
                for name, annotation in kind.__annotations__.items():
                    line = re.search(rf"^    {name}: .*\n    \"\"\".+", source, re.MULTILINE)
                    assert line, (kind, name, annotation)


def test_list(capsys):
    assert cli.main(["list"]) == 0
    out = capsys.readouterr().out
    for task, experiment in EXPERIMENTS.items():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{task} ")]
        assert experiment.figures in line and experiment.title in line
        assert all(model in line for model in experiment.models)
    assert all(name in out for name in (*PRESETS, *METHODS))


def test_params(capsys):
    assert cli.main(["params", "point-cloud"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["point-cloud", "HBNODE", "568", "568", "+0"] in rows
    assert ["point-cloud", "SONODE", "527", "528", "-1"] in rows
    assert cli.main(["params", "descent"]) == 0
    assert "nothing is learned" in capsys.readouterr().out


def test_names_are_read_in_any_case(capsys):
    assert cli.main(["params", "Point_Cloud"]) == 0
    assert "HBNODE" in capsys.readouterr().out


def test_paper_settings_are_those_of_its_tables():
    """Batch, learning rate, tolerance (Table 1 and sections 4.1 to 4.4)."""
    table = {
        "point-cloud": (50, 0.01, 1e-7), "mnist": (64, 0.001, 1e-5), "cifar10": (64, 0.001, 1e-5),
        "plane-vibration": (64, 0.0001, 1e-7), "walker2d": (256, 0.003, 1e-7),
    }  # fmt: skip
    for task, (batch, rate, tolerance) in table.items():
        for model in EXPERIMENTS[task].models:
            settings = preset(task, model, "paper", "paper")
            training = settings.training
            if task != "plane-vibration":
                assert training.batch == batch
            assert training.learning_rate == rate
            assert settings.solver.tolerance == tolerance
            assert settings.solver.name == "dopri5"
            assert settings.solver.gradient == "continuous-full"
            assert not settings.solver.warm_start


METRICS = {"seed", "step", "epoch", "split", "loss", "nfe_forward", "nfe_backward", "seconds"}


def lines_of(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in x.items() if k != "seconds"} for x in lines]


@pytest.fixture(scope="module")
def whole(environment, tmp_path_factory):
    """A run that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    done = subprocess.run(
        command("run", "point-cloud", "--model", "HBNODE", *SMALL, "--out", out),
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    return out / "point-cloud" / "HBNODE-fast", done


@pytest.mark.slow
def test_a_run_ends_with_a_table_and_its_folder(whole, hbnode):
    path, done = whole
    assert str(path) in done.stdout and "mean ± standard deviation" in done.stdout
    assert re.search(r"update 150 of 150, epoch 75, loss .*NFE .*forward .*backward", done.stderr)
    config = json.loads((path / "config.json").read_text())
    assert config["settings"]["training"]["epochs"] == 75
    assert config["settings"]["solver"]["name"] == "default"
    environment = json.loads((path / "environment.json").read_text())
    assert environment["command"][:3] == ["hbnode", "run", "point-cloud"]
    assert environment["devices"] == os.cpu_count() and environment["precision"] == 64
    assert all(x.keys() | {"seconds"} >= METRICS for x in lines_of(path))
    out = path.parents[1]
    again = ["run", "point-cloud", "--model", "HBNODE", "--out", out]
    assert "has a run already" in hbnode(*again, *SMALL, expect=1).stderr
    done = hbnode(*again, *SMALL, "--resume")  # finished: the table alone
    assert str(path) in done.stdout and not done.stderr
    refused = hbnode(*again, *SMALL, "--training.batch", 40, "--resume", expect=1).stderr
    assert "settings.training.batch: 50 in the folder, 40 now" in refused
    both = hbnode(*again, *SMALL, "--resume", "--overwrite", expect=2).stderr
    assert "exclude each other" in both


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(whole, environment, hbnode, tmp_path):
    path = tmp_path / "point-cloud" / "HBNODE-fast"
    args = ["run", "point-cloud", "--model", "HBNODE", *SMALL, "--out", str(tmp_path)]
    with subprocess.Popen(
        command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        while process.poll() is None and not steps_of(path):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    (line,) = [line for line in told.splitlines() if "interrupted" in line]
    assert "everything is saved" in line and line.endswith(f"{' '.join(args)} --resume")
    assert not (path / "summary.json").exists()
    done = hbnode(*args, "--resume")
    assert re.search(r"going on from update \d+", done.stderr)
    assert lines_of(path) == lines_of(whole[0])


@pytest.mark.slow
def test_exit_status_when_all_seeds_diverge(hbnode, tmp_path):
    done = hbnode("compare", "point-cloud", "--models", "HBNODE:fast", *SMALL[:-2], "--out",
                  tmp_path, "--training.explosion", "1e-9", expect=1)  # fmt: skip
    assert "seed 1 diverged at update 1: the loss exploded" in done.stderr
    assert "2/2" in done.stdout


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same(whole, environment, tmp_path):
    """SIGKILL at ten random moments of training and, by watching for the file that becomes the
    checkpoint, in the middle of writing it."""
    path = tmp_path / "point-cloud" / "HBNODE-fast"
    part = path / "checkpoint" / "latest.npz.part"
    args = command("run", "point-cloud", "--model", "HBNODE", *SMALL, "--out", tmp_path)
    rng = random.Random(7)
    kills = halves = 0
    while kills < 10 or not halves:
        assert kills < 30, "no checkpoint was caught half written"
        before = steps_of(path)
        with subprocess.Popen(
            [*args, *(["--resume"] if path.exists() else [])],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
        ) as process:  # fmt: skip
            while process.poll() is None and steps_of(path) == before:
                time.sleep(0.001)
            moment = time.monotonic() + rng.uniform(0.0, 0.2)
            while process.poll() is None and time.monotonic() < moment:
                time.sleep(0.001)
            while kills % 2 and process.poll() is None and not part.exists():
                pass
            assert process.poll() is None, f"the run was over after {kills} kills"
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            halves += part.exists()
    subprocess.run([*args, "--resume"], capture_output=True, env=environment, check=True)
    expected, _ = whole
    assert lines_of(path) == lines_of(expected)
    for name in ("history.npz", "snapshots.npz", "closing.npz", "context.npz"):
        assert (path / name).read_bytes() == (expected / name).read_bytes()


def steps_of(path):
    """How far the metrics are."""
    try:
        return len((path / "metrics.jsonl").read_bytes())
    except FileNotFoundError:
        return 0
