"""The report, made of the golden runs: its numbers, its figures, and what it says of broken
folders."""

import csv
import io
import itertools
import json
import pathlib
import re
import shutil
import statistics
import xml.etree.ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from hbnode import cli
from hbnode.experiments import paper_settings
from hbnode.report import write_report
from hbnode.report.figures import draw
from hbnode.report.load import load_runs
from hbnode.report.plot import provenance
from hbnode.report.style import COLOURS, RC, line_style
from hbnode.report.tables import PUBLISHED, differences, results
from hbnode.report.text import number, sentence, spread, tick, tolerance
from hbnode.runs import RunError, pack

GOLDEN = pathlib.Path(__file__).parent / "golden"
CURVES = ("train-loss", "test-loss", "train-nfe-forward", "train-nfe-backward", "seconds")
FIGURES = {
    "descent": {"rosenbrock", "beale", "passages"},
    "silverbox": {"growth"},
    "point-cloud": {
        *CURVES, "full-loss", "test-accuracy", "cloud-time", "cloud-training",
        "tolerance-forward", "tolerance-backward", "error",
    },
    "mnist": {*CURVES, "test-accuracy"},
    "cifar10": {*CURVES, "test-accuracy", "tolerance-forward", "tolerance-backward"},
    "plane-vibration": {*CURVES, "test-forecast-mse", "forecasts", "adjoint"},
    "walker2d": {*CURVES, "forecasts", "adjoint"},
}  # fmt: skip


def golden(task, model="HBNODE", method="paper"):
    return GOLDEN / task / f"{model}-{method}"


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def arrays(folder, name):
    with np.load(folder / name) as file:
        return dict(file)


@pytest.fixture(scope="module")
def runs():
    return load_runs(GOLDEN)[0]


@pytest.fixture(scope="module")
def plots(runs):
    """{task: {figure: plot}}"""
    return {
        task: {
            plot.name.removeprefix(f"{task}-"): plot
            for plot in draw(task, [run for run in runs if run.task == task])
        }
        for task in FIGURES
    }


@pytest.fixture(scope="module")
def page(golden_page):
    return golden_page.read_text()


def rows(plot):
    """The data of a figure, as they can be downloaded."""
    return list(csv.DictReader(io.StringIO(plot.csv())))


def column(plot, name, model="HBNODE", method="paper", **where):
    wanted = {"model": model, "method": method, **where}
    return np.array([
        float(row[name] or "nan")
        for row in rows(plot)
        if all(row[key] == value for key, value in wanted.items())
    ])  # fmt: skip


def test_golden_runs_are_small():
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert max(path.stat().st_size for path in files) < 300_000


def test_every_kind_of_figure_is_drawn(plots):
    assert {task: set(of) for task, of in plots.items()} == FIGURES


def test_page_is_one_small_file_that_asks_nothing_of_a_network(page):
    assert len(page.encode()) < 5_000_000
    assert page.count("<figure") == sum(map(len, FIGURES.values()))
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert all(address.startswith("http://www.w3.org/") for address in addresses), addresses
    assert not re.search(r"<(link|img|iframe|script)[^>]+(src|href)=\"(?!data:)", page)
    assert not re.search(r"@import|url\((?!#)", page)


