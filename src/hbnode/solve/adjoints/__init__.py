"""HOW a solve is differentiated: one gradient, one file."""

from .base import AbstractGradient as AbstractGradient
from .continuous import ContinuousAdjoint as ContinuousAdjoint
from .discrete import Checkpointed as Checkpointed
from .discrete import DiscreteAdjoint as DiscreteAdjoint
