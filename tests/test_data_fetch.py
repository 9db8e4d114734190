"""Downloads from a server that breaks off, lies or is away; nothing here needs a network."""

import dataclasses
import errno
import hashlib
import io
import os
import socket
import sys
import tarfile
import threading
import zipfile

import numpy as np
import pytest

from data_server import data_file, running
from hbnode import data
from hbnode.data import (
    Archive,
    DataError,
    Dataset,
    Form,
    Status,
    download,
    fetch,
    fetching,
    status,
    verify,
)
from hbnode.data.progress import Progress

CONTENT = np.random.default_rng(0).bytes(100_000)
HALF = len(CONTENT) // 2
NAMES = ("a.npy", "b.npy", "c.npy")
MEMBERS = {name: f"contents of {name}".encode() for name in NAMES}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        yield server


@pytest.fixture
def root(monkeypatch, tmp_path):
    folder = tmp_path / "data"
    monkeypatch.setenv("HBNODE_DATA_DIR", str(folder))
    monkeypatch.delenv("HBNODE_OFFLINE", raising=False)
    return folder


def dataset_of(*files, archive=None):
    return Dataset(
        "toy", "Toy data", files, 1, "Nobody, 2024", "none", "Ask at the desk.", archive=archive
    )


def single(*urls, **more):
    return dataset_of(data_file("toy/x.bin", CONTENT, *urls, **more))


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_a_file_is_fetched_once(server, root):
    toy = single(server.serve("/x", CONTENT))
    assert verify(toy) == [(root / "toy/x.bin", Status.MISSING)]
    assert status(toy) == (0, 1)
    assert fetch(toy, progress=False) == root
    assert (root / "toy/x.bin").read_bytes() == CONTENT
    assert listing(root) == ["toy/x.bin"]
    assert verify(toy) == [(root / "toy/x.bin", Status.OK)]
    assert status(toy) == (1, 1)
    fetch(toy, progress=False)
    assert server.log == [("/x", None)]


def test_a_broken_connection_is_continued(server, root):
    fetch(single(server.serve("/x", CONTENT, breaks=[1000, 500])), progress=False)
    assert (root / "toy/x.bin").read_bytes() == CONTENT
    assert server.log == [("/x", None), ("/x", "bytes=1000-"), ("/x", "bytes=1500-")]


def test_a_connection_that_keeps_breaking_is_given_up_and_continued_later(server, root):
    toy = single(server.serve("/x", CONTENT, breaks=[1000, 500, 10]))
    with pytest.raises(DataError, match="the connection broke off"):
        fetch(toy, progress=False)
    assert listing(root) == ["toy/x.bin.part"]
    assert verify(toy) == [(root / "toy/x.bin", Status.MISSING)]
    fetch(toy, progress=False)
    assert server.log[-1] == ("/x", "bytes=1510-")
    assert (root / "toy/x.bin").read_bytes() == CONTENT


def test_an_interrupted_check_loses_nothing(server, root, monkeypatch):
    toy = single(server.serve("/x", CONTENT))

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "check_file", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(toy, progress=False)
    assert listing(root) == ["toy/x.bin.part"]
    fetch(toy, progress=False)
    assert listing(root) == ["toy/x.bin"]
    assert len(server.log) == 1


def test_a_server_that_cannot_continue_starts_again(server, root):
    put(root / "toy/x.bin.part", CONTENT[:HALF])
    fetch(single(server.serve("/x", CONTENT, ranges=False)), progress=False)
    assert server.log == [("/x", f"bytes={HALF}-")]
    assert (root / "toy/x.bin").read_bytes() == CONTENT


def test_the_start_of_another_file_is_not_kept(server, root):
    put(root / "toy/x.bin.part", b"?" * HALF)
    fetch(single(server.serve("/x", CONTENT)), progress=False)
    assert server.log == [("/x", f"bytes={HALF}-"), ("/x", None)]
    assert (root / "toy/x.bin").read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_thrown_away(server, root):
    put(root / "toy/x.bin.part", CONTENT + b"?")
    fetch(single(server.serve("/x", CONTENT)), progress=False)
    assert server.log == [("/x", None)]
    assert (root / "toy/x.bin").read_bytes() == CONTENT