def test_ids_are_not_used_twice(page):
    ids = re.findall(r'<[^>]* id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)


def recomputed(folder, split, measure, which):
    """Mean and standard deviation over the seeds that did not diverge, by plain Python."""
    lines = metrics(folder)
    lost = {line["seed"] for line in lines if line.get("diverged")}
    best = max if measure == "accuracy" else min
    values = []
    for seed in sorted({line["seed"] for line in lines} - lost):
        mine = [x[measure] for x in lines if x["seed"] == seed and x["split"] == split]
        values.append(mine[-1] if which == "final" else best(mine))
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


@pytest.mark.parametrize(
    ("task", "title", "split", "measure", "which"),
    [
        ("mnist", "test accuracy, final", "test", "accuracy", "final"),
        ("mnist", "test accuracy, best", "test", "accuracy", "best"),
        ("mnist", "test loss, best", "test", "loss", "best"),
        ("cifar10", "training loss, final", "train", "loss", "final"),
        ("cifar10", "forward NFE", "train", "nfe_forward", "final"),
        ("point-cloud", "all points, loss, final", "full", "loss", "final"),
        ("point-cloud", "backward NFE", "train", "nfe_backward", "final"),
        ("plane-vibration", "test forecast MSE, final", "test", "forecast_mse", "final"),
        ("walker2d", "test loss, final", "test", "loss", "final"),
        ("silverbox", "largest ‖h‖", "untrained", "norm_max", "final"),
        ("descent", "Beale, distance from the minimum", "beale", "distance", "final"),
    ],
)
def test_table_tells_the_numbers_of_metrics(runs, task, title, split, measure, which):
    of_task = [run for run in runs if run.task == task]
    table = results(task, of_task)
    place = table.header.index(title)
    means = {}
    for run, row in zip(of_task, table.rows, strict=True):
        mean, std = recomputed(run.path, split, measure, which)
        assert row[0].text == run.label
        assert row[place].value == pytest.approx(mean, rel=1e-12)
        assert row[place].text == spread(mean, std)
        means[run.label] = mean
    best = (max if measure == "accuracy" else min)(means.values())
    wanted = {label for label, mean in means.items() if mean == best}
    marked = {row[0].text for row in table.rows if row[place].best}
    assert marked == (wanted if len(set(means.values())) > 1 else set())


def test_table_tells_seconds_and_parameters(runs):
    table = results("mnist", [run for run in runs if run.task == "mnist"])
    for row in table.rows:
        summary = json.loads((golden("mnist", row[0].text) / "summary.json").read_text())
        by_title = dict(zip(table.header, row, strict=True))
        assert by_title["parameters"].text == f"{summary['parameters']:,}"
        assert by_title["seconds per update"].value == summary["seconds_per_update"]


def test_diverged_seeds_are_named(runs, page):
    table = results("cifar10", [run for run in runs if run.task == "cifar10"])
    seeds = {row[0].text: row[-1].text for row in table.rows}
    assert seeds == {"NODE": "2; diverged: 1", "ANODE": "2", "HBNODE": "2"}
    assert "cifar10/NODE-paper</code>: seed 1 diverged at update" in page
    assert "the loss exploded" in page


def test_curve_is_the_mean_of_the_history(plots):
    history = arrays(golden("mnist"), "history.npz")["loss"]
    plot = plots["mnist"]["train-loss"]
    np.testing.assert_allclose(column(plot, "mean"), history.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(column(plot, "std"), history.std(axis=0, ddof=1), rtol=1e-3)
    np.testing.assert_allclose(column(plot, "epoch"), np.arange(1, 17) / 8)


def test_curve_leaves_diverged_seeds_out(plots):
    history = arrays(golden("cifar10", "NODE"), "history.npz")["nfe_backward"]
    plot = plots["cifar10"]["train-nfe-backward"]
    np.testing.assert_allclose(column(plot, "mean", "NODE"), history[0], rtol=1e-5)
    assert set(column(plot, "seeds", "NODE")) == {1}


def test_curve_of_a_test_set_is_that_of_the_lines(plots):
    lines = [x for x in metrics(golden("walker2d")) if x["split"] == "test"]
    plot = plots["walker2d"]["test-loss"]
    np.testing.assert_allclose(column(plot, "mean"), [x["loss"] for x in lines], rtol=1e-5)


def test_time_is_shared_out_among_the_seeds(plots):
    last = metrics(golden("mnist"))[-1]
    seconds = column(plots["mnist"]["seconds"], "seconds")
    np.testing.assert_allclose(seconds[-1], last["seconds"] / 2, rtol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("task", ["cifar10", "point-cloud"])
def test_tolerance_csv(plots, task, direction):
    closing = arrays(golden(task), "closing.npz")
    plot = plots[task][f"tolerance-{direction}"]
    mean = closing[f"nfe_{direction}"].mean(axis=0)
    np.testing.assert_allclose(column(plot, "tolerance"), closing["tolerance"][0], rtol=1e-5)
    np.testing.assert_allclose(column(plot, "mean"), mean, rtol=1e-5)


def test_error_csv(plots):
    closing = arrays(golden("point-cloud", method="fast"), "closing.npz")
    plot = plots["point-cloud"]["error"]
    error = np.exp(np.log(closing["error"]).mean(axis=0))
    np.testing.assert_allclose(column(plot, "error", method="fast"), error, rtol=1e-5)
    count = closing["nfe_forward"].mean(axis=0)
    np.testing.assert_allclose(column(plot, "nfe_forward", method="fast"), count, rtol=1e-5)


def test_cloud_csv(plots):
    positions = arrays(golden("point-cloud", "NODE"), "snapshots.npz")["positions"]
    x = column(plots["point-cloud"]["cloud-time"], "x", "NODE")
    np.testing.assert_allclose(x, positions[0, -1, ::2, :, 0].ravel(), rtol=1e-5)
    y = column(plots["point-cloud"]["cloud-training"], "y", "NODE")
    np.testing.assert_allclose(y, positions[0, :, -1, :, 1].ravel(), rtol=1e-5)


def test_descent_csv(plots):
    made = arrays(golden("descent"), "arrays.npz")
    plot = plots["descent"]["beale"]
    path = np.stack([column(plot, "x1"), column(plot, "x2")], axis=1)
    np.testing.assert_allclose(path, made["beale_path"], rtol=1e-5)
    times = column(plots["descent"]["passages"], "t", function="rosenbrock")
    np.testing.assert_allclose(times, made["rosenbrock_first_passage"], rtol=1e-5)


def test_growth_csv(plots):
    made = arrays(golden("silverbox", "GHBNODE"), "arrays.npz")
    plot = plots["silverbox"]["growth"]
    mean = column(plot, "mean", "GHBNODE")
    np.testing.assert_allclose(mean, made["norms"].mean(axis=0), rtol=1e-5)
    median = column(plot, "median", "GHBNODE")
    np.testing.assert_allclose(median, np.median(made["norms"], axis=0), rtol=1e-5)


def test_adjoint_csv(plots):
    snapshots = arrays(golden("plane-vibration"), "snapshots.npz")
    mean = np.exp(np.log(snapshots["adjoint_norms"]).mean(axis=0))
    for stamp in (1, 30, 64):
        shown = column(plots["plane-vibration"]["adjoint"], f"stamp_{stamp}")
        np.testing.assert_allclose(shown, mean[:, stamp - 1], rtol=1e-4)


def test_forecast_csv(plots):
    folder, plot = golden("plane-vibration"), plots["plane-vibration"]["forecasts"]
    closing, context = arrays(folder, "closing.npz"), arrays(folder, "context.npz")
    where = {"channel": "acceleration 2"}
    shown = column(plot, "predicted", **where, part="forecast")
    np.testing.assert_allclose(shown, closing["forecasts"][0, 0, 1:, 3], rtol=1e-5)
    shown = column(plot, "truth", **where, part="next stamp")
    np.testing.assert_allclose(shown, context["targets"][0, 0, :, 3], rtol=1e-5)
    times = column(plot, "time", **where)
    assert (np.diff(times) > 0).all()
    # The first row of a forecast is the last target, which stands at the end of the last gap.
    end = context["gaps"][0, 0].sum()
    step = context["horizons"][0, 0, 1] - context["horizons"][0, 0, 0]
    np.testing.assert_allclose(times[64], end + step, rtol=1e-5)


def test_every_figure_says_what_it_was_made_with(plots, page):
    for plot in (plot for of in plots.values() for plot in of.values()):
        start = page.index("<svg", page.index(f'<figure id="{plot.name}">'))
        svg = page[start : page.index("</svg>", start) + 6]
        text = " ".join(" ".join(re.findall(r">([^<>]+)<", svg)).split())
        assert provenance(plot.runs) in text.replace("&#39;", "'"), plot.name
        for word in ("preset quick", "seed", "bits", "tolerance 10", "Dopri5"):
            assert word in text, (plot.name, word)


def test_what_runs_share_is_said_once(runs):
    told = provenance([run for run in runs if run.task == "point-cloud"])
    assert told == (
        "preset quick, 2 seeds, 64 bits, tolerance 10⁻⁷; NODE and HBNODE: Dopri5, continuous "
        "adjoint with full norm; HBNODE fast: the library's solver, the library's gradient, warm "
        "start"
    )


def test_a_model_has_one_colour_and_a_method_one_line(runs):
    assert len(set(COLOURS.values())) == 5
    by_label = {run.label: line_style(run) for run in runs if run.task == "point-cloud"}
    assert by_label["HBNODE"]["color"] == by_label["HBNODE fast"]["color"] == COLOURS["HBNODE"]
    assert by_label["HBNODE"]["linestyle"] != by_label["HBNODE fast"]["linestyle"]


def test_no_label_lies_on_another(plots):
    for plot in (plot for of in plots.values() for plot in of.values()):
        with matplotlib.rc_context(RC):
            canvas = FigureCanvasAgg(plot.figure)
            canvas.draw()
        beyond = {
            label
            for axes in plot.figure.axes
            for axis in (axes.xaxis, axes.yaxis)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
            for label in (tick.label1, tick.label2)
            if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        }
        boxes = [
            (text.get_text(), text.get_window_extent(canvas.get_renderer()).padded(-1.0))
            for text in plot.figure.findobj(Text)
            if text.get_visible() and text.get_text().strip() and text not in beyond
        ]
        inside = plot.figure.bbox.padded(2.0)
        for name, box in boxes:
            assert inside.containsx(box.x0), (plot.name, name)
            assert inside.containsx(box.x1), (plot.name, name)
        for (name, box), (other, beside) in itertools.combinations(boxes, 2):
            assert not box.overlaps(beside), (plot.name, name, other)


def test_files_of_figures(tmp_path, plots):
    plot = plots["point-cloud"]["cloud-time"]
    paths = plot.write(tmp_path)
    assert [path.suffix for path in paths] == [".svg", ".pdf", ".csv"]
    assert paths[0].stat().st_size < 200_000
    assert xml.etree.ElementTree.parse(paths[0]).getroot().get("viewBox")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert paths[2].read_text() == plot.csv()


def test_published_numbers_and_what_to_mind(page):
    for task, published in PUBLISHED.items():
        section = page[page.index(f'<section id="{task}">') :].partition("</section>")[0]
        assert published["caution"].replace("'", "&#39;") in section
        for row in published["rows"]:
            assert len(row) == len(published["header"])
            assert all(f">{cell}<" in section for cell in row)
    assert "without having seen it" in PUBLISHED["walker2d"]["caution"]
    assert "Published" not in page[page.index('id="mnist"') :].partition("</section>")[0]


def test_settings_that_differ(runs):
    paper = paper_settings()
    found, unknown = differences([run for run in runs if run.task == "mnist"], paper["mnist"])
    told = {(d.setting, d.paper, d.here): d.runs for d in found}
    assert told["data.train", "55000", "512"] == ["NODE", "SONODE", "HBNODE"]
    assert told["network.h", "92", "12"] == ["NODE"]
    assert not any(setting.startswith("solver") for setting, _, _ in told)
    assert not unknown
    assert not differences([run for run in runs if run.task == "descent"], paper["descent"])[0]
    cloud = [run for run in runs if run.task == "point-cloud" and run.method == "fast"]
    assert ("solver.warm_start", "no", "yes") in {
        d[:3] for d in differences(cloud, paper["point-cloud"])[0]
    }
    assert differences(cloud, {})[1] == ["HBNODE fast"]


def test_how_it_was_made(page):
    made = page[page.index('<section id="made">') :]
    told = json.loads((golden("walker2d") / "environment.json").read_text())
    assert "hbnode compare walker2d --models NODE HBNODE GHBNODE" in made
    assert told["machine"] in made
    assert f"jax {told['versions']['jax']}" in made


def copy(root, *folders):
    for folder in folders:
        shutil.copytree(folder, root / folder.parent.name / folder.name)


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def change(name, **entries):
    def apply(folder):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | entries))

    return apply


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def foreign(folder):
    empty(folder)
    (folder / "notes.txt").write_text("nothing of hbnode's")


def cut_line(folder):
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text[: len(text) - 40])


