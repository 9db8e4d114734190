"""HOW it is integrated: solvers, gradients and counts. The only place that imports diffrax."""

from diffrax import Dopri5 as Dopri5
from diffrax import Tsit5 as Tsit5

from .adjoints import AbstractGradient as AbstractGradient
from .adjoints import Checkpointed as Checkpointed
from .adjoints import ContinuousAdjoint as ContinuousAdjoint
from .adjoints import DiscreteAdjoint as DiscreteAdjoint
from .nystrom import AbstractNystrom as AbstractNystrom
from .nystrom import Nystrom4 as Nystrom4
from .nystrom import Nystrom5 as Nystrom5
from .nystrom import Nystrom6 as Nystrom6
from .nystrom import Nystrom8 as Nystrom8
from .solution import RESULTS as RESULTS
from .solution import Solution as Solution
from .solution import Stats as Stats
from .solve import prefers_nystrom as prefers_nystrom
from .solve import solve as solve
