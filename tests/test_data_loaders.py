"""The loaders, on stand-ins of the originals and, where `HBNODE_DATA_DIR` has them, on the real
files; the checksums against those that lie beside the real files."""

import gzip
import hashlib
import io
import os
import re
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from data_server import data_file
from hbnode import data
from hbnode.data import DATASETS, Archive, DataError, Dataset, Form, Status

LOADERS = {
    "mnist": data.load_mnist,
    "cifar10": lambda: data.load_cifar10([1]),
    "f16": data.load_f16,
    "silverbox": data.load_silverbox,
    "walker2d": data.load_walker2d,
}
READ = {"cifar10": ("data_batch_1.bin", "test_batch.bin")}  # of the others, all files


def real_folder():
    """Where the real data lie, as far as the environment says."""
    chosen = os.environ.get("HBNODE_DATA_DIR")
    if not chosen:
        pytest.skip("HBNODE_DATA_DIR is not set, so that there are no real data to test with")
    return Path(chosen)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HBNODE_OFFLINE", "1")


@pytest.fixture
def real(offline):
    """Calls a loader on the real data."""

    def load(name):
        root = real_folder()
        files = [f for f in DATASETS[name].files if f.name in READ.get(name, (f.name,))]
        absent = [file.path for file in files if not (root / file.path).is_file()]
        if absent:
            pytest.skip(f"HBNODE_DATA_DIR={root} lacks {absent[0]}")
        return LOADERS[name]()

    return load


@pytest.fixture
def root(offline, monkeypatch, tmp_path):
    monkeypatch.setenv("HBNODE_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def pretend(root, monkeypatch):
    """Puts other files into the place of a data set, so that its loader takes them as right."""

    def put(name, contents, archive=None):
        files = tuple(data_file(path, content) for path, content in contents.items())
        fake = Dataset(name, name, files, 1, "", "", "", archive)
        monkeypatch.setitem(DATASETS, name, fake)
        return fake

    return put


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


# The catalogue


def forms(dataset):
    for file in dataset.files:
        yield from (file, *file.others)
    if dataset.archive is not None:
        yield dataset.archive


@pytest.mark.parametrize("name", DATASETS)
def test_the_catalogue_is_complete(name):
    dataset = DATASETS[name]
    assert dataset.name == name
    for form in forms(dataset):
        assert form.path.startswith(f"{name}/") and ".." not in form.path
        assert form.sha256 is None or re.fullmatch("[0-9a-f]{64}", form.sha256)
        assert form.md5 is None or re.fullmatch("[0-9a-f]{32}", form.md5)
    for file in dataset.files:
        assert file.size and file.checksum
        archive = dataset.archive
        urls = file.urls or (archive.urls if archive is not None else ())
        assert urls and all(url.startswith("https://") for url in urls)
    paths = [form.path for form in forms(dataset)]
    assert len(set(paths)) == len(paths)
    size = sum(file.size or 0 for file in dataset.files)
    if dataset.archive is not None and dataset.archive.size is not None:
        size = dataset.archive.size
    assert abs(dataset.megabytes - size / 1e6) <= 1


def test_the_number_of_files():
    counts = {name: len(dataset.files) for name, dataset in DATASETS.items()}
    assert counts == {"mnist": 4, "cifar10": 6, "f16": 1, "silverbox": 1, "walker2d": 400}
    assert [file.name for file in DATASETS["walker2d"].files] == [
        f"rollout_{i:03}.npy" for i in range(400)
    ]


def test_checksums_against_the_list_beside_the_real_files():
    sums = real_folder() / "SHA256SUMS"
    if not sums.is_file():
        pytest.skip(f"there is no {sums}")
    listed = {}
    for line in sums.read_text().splitlines():
        checksum, path = line.split()
        listed[path.removeprefix("./").removeprefix("*")] = checksum
    ours = {file.path: file.sha256 for set_ in DATASETS.values() for file in set_.files}
    compared = {path: checksum for path, checksum in listed.items() if path in ours}
    assert len(compared) == 4 + 2 + 1 + 1 + 400
    assert {path: ours[path] for path in compared} == compared


@pytest.mark.parametrize("name", DATASETS)
def test_verify_the_real_files(name):
    root = real_folder()
    found = {path: state for path, state in data.verify(name) if state is not Status.MISSING}
    if not found:
        pytest.skip(f"HBNODE_DATA_DIR={root} lacks {name}")
    assert set(found.values()) == {Status.OK}
    assert data.status(name).present == len(found)


def test_the_catalogue_knows_the_decompressed_mnist_files():
    root = real_folder()
    for file in DATASETS["mnist"].files:
        path = root / file.path
        if not path.is_file():
            pytest.skip(f"HBNODE_DATA_DIR={root} lacks {file.path}")
        plain = gzip.decompress(path.read_bytes())
        (form,) = file.others
        assert (form.size, form.sha256) == (len(plain), hashlib.sha256(plain).hexdigest())


# Real data


def test_real_mnist(real):
    images, labels, test_images, test_labels = real("mnist")
    assert images.shape == (60000, 28, 28) and images.dtype == np.uint8
    assert test_images.shape == (10000, 28, 28)
    assert labels[:5].tolist() == [5, 0, 4, 1, 9] and test_labels[:3].tolist() == [7, 2, 1]
    assert np.bincount(test_labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009
    ]  # fmt: skip
    assert abs(images.mean() / 255 - 0.1307) < 1e-4


def test_real_cifar10(real):
    images, labels, test_images, test_labels = real("cifar10")
    assert images.shape == test_images.shape == (10000, 32, 32, 3)
    assert images.dtype == np.uint8 and labels.dtype == np.int32
    assert labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert np.bincount(test_labels).tolist() == [1000] * 10
    # The known means of the channels: in another order of the axes these would be equal.
    means = test_images.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.4942, 0.4851, 0.4504], atol=1e-4)