def lose_all_seeds(folder):
    lines = [line | {"diverged": "the loss exploded"} for line in metrics(folder)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))


BROKEN = {
    "empty": (empty, "empty"),
    "foreign": (foreign, "not a run of hbnode"),
    "no settings": (remove("config.json"), "no config.json"),
    "cut settings": (write("config.json", b'{"task": "mn'), "config.json cannot be read"),
    "binary settings": (write("config.json", b"\xff\xfe\x00"), "config.json cannot be read"),
    "other settings": (write("config.json", b"[1, 2]"), "config.json has no names"),
    "unknown task": (change("config.json", task="chess"), "'chess'"),
    "no seeds": (change("config.json", seeds=0), "0 seeds"),
    "no solver": (change("config.json", settings={}), ""),
    "no environment": (remove("environment.json"), "environment.json is missing"),
    "unfinished": (remove("summary.json"), "not finished: shown up to update 16, epoch 2"),
    "cut summary": (write("summary.json", b"{"), "summary.json cannot be read"),
    "no metrics": (remove("metrics.jsonl"), "metrics.jsonl is missing"),
    "cut metrics": (cut_line, "of metrics.jsonl cannot be used"),
    "foreign metrics": (write("metrics.jsonl", b'{"seed": "x"}\n3\n'), "line 2 of metrics.jsonl"),
    "no arrays": (remove("history.npz"), "history.npz is missing"),
    "cut arrays": (write("history.npz", b"PK\x03\x04 and no more"), "history.npz cannot be read"),
    "empty arrays": (write("closing.npz", b""), "closing.npz cannot be read"),
    "other arrays": (write("closing.npz", pack({"a": np.ones(3)})), "has not the arrays"),
    "other shapes": (
        write("closing.npz", pack({x: np.ones(2) for x in (
            "tolerance", "nfe_forward", "nfe_backward")})), "has not the arrays",
    ),
    "all diverged": (lose_all_seeds, "seed 1 diverged"),
}  # fmt: skip


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """What is told, and the page, of a whole run and a broken one of each kind beside it."""
    root = tmp_path_factory.mktemp("broken")
    copy(root, golden("cifar10", "NODE"))
    for fault, (breaks, _) in BROKEN.items():
        folder = root / "cifar10" / fault
        shutil.copytree(golden("cifar10"), folder)
        change("config.json", method=fault)(folder)
        breaks(folder)
    report = write_report(root, root / "report.html", paper=paper_settings())
    return report.problems, report.page.read_text()


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_folder_is_named(broken, fault):
    problems, page = broken
    told = [problem.text for problem in problems if problem.folder == f"cifar10/{fault}"]
    assert any(BROKEN[fault][1] in text for text in told) or not BROKEN[fault][1]
    assert page.count(f"<code>cifar10/{fault}</code>") == len(told)


