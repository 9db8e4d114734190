"""Heavy-ball neural ordinary differential equations on JAX."""

from .dynamics import ANODE as ANODE
from .dynamics import GHBNODE as GHBNODE
from .dynamics import HBNODE as HBNODE
from .dynamics import NODE as NODE
from .dynamics import SONODE as SONODE
from .dynamics import Damping as Damping
from .dynamics import Restoring as Restoring
from .solve import Checkpointed as Checkpointed
from .solve import ContinuousAdjoint as ContinuousAdjoint
from .solve import DiscreteAdjoint as DiscreteAdjoint
from .solve import Nystrom4 as Nystrom4
from .solve import Nystrom5 as Nystrom5
from .solve import Nystrom6 as Nystrom6
from .solve import Nystrom8 as Nystrom8
from .solve import solve as solve