def test_real_f16(real):
    series = real("f16")
    assert series.shape == (73728, 5) and series.dtype == np.float64
    assert series[0].tolist() == [0.95714, -0.00045788, -0.018392, -0.049607, -0.046328]


def test_real_silverbox(real):
    series = real("silverbox")
    assert series.shape == (131072, 2)
    assert series[1].tolist() == [0.0066102, 0.012971]


def test_real_walker2d(real):
    rollouts = real("walker2d")
    assert len(rollouts) == 400 and sum(len(rollout) for rollout in rollouts) == 254963
    assert {rollout.shape[1] for rollout in rollouts} == {17}
    # In the order of the names: the size of a file tells the number of its steps.
    steps = [((file.size or 0) - 128) // (17 * 8) for file in DATASETS["walker2d"].files]
    assert [len(rollout) for rollout in rollouts] == steps


# Stand-ins


def cifar_batches():
    """One image for each file; the label is the number of the batch, the test batch has 9."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3072), np.uint8)
    labels = [1, 2, 3, 4, 5, 9]
    return {
        f"cifar10/cifar-10-batches-bin/{name}": bytes([label]) + row.tobytes()
        for name, label, row in zip(names, labels, pixels, strict=True)
    }, pixels.reshape(6, 3, 32, 32)


def test_cifar10_from_the_original_tar(root, pretend):
    contents, pixels = cifar_batches()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in contents.items():
            member = tarfile.TarInfo(path.removeprefix("cifar10/"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    pretend("cifar10", contents, Archive("cifar10/cifar-10-binary.tar.gz"))
    write(root / "cifar10/cifar-10-binary.tar.gz", buffer.getvalue())
    images, labels, test_images, test_labels = data.load_cifar10()
    assert labels.tolist() == [1, 2, 3, 4, 5] and test_labels.tolist() == [9]
    np.testing.assert_array_equal(images.transpose(0, 3, 1, 2), pixels[:5])
    np.testing.assert_array_equal(test_images.transpose(0, 3, 1, 2), pixels[5:])


def test_cifar10_from_some_of_its_files(root, pretend):
    contents, pixels = cifar_batches()
    pretend("cifar10", contents)
    for number in (2, 4):
        path = f"cifar10/cifar-10-batches-bin/data_batch_{number}.bin"
        write(root / path, contents[path])
    path = "cifar10/cifar-10-batches-bin/test_batch.bin"
    write(root / path, contents[path])
    images, labels, _, _ = data.load_cifar10((4, 2))
    assert labels.tolist() == [4, 2]
    np.testing.assert_array_equal(images.transpose(0, 3, 1, 2), pixels[[3, 1]])
    with pytest.raises(DataError, match=r"data_batch_1\.bin"):
        data.load_cifar10((1, 2))


@pytest.mark.parametrize("batches", [(), (0,), (6,), (1, 1)])
def test_cifar10_has_five_batches(batches):
    with pytest.raises(ValueError, match="`batches` must be different numbers from 1 to 5"):
        data.load_cifar10(batches)


@pytest.mark.parametrize("decompressed", [False, True])
def test_mnist_with_and_without_gzip(root, monkeypatch, decompressed):
    values = np.arange(2 * 28 * 28).astype(np.uint8).reshape(2, 28, 28)
    plain = {
        "images-idx3": b"\0\0\x08\x03" + np.array([2, 28, 28], ">u4").tobytes() + values.tobytes(),
        "labels-idx1": b"\0\0\x08\x01" + np.array([2], ">u4").tobytes() + b"\7\3",
    }
    files = []
    for part in ("train", "t10k"):
        for kind, content in plain.items():
            name = f"mnist/{part}-{kind}-ubyte"
            other = Form(name, len(content), hashlib.sha256(content).hexdigest())
            packed = gzip.compress(content)
            files.append(data_file(f"{name}.gz", packed, others=(other,)))
            write(
                root / (name if decompressed else f"{name}.gz"), content if decompressed else packed
            )
    monkeypatch.setitem(DATASETS, "mnist", Dataset("mnist", "", tuple(files), 1, "", "", ""))
    images, labels, test_images, test_labels = data.load_mnist()
    np.testing.assert_array_equal(images, values)
    np.testing.assert_array_equal(test_images, values)
    assert labels.tolist() == test_labels.tolist() == [7, 3]


def rollouts():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(steps, 17)) for steps in (5, 3)]
    contents = {}
    for i, array in enumerate(arrays):
        buffer = io.BytesIO()
        np.save(buffer, array)
        contents[f"walker2d/rollout_{i:03}.npy"] = buffer.getvalue()
    return arrays, contents


def test_walker2d_from_the_original_zip(root, pretend):
    arrays, contents = rollouts()
    pretend("walker2d", contents, Archive("walker2d/walker.zip"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in reversed(contents.items()):
            archive.writestr(path.replace("walker2d/", "walker/"), content)
    write(root / "walker2d/walker.zip", buffer.getvalue())
    for found, expected in zip(data.load_walker2d(), arrays, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["F16Data_FullMSine_Level1.csv", "pv.csv"])
def test_f16_under_both_names(root, monkeypatch, name):
    content = b'"Force","Voltage","A1","A2","A3","Fs",\n1,2,3,4,5,400,\n6,7,8,9,1e1,,\n'
    checksum = hashlib.sha256(content).hexdigest()
    other = Form("f16/pv.csv", len(content), checksum)
    file = data_file("f16/F16Data_FullMSine_Level1.csv", content, others=(other,))
    monkeypatch.setitem(DATASETS, "f16", Dataset("f16", "", (file,), 1, "", "", ""))
    write(root / "f16" / name, content)
    assert data.load_f16().tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


def test_loading_writes_nothing(root, pretend):
    _, contents = rollouts()
    pretend("walker2d", contents)
    for path, content in contents.items():
        write(root / path, content)
    before = {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}
    data.load_walker2d()
    data.fetch("walker2d")
    data.verify("walker2d")
    data.status("walker2d")
    assert {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]} == before


def test_a_damaged_file_is_not_loaded(root, pretend):
    _, contents = rollouts()
    pretend("walker2d", contents)
    for path, content in contents.items():
        write(root / path, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"rollout_000\.npy is not .*\(wrong checksum\)"):
        data.load_walker2d()


@pytest.mark.parametrize("name", LOADERS)
def test_offline_a_loader_tells_what_is_missing(root, name):
    with pytest.raises(DataError) as caught:
        LOADERS[name]()
    file = DATASETS[name].files[0]
    assert "HBNODE_OFFLINE" in str(caught.value) and str(root / file.path) in str(caught.value)
    assert list(root.iterdir()) == []
