"""The experiments by name: models, sizes, presets and methods, as the paper's tables have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from .dynamics import ANODE, GHBNODE, HBNODE, NODE, SONODE, AbstractDynamics
from .settings import (
    CifarData,
    ImageData,
    Network,
    Paths,
    PlaneVibrationData,
    RecurrentNetwork,
    Signal,
    SolverSettings,
    WalkerData,
)
from .tasks import (
    AbstractStudy,
    AbstractTask,
    Cifar10,
    Descent,
    ImageClassification,
    Mnist,
    PlaneVibration,
    PointCloud,
    Silverbox,
    Walker2D,
)
from .training import TrainingSettings

FAMILIES: dict[str, type[AbstractDynamics]] = {
    "NODE": NODE, "ANODE": ANODE, "SONODE": SONODE, "HBNODE": HBNODE, "GHBNODE": GHBNODE,
}  # fmt: skip
PRESETS = ("quick", "paper")
METHODS = ("paper", "fast")


class Experiment(NamedTuple):
    """A task by name."""

    title: str
    figures: str
    models: tuple[str, ...]
    """Those that `compare` takes unless told."""
    tolerance: float
    precision: int
    """32 or 64 bits."""
    seeds: int
    sections: dict[str, dict[str, Callable[[str], Any]]]
    """{section: {preset: model -> settings}}"""
    build: Callable[[type[AbstractDynamics], Any], AbstractTask | AbstractStudy]
    """family, settings -> the task"""
    published: dict[str, int]
    """Numbers of parameters in the paper."""
    others: tuple[str, ...] = ()
    """Further models that can be run."""
    dataset: str | None = None


def _same(value: Any) -> dict[str, Callable[[str], Any]]:
    return {preset: lambda model: value for preset in PRESETS}


def _presets(quick: Any, paper: Any) -> dict[str, Callable[[str], Any]]:
    return {"quick": lambda model: quick, "paper": lambda model: paper}


def _table(row: type, **sizes: tuple) -> dict[str, Callable[[str], Any]]:
    """A row of the paper's tables of hyper-parameters for each model."""
    return {preset: lambda model: row(*sizes[model]) for preset in PRESETS}


