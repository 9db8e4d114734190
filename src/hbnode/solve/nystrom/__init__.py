"""Runge–Kutta–Nyström pairs: one method, one file."""

from .base import AbstractNystrom as AbstractNystrom
from .base import NystromTableau as NystromTableau
from .rkn43 import Nystrom4 as Nystrom4
from .rkn54 import Nystrom5 as Nystrom5
from .rkn64 import Nystrom6 as Nystrom6
from .rkn86 import Nystrom8 as Nystrom8
