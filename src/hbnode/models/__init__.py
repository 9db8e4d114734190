"""Trainable models around a solve."""

from .families import field_inputs as field_inputs
from .families import is_second_order as is_second_order
from .families import make_dynamics as make_dynamics
from .method import FAILURES as FAILURES
from .method import Method as Method
from .method import Pass as Pass
from .method import failure_code as failure_code
from .networks import Convolution as Convolution
from .networks import ConvolutionalField as ConvolutionalField
from .networks import ConvolutionalStart as ConvolutionalStart
from .networks import Dense as Dense
from .networks import DenseField as DenseField
from .networks import Linear as Linear
from .networks import count_parameters as count_parameters
from .networks import elu as elu
from .networks import hard_tanh as hard_tanh
from .networks import leaky_relu as leaky_relu
from .ode_block import OdeBlock as OdeBlock
from .ode_block import position as position
from .ode_rnn import DenseCell as DenseCell
from .ode_rnn import LinearStart as LinearStart
from .ode_rnn import OdeRnn as OdeRnn
from .ode_rnn import SumCell as SumCell
from .ode_rnn import ZeroStart as ZeroStart
from .ode_rnn import clip_adjoint as clip_adjoint
