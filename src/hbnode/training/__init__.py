"""Training of any task: many seeds at once, evaluations, checkpoints. Knows no task by name."""

from .fit import Interrupted as Interrupted
from .fit import fit as fit
from .program import REASONS as REASONS
from .settings import TrainingSettings as TrainingSettings
