"""The page in a browser. Skipped where there is no Chromium with its driver (in Debian, the
packages chromium and chromium-driver)."""

import base64
import shutil
import time
import xml.etree.ElementTree

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

CHROMIUM, DRIVER = shutil.which("chromium") or "", shutil.which("chromedriver") or ""

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no Chromium here: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(golden_page, downloads):
    """The page, loaded from disk in a window of a desk."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
        )
        window(driver, 1280)
        driver.get(golden_page.as_uri())
        yield driver
    finally:
        driver.quit()


def window(driver, width, **features):
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    wanted = [{"name": name.replace("_", "-"), "value": x} for name, x in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})


def test_no_error_and_no_request(browser, golden_page):
    assert browser.get_log("browser") == []
    events = browser.get_log("performance")
    sent = [event["message"] for event in events if "Network.requestWillBeSent" in event["message"]]
    assert sent
    assert all(f'"url":"{golden_page.as_uri()}"' in message or '"url":"data:' in message
               for message in sent)  # fmt: skip


def test_all_figures_are_there(browser):
    figures = browser.find_elements(By.TAG_NAME, "figure")
    assert len(figures) == 45
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure > svg')].map(svg => {"
        " const box = svg.getBoundingClientRect(); return [box.width, box.height,"
        " svg.querySelectorAll('path, use, image').length] })"
    )
    assert len(sizes) == len(figures)
    assert all(width > 250 and height > 120 and drawn > 10 for width, height, drawn in sizes)


def downloaded(folder, name):
    for _ in range(100):
        if (folder / name).exists() and not list(folder.glob("*.crdownload")):
            return (folder / name).read_text()
        time.sleep(0.05)
    raise AssertionError(f"{name} was not downloaded")


@pytest.mark.parametrize("name", ["silverbox-growth", "point-cloud-cloud-time", "walker2d-adjoint"])
def test_downloads(browser, downloads, name):
    for kind in ("svg", "csv"):
        button = f"document.querySelector('#{name} button[data-kind={kind}]')"
        browser.execute_script(f"{button}.click()")
    root = xml.etree.ElementTree.fromstring(downloaded(downloads, f"{name}.svg"))
    assert root.get("width", "").endswith("pt")
    text = " ".join(root.itertext())
    assert "preset quick" in text
    lines = downloaded(downloads, f"{name}.csv").splitlines()
    assert lines[0].startswith("model,method,")
    assert len(lines) > 10
    assert len({line.count(",") for line in lines}) == 1


@pytest.mark.parametrize("width", [320, 390, 820, 1280])
def test_no_scrolling_to_the_side(browser, width):
    window(browser, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    wider = browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(x => "
        "!x.closest('svg, script, style, thead') && "
        f"x.getBoundingClientRect().right > {width} + 0.5)"
        ".map(x => x.outerHTML.slice(0, 120))"
    )
    assert wider == []
    window(browser, 1280)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(browser, scheme):
    """Text of page and figures stands out from the ground."""
    window(browser, 1280, prefers_color_scheme=scheme)
    ground, page, figure = browser.execute_script(
        "const of = (x, what) => getComputedStyle(x)[what].match(/\\d+/g).slice(0, 3);"
        "return [of(document.body, 'backgroundColor'), of(document.body, 'color'),"
        " of(document.querySelector('#silverbox-growth text'), 'fill')]"
    )
    ground, page, figure = (sum(map(int, colour)) / 3 for colour in (ground, page, figure))
    assert (ground < 60) == (scheme == "dark")
    assert abs(page - ground) > 150
    assert abs(figure - ground) > 150
    window(browser, 1280)


def test_prints(browser):
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert base64.b64decode(printed).startswith(b"%PDF")