def test_the_wrong_range_is_not_appended(server, root):
    put(root / "toy/x.bin.part", CONTENT[:HALF])
    bad = server.serve("/bad", CONTENT, shift=10)
    fetch(single(bad, server.serve("/good", CONTENT)), progress=False)
    assert server.log == [("/bad", f"bytes={HALF}-"), ("/good", f"bytes={HALF}-")]
    assert (root / "toy/x.bin").read_bytes() == CONTENT


def test_mirrors_stand_in_for_each_other(server, root):
    changed = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    toy = single(
        server.url("/absent"),
        server.serve("/short", CONTENT[:-1]),
        server.serve("/unknown-length", CONTENT[:-1], length=False),
        server.serve("/long", CONTENT + b"?", length=False),
        server.serve("/changed", changed),
        server.serve("/good", CONTENT),
    )
    fetch(toy, progress=False)
    assert [path for path, _ in server.log] == [
        "/absent", "/short", "/unknown-length", "/long", "/changed", "/good"
    ]  # fmt: skip
    assert (root / "toy/x.bin").read_bytes() == CONTENT


def test_a_failure_tells_all_addresses_and_what_to_do(server, root):
    with socket.socket() as reserved:  # bound, but nobody listens
        reserved.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{reserved.getsockname()[1]}/x"
        urls = [
            away,
            server.url("/absent"),
            server.serve("/short", b"short"),
            server.serve("/changed", b"?" * len(CONTENT)),
        ]
        with pytest.raises(DataError) as caught:
            fetch(single(*urls), progress=False)
    refused = f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"
    assert str(caught.value) == (
        "Toy data: x.bin could not be downloaded. Tried:\n"
        f"  {urls[0]}\n    ConnectionError: {refused}\n"
        f"  {urls[1]}\n    HTTP 404 Not Found\n"
        f"  {urls[2]}\n    it has 5 bytes there instead of 100000\n"
        f"  {urls[3]}\n    wrong checksum\n"
        f"To put it there by hand, save it as\n  {root / 'toy/x.bin'}\nAsk at the desk."
    )
    assert listing(root) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CONTENT[:HALF], Status.TRUNCATED),
        (CONTENT + b"?", Status.WRONG_SIZE),
        (b"?" * len(CONTENT), Status.WRONG_CHECKSUM),
    ],
)
def test_a_wrong_file_is_named_and_left_alone(server, root, content, expected):
    toy = single(server.serve("/x", CONTENT))
    path = root / "toy/x.bin"
    put(path, content)
    assert verify(toy) == [(path, expected)]
    # The size is all that `status` looks at.
    assert status(toy).present == (expected is Status.WRONG_CHECKSUM)
    with pytest.raises(DataError) as caught:
        fetch(toy, progress=False)
    message = str(caught.value)
    assert str(path) in message and f"({expected})" in message
    assert hashlib.sha256(CONTENT).hexdigest() in message
    assert hashlib.sha256(content).hexdigest() in message
    assert path.read_bytes() == content
    assert server.log == []


def test_another_form_of_a_file_is_accepted(server, root):
    plain = Form("toy/plain", 5, hashlib.sha256(b"plain").hexdigest())
    toy = single(server.serve("/x", CONTENT), others=(plain,))
    put(root / "toy/plain", b"plain")
    fetch(toy, progress=False)
    assert status(toy) == (1, 1)
    assert verify(toy) == [(root / "toy/plain", Status.OK)]
    put(root / "toy/x.bin", b"wrong")
    fetch(toy, progress=False)
    assert dict(verify(toy)) == {
        root / "toy/plain": Status.OK,
        root / "toy/x.bin": Status.TRUNCATED,
    }
    assert server.log == []


