"""The experiments of the paper: data, model and loss of each."""

from .base import AbstractStudy as AbstractStudy
from .base import AbstractTask as AbstractTask
from .cifar10 import Cifar10 as Cifar10
from .descent import Descent as Descent
from .images import ImageClassification as ImageClassification
from .mnist import Mnist as Mnist
from .plane_vibration import PlaneVibration as PlaneVibration
from .point_cloud import PointCloud as PointCloud
from .silverbox import Silverbox as Silverbox
from .walker2d import Walker2D as Walker2D
