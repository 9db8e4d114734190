"""WHAT is integrated: the families of neural ODEs as pure vector fields, without a solver."""

from .base import AbstractDynamics as AbstractDynamics
from .base import NystromForm as NystromForm
from .first_order import ANODE as ANODE
from .first_order import NODE as NODE
from .heavy_ball import GHBNODE as GHBNODE
from .heavy_ball import HBNODE as HBNODE
from .paced import Paced as Paced
from .parameters import Damping as Damping
from .parameters import Restoring as Restoring
from .second_order import SONODE as SONODE
