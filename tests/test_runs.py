"""The run folder: nothing half there, nothing lost, nothing mixed up."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from hbnode.runs import RunError, RunFolder, environment, flatten, pack, plain, write_whole

CONFIG = {"task": "point-cloud", "settings": {"network": {"n": 2, "h": 14}, "tolerances": (1, 2)}}


def changed(**network):
    return CONFIG | {"settings": {**CONFIG["settings"], "network": network}}


def test_a_new_folder_has_its_settings(tmp_path):
    with RunFolder(tmp_path / "a" / "b", CONFIG) as folder:
        assert json.loads((folder.path / "config.json").read_text()) == plain(CONFIG)
        assert folder.summary is None and folder.load_checkpoint() is None


def test_a_run_that_is_there_is_not_touched_unless_told(tmp_path):
    with RunFolder(tmp_path, CONFIG) as folder:
        folder.write_json("summary.json", {"done": True})
    with pytest.raises(RunError, match=r"has a run already.*--resume.*--overwrite.*--out"):
        RunFolder(tmp_path, CONFIG)
    with RunFolder(tmp_path, CONFIG, resume=True) as folder:
        assert folder.summary == {"done": True}
    with RunFolder(tmp_path, CONFIG, overwrite=True) as folder:
        assert folder.summary is None


def test_other_settings_are_refused_with_the_difference(tmp_path):
    RunFolder(tmp_path, CONFIG).close()
    with pytest.raises(RunError) as error:
        RunFolder(tmp_path, changed(n=3, h1=14), resume=True)
    told = str(error.value)
    assert "settings.network.n: 2 in the folder, 3 now" in told
    assert "settings.network.h: 14 in the folder, not there now" in told
    assert "settings.network.h1: not there in the folder, 14 now" in told
    assert "tolerances" not in told
    RunFolder(tmp_path, CONFIG, resume=True).close()


def test_one_process_at_a_time(tmp_path):
    with RunFolder(tmp_path, CONFIG):
        code = (
            "import sys; from hbnode.runs import RunFolder, RunError\n"
            "try: RunFolder(sys.argv[1], {}, resume=True)\n"
            "except RunError as error: print(error)"
        )
        run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True,
                             text=True, check=True)  # fmt: skip
        assert "in use by another process" in run.stdout
    RunFolder(tmp_path, CONFIG, resume=True).close()


def test_a_file_in_the_place_of_a_folder(tmp_path):
    path = tmp_path / "run"
    path.write_text("")
    with pytest.raises(RunError, match="not a folder"):
        RunFolder(path, CONFIG)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fails(fd):
        raise OSError("no space left")

    monkeypatch.setattr("hbnode.runs.os.fsync", fails)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_checkpoints_come_back_to_the_bit(tmp_path):
    arrays = {
        "state/0": np.array([0.1, np.nan, -0.0]),
        "state/1": np.arange(6, dtype=np.int32).reshape(2, 3),
        "key": np.array([2**32 - 1, 7], np.uint32),
    }
    with RunFolder(tmp_path, CONFIG) as folder:
        folder.save_checkpoint({"state/0": np.zeros(2)}, {"step": 1})
        folder.save_checkpoint(arrays, {"step": 2, "seconds": 0.1 + 0.2, "nan": math.nan})
        found = folder.load_checkpoint()
    assert found is not None
    back, told = found
    assert told == {"step": 2, "seconds": 0.1 + 0.2, "nan": None}
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


@pytest.mark.parametrize("damage", [b"", b"not an archive", None])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    with RunFolder(tmp_path, CONFIG) as folder:
        folder.save_checkpoint({"x": np.arange(1000.0)}, {"step": 1})
        path = tmp_path / "checkpoint" / "latest.npz"
        path.write_bytes(path.read_bytes()[:-100] if damage is None else damage)
        with pytest.raises(RunError, match=r"latest\.npz is damaged.*--overwrite"):
            folder.load_checkpoint()


def test_overwriting_ends_with_the_settings(tmp_path):
    """An interrupted deletion leaves a folder that is still known as a run."""
    with RunFolder(tmp_path, CONFIG) as folder:
        folder.save_checkpoint({}, {})
        folder.write_metrics([{"seed": 0}])
        seen = []
        path_type = type(folder.path)
        unlink = path_type.unlink

        def spy(path, *args, **kwargs):
            seen.append(path.name)
            unlink(path, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(path_type, "unlink", spy)
            folder._clear()
    assert seen == ["metrics.jsonl", "config.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock"]


def test_equal_arrays_give_equal_files():
    arrays = {"a": np.arange(5.0), "b": np.eye(2, dtype=np.float32)}
    assert pack(arrays) == pack({name: x.copy() for name, x in arrays.items()})


def test_plain_is_strict_json():
    tree = {
        "inf": math.inf, "nan": np.float32("nan"), "array": np.array([1.5, -math.inf]),
        "count": np.int64(3), "flag": np.bool_(True), "path": ("a", None), 1: 2,
    }  # fmt: skip
    text = json.dumps(plain(tree), allow_nan=False)
    assert json.loads(text) == {
        "inf": None, "nan": None, "array": [1.5, None], "count": 3, "flag": True,
        "path": ["a", None], "1": 2,
    }  # fmt: skip


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {
        "a.b": 1, "a.c.d": [2], "e": None
    }  # fmt: skip


def test_environment_names_versions_and_machine():
    told = environment(precision=64)
    assert told["precision"] == 64 and told["cores"] >= 1 and told["machine"]
    assert set(told["versions"]) >= {"hbnode", "jax", "equinox", "diffrax"}
    json.dumps(told)