def test_md5_is_checked_where_sha256_is_unknown(server, root):
    digest = hashlib.md5(CONTENT).hexdigest()
    file = dataclasses.replace(single(server.serve("/x", CONTENT)).files[0], sha256=None)
    fetch(dataset_of(dataclasses.replace(file, md5=digest)), progress=False)
    wrong = dataset_of(dataclasses.replace(file, md5="0" * 32))
    assert verify(wrong) == [(root / "toy/x.bin", Status.WRONG_CHECKSUM)]
    with pytest.raises(DataError, match=f"md5 {digest}"):
        fetch(wrong, progress=False)


@pytest.mark.parametrize("value", ["1", "true", "yes"])
def test_offline_nothing_is_asked_for(server, root, monkeypatch, value):
    toy = single(server.serve("/x", CONTENT))
    monkeypatch.setenv("HBNODE_OFFLINE", value)
    with pytest.raises(DataError) as caught:
        fetch(toy, progress=False)
    for part in ("HBNODE_OFFLINE", server.url("/x"), str(root / "toy/x.bin"), "Ask at the desk."):
        assert part in str(caught.value)
    assert not root.exists() and server.log == []
    put(root / "toy/x.bin", CONTENT)
    assert fetch(toy, progress=False) == root


@pytest.mark.parametrize("value", ["", "0", "false", "No"])
def test_offline_can_be_switched_off(server, root, monkeypatch, value):
    monkeypatch.setenv("HBNODE_OFFLINE", value)
    fetch(single(server.serve("/x", CONTENT)), progress=False)
    assert (root / "toy/x.bin").is_file()


def test_a_folder_that_cannot_be_written(server, tmp_path, monkeypatch):
    # A file in its place, since permissions do not stop root.
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HBNODE_DATA_DIR", str(tmp_path / "file" / "data"))
    with pytest.raises(DataError, match="cannot be written") as caught:
        fetch(single(server.serve("/x", CONTENT)), progress=False)
    assert "Set HBNODE_DATA_DIR" in str(caught.value)