EXPERIMENTS: dict[str, Experiment] = {
    "descent": Experiment(
        title="gradient flow and heavy-ball flow on Rosenbrock's and Beale's function",
        figures="Fig. 2",
        models=("NODE", "HBNODE"),
        tolerance=1e-9,
        precision=64,
        seeds=1,
        sections={"paths": _same(Paths())},
        build=lambda family, s: Descent(family, s.paths.long),
        published={},
    ),
    "silverbox": Experiment(
        title="growth of ‖h(t)‖ before training, driven by a measured signal",
        figures="Fig. 3",
        models=tuple(FAMILIES),
        tolerance=1e-7,
        precision=64,
        seeds=100,
        sections={
            "network": _table(
                Network, NODE=(1, 22), ANODE=(2, 22), SONODE=(1, 22), HBNODE=(1, 22),
                GHBNODE=(1, 22),
            ),
            "signal": _same(Signal()),
        },
        build=lambda family, s: Silverbox(
            family, s.network.n, s.network.h, s.signal.end, s.signal.scale
        ),
        published={},
        dataset="silverbox",
    ),
    "point-cloud": Experiment(
        title="separation of a disc from the ring around it",
        figures="Fig. 5",
        models=tuple(FAMILIES),
        tolerance=1e-7,
        precision=64,
        seeds=3,
        sections={
            "network": _table(
                Network, NODE=(2, 20), ANODE=(3, 20), SONODE=(2, 13), HBNODE=(2, 14),
                GHBNODE=(2, 14),
            ),
            "training": _same(
                TrainingSettings(
                    epochs=150.0, batch=50, learning_rate=0.01, evaluate_every=5.0,
                    evaluation_batch=120,
                )
            ),
        },
        build=lambda family, s: PointCloud(family, s.network.n, s.network.h),
        published={"NODE": 525, "ANODE": 567, "SONODE": 528, "HBNODE": 568, "GHBNODE": 568},
    ),
    "mnist": Experiment(
        title="classification of handwritten digits",
        figures="Fig. 6",
        models=tuple(FAMILIES),
        tolerance=1e-5,
        precision=32,
        seeds=1,
        sections={
            "network": _table(
                Network, NODE=(1, 92), ANODE=(6, 64), SONODE=(5, 50), HBNODE=(5, 50),
                GHBNODE=(6, 45),
            ),
            "data": _presets(
                ImageData(train=7680, validation=250, test=500, shrink=2),
                ImageData(train=55000, validation=5000, test=10000),
            ),
            "training": _presets(
                TrainingSettings(
                    epochs=1.0, batch=64, learning_rate=1e-3, evaluate_every=0.5,
                    evaluation_batch=250,
                ),
                TrainingSettings(epochs=40.0, batch=64, learning_rate=1e-3),
            ),
        },
        build=lambda family, s: ImageClassification(
            Mnist(), family, s.network.n, s.network.h, s.data.train, s.data.validation, s.data.test,
            s.data.shrink,
        ),
        published={
            "NODE": 85315, "ANODE": 85462, "SONODE": 86179, "HBNODE": 85931, "GHBNODE": 85235
        },
        dataset="mnist",
    ),
    "cifar10": Experiment(
        title="classification of small photographs",
        figures="Figs. 1 and 7",
        models=tuple(FAMILIES),
        tolerance=1e-5,
        precision=32,
        seeds=1,
        sections={
            "network": _table(
                Network, NODE=(3, 125), ANODE=(13, 64), SONODE=(12, 50), HBNODE=(12, 51),
                GHBNODE=(12, 51),
            ),
            "data": _presets(
                CifarData(train=5000, validation=250, test=500, shrink=4, batches=(1,)),
                CifarData(train=45000, validation=5000, test=10000),
            ),
            "training": _presets(
                TrainingSettings(
                    epochs=1.0, batch=64, learning_rate=1e-3, evaluate_every=0.5,
                    evaluation_batch=250,
                ),
                TrainingSettings(epochs=40.0, batch=64, learning_rate=1e-3),
            ),
        },
        build=lambda family, s: ImageClassification(
            Cifar10(s.data.batches), family, s.network.n, s.network.h, s.data.train,
            s.data.validation, s.data.test, s.data.shrink, s.data.tolerances,
        ),
        published={
            "NODE": 173611, "ANODE": 172452, "SONODE": 171635, "HBNODE": 172916, "GHBNODE": 172916
        },
        dataset="cifar10",
    ),
    "plane-vibration": Experiment(
        title="forecasts of an irregularly sampled ground vibration test",
        figures="Fig. 8",
        models=tuple(FAMILIES),
        tolerance=1e-7,
        precision=64,
        seeds=3,
        sections={
            "network": _table(
                RecurrentNetwork, NODE=(21, 63, 84), ANODE=(27, 81, 108), SONODE=(19, 38, 19),
                HBNODE=(20, 20, 20), GHBNODE=(20, 20, 20),
            ),
            "data": _same(PlaneVibrationData()),
            "training": _presets(
                TrainingSettings(epochs=30.0, batch=64, learning_rate=1e-3),
                TrainingSettings(epochs=500.0, batch=64, learning_rate=1e-4),
            ),
        },
        build=lambda family, s: PlaneVibration(
            family, s.network.n, s.network.h1, s.network.h2, s.network.clip, s.data.drop,
            s.data.ahead, s.data.penalty, s.data.interval,
        ),
        published={
            "NODE": 15986, "ANODE": 16730, "SONODE": 16649, "HBNODE": 16127, "GHBNODE": 16127
        },
        dataset="f16",
    ),
    "walker2d": Experiment(
        title="one-step prediction of irregularly sampled walks",
        figures="Figs. 4 and 9",
        models=("NODE", "ANODE", "HBNODE", "GHBNODE"),
        tolerance=1e-7,
        precision=64,
        seeds=3,
        sections={
            "network": _table(
                RecurrentNetwork, NODE=(24, 72, 48), ANODE=(24, 73, 48), SONODE=(23, 46, 46),
                HBNODE=(24, 48, 48), GHBNODE=(24, 48, 48),
            ),
            "data": _presets(
                WalkerData(train=2048, validation=256, test=256),
                WalkerData(train=8900, validation=900, test=1500),
            ),
            "training": _presets(
                TrainingSettings(
                    epochs=30.0, batch=256, learning_rate=0.003, evaluate_every=2.0
                ),
                TrainingSettings(epochs=500.0, batch=256, learning_rate=0.003),
            ),
        },
        build=lambda family, s: Walker2D(
            family, s.network.n, s.network.h1, s.network.h2, s.network.clip, s.data.drop,
            s.data.train, s.data.validation, s.data.test,
        ),
        published={"NODE": 8729, "ANODE": 8815, "HBNODE": 8899, "GHBNODE": 8899},
        others=("SONODE",),
        dataset="walker2d",
    ),
}  # fmt: skip


def settings_type(task: str) -> type:
    """The settings of a task: a dataclass with a field for each section."""
    experiment = EXPERIMENTS[task]
    samples = {
        name: by[PRESETS[0]](experiment.models[0]) for name, by in experiment.sections.items()
    }
    fields = [(name, type(value)) for name, value in samples.items()]
    return dataclasses.make_dataclass(
        "Settings", [*fields, ("solver", SolverSettings)], frozen=True
    )


def preset(task: str, model: str, name: str, method: str) -> Any:
    """The settings of a task and model: an instance of `settings_type`."""
    experiment = EXPERIMENTS[task]
    sections = {section: by[name](model) for section, by in experiment.sections.items()}
    solver = {
        "paper": SolverSettings(experiment.tolerance, "dopri5", "continuous-full", False),
        "fast": SolverSettings(experiment.tolerance, "default", "default", True),
    }[method]
    return settings_type(task)(**sections, solver=solver)


def paper_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """{task: {model: settings}}: what the paper took, as plain values."""
    return {
        task: {
            model: dataclasses.asdict(preset(task, model, "paper", "paper"))
            for model in (*experiment.models, *experiment.others)
        }
        for task, experiment in EXPERIMENTS.items()
    }


def build(task: str, model: str, settings: Any) -> AbstractTask | AbstractStudy:
    """The task with a model's family and sizes."""
    return EXPERIMENTS[task].build(FAMILIES[model], settings)
