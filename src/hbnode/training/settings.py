"""What training can be told."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Adam on shuffled batches."""

    epochs: float
    """Passes over the training data; fractions are allowed."""
    batch: int
    """Samples in a batch. What is left over at the end of a pass is not used in it."""
    learning_rate: float
    """Step size of Adam."""
    evaluate_every: float = 1.0
    """Passes between two evaluations on all splits."""
    evaluation_batch: int = 256
    """Samples in a batch of an evaluation."""
    explosion: float = 1e6
    """A training loss above this, or one that is not finite, counts as divergence."""

    def __post_init__(self):
        for name in ("epochs", "batch", "learning_rate", "evaluate_every", "evaluation_batch"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"training.{name} must be positive, got {value}.")

    def updates_per_epoch(self, samples: int) -> int:
        if samples < self.batch:
            raise ValueError(
                f"training.batch is {self.batch}, and there are only {samples} training samples."
            )
        return samples // self.batch

    def updates(self, samples: int) -> int:
        """How many updates there are in all."""
        return max(1, round(self.epochs * self.updates_per_epoch(samples)))

    def interval(self, samples: int) -> int:
        """How many updates there are between two evaluations."""
        return max(1, round(self.evaluate_every * self.updates_per_epoch(samples)))