def test_what_is_not_broken_is_drawn(broken):
    problems, page = broken
    for name in FIGURES["cifar10"]:
        start = page.index(f'<figure id="cifar10-{name}">')
        assert f">{'NODE'}</text>" in page[start : page.index("</figure>", start)]
    drawable = {"no solver", "no environment", "unfinished", "cut summary", "cut metrics",
                "no arrays", "cut arrays"}  # fmt: skip
    start = page.index('<figure id="cifar10-tolerance-forward">')
    figure = page[start : page.index("</figure>", start)]
    assert {fault for fault in BROKEN if f">HBNODE {fault}</text>" in figure} == drawable
    assert not [problem.text for problem in problems if "can be drawn with it" in problem.text]


def test_broken_folder_is_told_on_the_terminal(tmp_path, capsys):
    copy(tmp_path, golden("silverbox"))
    (tmp_path / "silverbox" / "NODE-paper").mkdir()
    assert cli.main(["report", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'report.html'}\n"
    assert err == "hbnode: silverbox/NODE-paper: the folder is empty.\n"


def test_figure_without_data_is_left_out(tmp_path):
    copy(tmp_path, golden("point-cloud"))
    (tmp_path / "point-cloud" / "HBNODE-paper" / "snapshots.npz").unlink()
    page = tmp_path / "report.html"
    report = write_report(tmp_path, page, paper={})
    assert "cloud-time" not in page.read_text()
    assert "point-cloud-error" in page.read_text()
    assert [problem.folder for problem in report.problems] == ["point-cloud/HBNODE-paper"]
    assert "snapshots.npz is missing" in report.problems[0].text


def test_unfinished_run_is_drawn_from_its_lines_and_never_the_best(tmp_path):
    copy(tmp_path, golden("plane-vibration"), golden("plane-vibration", "NODE"))
    folder = tmp_path / "plane-vibration" / "HBNODE-paper"
    for name in ("summary.json", "history.npz", "closing.npz", "context.npz"):
        (folder / name).unlink()
    kept = [json.dumps(line) for line in metrics(folder) if line["epoch"] <= 4]
    (folder / "metrics.jsonl").write_text("\n".join(kept))
    runs, _ = load_runs(tmp_path)
    by_name = {plot.name: plot for plot in draw("plane-vibration", runs)}
    assert column(by_name["plane-vibration-train-loss"], "epoch")[-1] == 4
    assert {run.label for run in by_name["plane-vibration-forecasts"].runs} == {"NODE"}
    assert {run.label for run in by_name["plane-vibration-adjoint"].runs} == {"NODE", "HBNODE"}
    table = results("plane-vibration", runs)
    assert [row[0].text for row in table.rows] == ["NODE", "HBNODE †"]
    assert not any(cell.best for row in table.rows for cell in row)


def test_a_run_folder_or_a_task_folder_can_be_reported(tmp_path):
    copy(tmp_path, golden("descent"))
    for root in (tmp_path, tmp_path / "descent", tmp_path / "descent" / "HBNODE-paper"):
        runs, problems = load_runs(root)
        assert [run.label for run in runs] == ["HBNODE"]
        assert not problems


def test_model_of_another_name_is_drawn_and_escaped(tmp_path):
    copy(tmp_path, golden("mnist"))
    folder = tmp_path / "mnist" / "HBNODE-paper"
    change("config.json", model="</script><b>")(folder)
    page = tmp_path / "report.html"
    write_report(tmp_path, page, paper=paper_settings())
    assert "<b>" not in page.read_text()
    assert "Not in the paper: &lt;/script&gt;&lt;b&gt;." in page.read_text()


def test_nothing_to_report(tmp_path, capsys):
    (tmp_path / "mnist" / "NODE-paper").mkdir(parents=True)
    with pytest.raises(RunError, match=r"no run to report(.|\n)*mnist/NODE-paper: the folder is"):
        write_report(tmp_path, tmp_path / "report.html", paper={})
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "there is no run to report" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["--outt", "x"], "did you mean --out?"),
        (["one", "two"], "two"),
        ([str(GOLDEN), "--out", str(GOLDEN)], "is a folder: name a file"),
        ([str(GOLDEN), "--figures", __file__], "is a file: name a folder"),
    ],
)
def test_usage_errors_are_one_line(capsys, args, told):
    assert cli.main(["report", *args]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == 1


def test_command_writes_page_and_figures(tmp_path, capsys):
    copy(tmp_path / "runs", golden("descent"), golden("descent", "NODE"))
    page, figures = tmp_path / "pages" / "a.html", tmp_path / "drawn"
    command = ["report", str(tmp_path / "runs"), "--out", str(page), "--figures", str(figures)]
    assert cli.main(command) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [f"{figures} (9 files)", str(page)]
    assert {path.name for path in figures.glob("*.pdf")} == {
        f"descent-{name}.pdf" for name in FIGURES["descent"]
    }
    # Drawings are no runs, broken or not.
    assert load_runs(tmp_path)[1] == []


@pytest.mark.parametrize("beside", ["nothing", "a broken folder"])
def test_compare_ends_with_the_report(tmp_path, capsys, monkeypatch, beside):
    def finished(run, out, **_):
        copy(out, golden(run.task, run.model))
        return json.loads((run.folder(out) / "summary.json").read_text())

    monkeypatch.setattr(cli, "launch", finished)
    monkeypatch.setattr(cli, "set_up", lambda precision: None)
    if beside != "nothing":
        (tmp_path / "mnist" / "NODE-paper").mkdir(parents=True)
        (tmp_path / "mnist" / "NODE-paper" / "config.json").write_text("{")
    assert cli.main(["compare", "descent", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == str(tmp_path / "report.html")
    assert ("mnist/NODE-paper" in err) == (beside != "nothing")
    assert (tmp_path / "report.html").read_text().count("<figure") == 3


def test_compare_is_done_where_no_page_can_be_written(tmp_path, capsys, monkeypatch):
    def finished(run, out, **_):
        copy(out, golden(run.task, run.model))
        return json.loads((run.folder(out) / "summary.json").read_text())

    monkeypatch.setattr(cli, "launch", finished)
    monkeypatch.setattr(cli, "set_up", lambda precision: None)
    (tmp_path / "report.html").mkdir()
    assert cli.main(["compare", "descent", "--out", str(tmp_path)]) == 0
    assert "no report" in capsys.readouterr().err


def test_numbers_as_text():
    assert [number(x) for x in (0.01234, 1.0, 1234.5, 4.32e13, -0.5, 0.0, None, np.inf)] == [
        "0.0123", "1.00", "1,234", "4.32·10¹³", "−0.500", "0", "–", "–"
    ]  # fmt: skip
    assert number(2.5e-7) == "2.50·10⁻⁷"
    told = [spread(0.123, 0.0456), spread(105.3, 7.2), spread(1e13, 2e13), spread(0.5, None)]
    plain = [text.replace("\N{NO-BREAK SPACE}", " ") for text in told]
    assert plain == ["0.123 ± 0.046", "105.3 ± 7.2", "(1.00 ± 2.00)·10¹³", "0.500"]
    assert spread(9.997e-4, 4e-4) == "0.00100 ±\N{NO-BREAK SPACE}0.00040"
    assert [tick(x) for x in (1e-3, 1.0, 3.0, 0.0)] == ["10⁻³", "1", "", ""]
    assert [tolerance(x) for x in (1e-7, 3e-4)] == ["10⁻⁷", "3·10⁻⁴"]
    assert sentence("a word") == "A word"
