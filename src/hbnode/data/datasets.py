"""The five data sets of the paper: files, checksums, addresses, citations."""

from __future__ import annotations

from importlib import resources

from .description import Archive, DataFile, Dataset, Form

_MNIST_URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_HEAVY_BALL_URL = (
    "https://raw.githubusercontent.com/hedixia/HeavyBallNODE/"
    "cd1065febea8ebf51eda954734e1cbe1fd565ae9/data/"
)
_WALKER_ZIP_URLS = (
    "https://www.mit.edu/~mlechner/walker.zip",
    "https://people.csail.mit.edu/mlechner/datasets/walker.zip",
    "https://pub.ist.ac.at/~mlechner/datasets/walker.zip",
)
_WALKER_FILE_URL = (
    "https://raw.githubusercontent.com/raminmh/CfC/"
    "59f6e01fd4809331f6dd3ddf0f8bf5890c9e71a7/data/walker/"
)


def _mnist_file(name: str, size: int, sha256: str, plain_size: int, plain_sha256: str) -> DataFile:
    """`plain_size` and `plain_sha256` belong to the decompressed file. A checksum of the gzip file
    says nothing about it, since compressing again need not give the same bytes."""
    return DataFile(
        f"mnist/{name}.gz",
        size,
        sha256,
        urls=tuple(f"{url}{name}.gz" for url in _MNIST_URLS),
        others=(Form(f"mnist/{name}", plain_size, plain_sha256),),
    )


MNIST = Dataset(
    name="mnist",
    title="MNIST handwritten digits",
    files=(
        _mnist_file(
            "train-images-idx3-ubyte",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            47040016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        _mnist_file(
            "train-labels-idx1-ubyte",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            60008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        _mnist_file(
            "t10k-images-idx3-ubyte",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            7840016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        _mnist_file(
            "t10k-labels-idx1-ubyte",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            10008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    megabytes=12,
    citation=(
        "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document "
        "recognition. Proceedings of the IEEE 86(11), 1998."
    ),
    licence="No licence is stated by the authors; commonly cited as CC BY-SA 3.0.",
    by_hand="The four gzip files of MNIST in IDX format, as they are or decompressed.",
)


def _cifar10_file(name: str, md5: str, sha256: str | None = None) -> DataFile:
    return DataFile(f"cifar10/cifar-10-batches-bin/{name}.bin", 30730000, sha256, md5)


CIFAR10 = Dataset(
    name="cifar10",
    title="CIFAR-10 small photographs",
    files=(
        _cifar10_file(
            "data_batch_1",
            "5dd7e06a14cb22eb9f671a540d1b7c25",
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        _cifar10_file("data_batch_2", "5ea93a67294ea407fff1d09f752e9692"),
        _cifar10_file("data_batch_3", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        _cifar10_file("data_batch_4", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        _cifar10_file("data_batch_5", "53f37980c15c3d472c316c40844f3f0d"),
        _cifar10_file(
            "test_batch",
            "803d5f7f4d78ea53de84dbe85f74fb6d",
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
    archive=Archive(
        "cifar10/cifar-10-binary.tar.gz",
        170052171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "c32a1d4ab5d03f1284b67883e8d87530",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    ),
    megabytes=170,
    citation=(
        "A. Krizhevsky: Learning multiple layers of features from tiny images. Technical report, "
        "University of Toronto, 2009."
    ),
    licence="No licence is stated by the authors, who ask for the citation.",
    by_hand="The binary version (suitable for C programs) of CIFAR-10, as it is or unpacked.",
)


def _heavy_ball_file(path: str, name: str, size: int, sha256: str) -> DataFile:
    """A file that the repository of the paper has under another name, which is accepted, too."""
    alias = f"{path.rsplit('/', 1)[0]}/{name}"
    return DataFile(
        path, size, sha256, urls=(_HEAVY_BALL_URL + name,), others=(Form(alias, size, sha256),)
    )


F16 = Dataset(
    name="f16",
    title="F-16 ground vibration test, full-spectrum multisine, level 1",
    files=(
        _heavy_ball_file(
            "f16/F16Data_FullMSine_Level1.csv",
            "pv.csv",
            3361461,
            "b72a9d063e392570bb20c26f4763232e30262e5914d946e475e67df40880db6d",
        ),
    ),
    megabytes=4,
    citation=(
        "J. P. Noël, M. Schoukens: F-16 aircraft benchmark based on ground vibration test data. "
        "Workshop on Nonlinear System Identification Benchmarks, 2017."
    ),
    licence="Not established: download it for your own use, and do not pass it on.",
    by_hand=(
        "The official zip file has DOI 10.4121/12954911; the file is its member "
        "F16GVT_Files/BenchmarkData/F16Data_FullMSine_Level1.csv."
    ),
)

SILVERBOX = Dataset(
    name="silverbox",
    title="Silverbox, an electronic Duffing oscillator",
    files=(
        _heavy_ball_file(
            "silverbox/SNLS80mV.csv",
            "sb.csv",
            2649632,
            "e7076735427b0b9bbc18a2a43b78022219a76623b15b494be559dc58b0224279",
        ),
    ),
    megabytes=3,
    citation=(
        "T. Wigren, J. Schoukens: Three free data sets for development and benchmarking in "
        "nonlinear system identification. European Control Conference, 2013."
    ),
    licence="Not established. The authors call the data free, and ask for the citation.",
    by_hand="The file SNLS80mV.csv of the Silverbox benchmark.",
)


def _walker2d_files() -> tuple[DataFile, ...]:
    """Names, sizes and checksums of the 400 rollouts stand in a text file beside this module."""
    text = resources.files("hbnode.data").joinpath("walker2d_files.txt").read_text("ascii")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        DataFile(f"walker2d/{name}", int(size), sha256, urls=(_WALKER_FILE_URL + name,))
        for name, size, sha256 in rows
    )


WALKER2D = Dataset(
    name="walker2d",
    title="Walker2D, simulated walking of a trained policy",
    files=_walker2d_files(),
    archive=Archive("walker2d/walker.zip", urls=_WALKER_ZIP_URLS),
    megabytes=35,
    citation=(
        "M. Lechner, R. Hasani: Learning long-term dependencies in irregularly-sampled time "
        "series. arXiv:2006.04418, 2020."
    ),
    licence="No licence is stated with the data; the code of the authors is under Apache-2.0.",
    by_hand="The 400 files rollout_000.npy to rollout_399.npy, or the zip file that holds them.",
)

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (MNIST, CIFAR10, F16, SILVERBOX, WALKER2D)
}
