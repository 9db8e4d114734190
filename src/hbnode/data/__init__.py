"""The data sets of the paper: fetched, checked, loaded, and cut into windows."""

from .datasets import DATASETS as DATASETS
from .description import Archive as Archive
from .description import DataFile as DataFile
from .description import Dataset as Dataset
from .description import Form as Form
from .fetching import Presence as Presence
from .fetching import fetch as fetch
from .fetching import status as status
from .fetching import verify as verify
from .loaders import load_cifar10 as load_cifar10
from .loaders import load_f16 as load_f16
from .loaders import load_mnist as load_mnist
from .loaders import load_silverbox as load_silverbox
from .loaders import load_walker2d as load_walker2d
from .splits import Forecasts as Forecasts
from .splits import ImageSplit as ImageSplit
from .splits import PlaneVibration as PlaneVibration
from .splits import Walker2D as Walker2D
from .splits import Windows as Windows
from .splits import image_split as image_split
from .splits import plane_vibration_windows as plane_vibration_windows
from .splits import walker2d_windows as walker2d_windows
from .store import DataError as DataError
from .store import Status as Status
from .store import data_dir as data_dir