@pytest.mark.parametrize("in_archive", [False, True])
def test_two_at_a_time_download_once(server, root, in_archive):
    if in_archive:
        toy = packed(server, server.serve("/x", zipped(MEMBERS), delay=0.2))
    else:
        toy = single(server.serve("/x", CONTENT, delay=0.2))
    threads = [
        threading.Thread(target=fetch, args=(toy,), kwargs=dict(progress=False)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify(toy) == [(root / file.path, Status.OK) for file in toy.files]
    assert len(server.log) == 1


def test_what_never_ends_is_cut_off(server, root):
    class Counter(Progress):
        done = most = 0

        def add(self, count):
            self.done += count
            self.most = max(self.most, self.done)

    counter = Counter("", None, shown=False)
    url = server.serve("/x", CONTENT + bytes(10_000_000), length=False)
    part = root.parent / "x.part"
    reason = download.download(url, part, len(CONTENT), lambda _: "too long", counter)
    assert reason == "too long" and not part.exists()
    assert counter.most < 1_000_000 and counter.done == 0


def test_an_unknown_name_tells_the_names():
    for function in (fetch, status, verify):
        with pytest.raises(DataError, match=r"'minst'.*mnist, cifar10, f16, silverbox, walker2d"):
            function("minst")


def test_the_folder_is_the_cache_of_the_user_unless_told(monkeypatch, tmp_path):
    monkeypatch.setenv("HBNODE_DATA_DIR", str(tmp_path))
    assert data.data_dir() == tmp_path
    monkeypatch.setenv("HBNODE_DATA_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.data_dir().name == "hbnode" and data.data_dir() != tmp_path


# Archives


def zipped(members, folder="walker"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{folder}/{name}", content)
    return buffer.getvalue()


def tarred(members, folder="walker"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKED = {"zip": zipped, "tar.gz": tarred}


def packed(server, *urls, files=(), suffix="zip", **known):
    """A data set of three files in an archive at `urls`; `files` have an address of their own."""
    return dataset_of(
        *(
            data_file(
                f"toy/{name}",
                content,
                *([server.serve(f"/{name}", content)] if name in files else []),
            )
            for name, content in MEMBERS.items()
        ),
        archive=Archive(f"toy/all.{suffix}", urls=urls, **known),
    )


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("folder", ["walker", "../elsewhere", "/tmp"])
def test_an_archive_is_unpacked_by_names_alone(server, root, suffix, folder):
    toy = packed(server, server.serve("/all", PACKED[suffix](MEMBERS, folder)), suffix=suffix)
    fetch(toy, progress=False)
    assert listing(root.parent) == [f"data/toy/{name}" for name in NAMES]
    assert all((root / "toy" / name).read_bytes() == MEMBERS[name] for name in NAMES)
    assert status(toy) == (3, 3)
    fetch(toy, progress=False)
    assert len(server.log) == 1


def test_an_archive_with_a_wrong_member_is_replaced_by_a_mirror(server, root):
    wrong = zipped(MEMBERS | {"b.npy": b"CONTENTS OF b.npy"})
    toy = packed(server, server.serve("/1", wrong), server.serve("/2", zipped(MEMBERS)))
    fetch(toy, progress=False)
    assert (root / "toy/b.npy").read_bytes() == MEMBERS["b.npy"]
    assert listing(root) == [f"toy/{name}" for name in NAMES]


@pytest.mark.parametrize("suffix", PACKED)
def test_what_an_archive_lacks_comes_from_its_own_address(server, root, suffix):
    partial = {name: MEMBERS[name] for name in NAMES[:2]}
    url = server.serve("/all", PACKED[suffix](partial))
    toy = packed(server, url, suffix=suffix, files=["c.npy"])
    fetch(toy, progress=False)
    assert server.log == [("/all", None), ("/c.npy", None)]
    assert status(toy) == (3, 3)


def test_a_failed_archive_tells_what_was_tried(server, root):
    urls = [server.url("/absent"), server.serve("/1", zipped({"a.npy": MEMBERS["a.npy"]}))]
    urls += [server.serve("/2", b"<html>moved</html>")]
    with pytest.raises(DataError) as caught:
        fetch(packed(server, *urls), progress=False)
    assert str(caught.value) == (
        "Toy data: b.npy could not be downloaded. Tried:\n"
        f"  {urls[0]}\n    HTTP 404 Not Found\n"
        f"  {urls[1]}\n    its member b.npy: missing\n"
        f"  {urls[2]}\n    unreadable\n"
        f"To put it there by hand, save it as\n  {root / 'toy/b.npy'}\n"
        f"or all of them as\n  {root / 'toy/all.zip'}\nAsk at the desk."
    )
    # What was good is kept.
    assert listing(root) == ["toy/a.npy"]


def test_an_archive_without_checksum_is_continued(server, root):
    content = zipped(MEMBERS)
    put(root / "toy/all.zip.part", content[:100])
    fetch(packed(server, server.serve("/all", content)), progress=False)
    assert server.log == [("/all", "bytes=100-")]
    assert listing(root) == [f"toy/{name}" for name in NAMES]


def test_a_complete_part_without_known_size_is_used(server, root):
    content = zipped(MEMBERS)
    put(root / "toy/all.zip.part", content)
    fetch(packed(server, server.serve("/all", content)), progress=False)
    assert server.log == [("/all", f"bytes={len(content)}-")]
    assert listing(root) == [f"toy/{name}" for name in NAMES]


@pytest.mark.parametrize("extra", [-200, 1], ids=["another start", "too long"])
def test_a_part_of_another_archive_is_not_used(server, root, extra):
    content = zipped(MEMBERS)
    put(root / "toy/all.zip.part", b"?" * (len(content) + extra))
    fetch(packed(server, server.serve("/all", content)), progress=False)
    assert server.log[-1] == ("/all", None) and len(server.log) == 2
    assert listing(root) == [f"toy/{name}" for name in NAMES]


@pytest.mark.parametrize("suffix", PACKED)
def test_an_archive_put_there_by_hand_is_enough(server, root, suffix):
    toy = packed(server, server.url("/absent"), suffix=suffix)
    path = root / f"toy/all.{suffix}"
    put(path, PACKED[suffix](MEMBERS))
    fetch(toy, progress=False)
    assert server.log == [] and listing(root) == [f"toy/all.{suffix}"]
    assert status(toy) == (3, 3)
    assert verify(toy) == [(path, Status.OK)] + [(path / name, Status.OK) for name in NAMES]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_damaged_archive_is_named(server, root, suffix):
    whole = PACKED[suffix]({name: os.urandom(5000) for name in NAMES})
    known = dict(size=len(whole), sha256=hashlib.sha256(whole).hexdigest())
    toy = packed(server, server.serve("/all", whole), suffix=suffix, **known)
    path = root / f"toy/all.{suffix}"
    put(path, whole[: len(whole) // 2])
    assert verify(toy)[0] == (path, Status.TRUNCATED)
    with pytest.raises(DataError) as caught:
        fetch(toy, progress=False)
    assert str(path) in str(caught.value) and "is not used" in str(caught.value)
    assert server.log == []


def test_a_tar_that_ends_too_early_is_named(server, root):
    """Its members are small enough to come before the damage."""
    whole = tarred(MEMBERS | {"z.npy": os.urandom(50_000)})
    known = dict(size=len(whole), sha256=hashlib.sha256(whole).hexdigest())
    toy = packed(server, suffix="tar.gz", **known)
    more = data_file("toy/z.npy", b"z" * 50_000)
    toy = dataclasses.replace(toy, files=(*toy.files, more))
    put(root / "toy/all.tar.gz", whole[: len(whole) // 2])
    with pytest.raises(DataError, match="truncated"):
        fetch(toy, progress=False)


def test_a_wrong_member_of_an_archive_put_there_by_hand_is_named(server, root):
    toy = packed(server, server.serve("/all", zipped(MEMBERS)))
    put(root / "toy/all.zip", zipped(MEMBERS | {"b.npy": b"short"}))
    assert (root / "toy/all.zip/b.npy", Status.TRUNCATED) in verify(toy)
    with pytest.raises(DataError, match=r"its member b\.npy has the status 'truncated'"):
        fetch(toy, progress=False)
    assert server.log == []


# Progress


def test_progress_in_plain_lines(server, root, capsys):
    fetch(single(server.serve("/x", CONTENT)))
    assert capsys.readouterr().err == "Downloading Toy data, 0.1 MB\n  Toy data: 100 %\n"
    fetch(single(server.serve("/x", CONTENT)))
    assert capsys.readouterr().err == ""


def test_plain_lines_are_not_repeated(server, root, capsys):
    put(root / "toy/x.bin.part", b"?" * HALF)
    fetch(single(server.serve("/x", CONTENT)))
    lines = capsys.readouterr().err.splitlines()[1:]
    assert lines == ["  Toy data: 50 %", "  Toy data: 100 %"]


def test_no_progress_unless_wanted(server, root, capsys):
    fetch(single(server.serve("/x", CONTENT)), progress=False)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("ranges", [False, True])
def test_a_bar_on_a_terminal(server, root, monkeypatch, ranges):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    put(root / "toy/x.bin.part", b"?" * HALF)  # thrown away, and not counted
    fetch(single(server.serve("/x", CONTENT, ranges=ranges)))
    last = terminal.getvalue().rstrip().rsplit("\r", 1)[-1]
    assert last.startswith("Toy data: 100%") and "100k/100k" in last
