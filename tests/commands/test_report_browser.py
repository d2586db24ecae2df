"""The report in a real browser: no error, every plot drawn, hovering and switches work."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resnet_recipes.commands import verbs
from tests.run_folders import run_folder

pytest.importorskip(
    "vl_convert", reason="the plotting library of the extra `report` is not installed"
)
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"
    ),
]

OFFLINE = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module")
def browser() -> Iterator["webdriver.Chrome"]:
    """Headless Chromium without a network."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in OFFLINE:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_network_conditions(offline=True, latency=0, throughput=0)
    yield driver
    driver.quit()


def opened(browser: "webdriver.Chrome", words: list[str], out: Path) -> int:
    """Make a page, open it, wait until its plots are drawn, and return how many there are.

    It must log no error.
    """
    verbs.run(["report", *words, "--out", str(out)])
    browser.get(out.as_uri())
    plots = len(browser.find_elements(By.CSS_SELECTOR, ".plot"))
    until(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, ".plot svg.marks")) == plots)
    assert [
        entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ] == []
    return plots


def until(browser: "webdriver.Chrome", condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most a minute.

    Selenium itself would look only every half second.
    """
    WebDriverWait(browser, 60, poll_frequency=0.02).until(lambda _: condition())


def widest(browser: "webdriver.Chrome") -> int:
    """Return how many pixels the page is wider than its window."""
    return browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def hovered(browser: "webdriver.Chrome", figure: str, text: str) -> bool:
    """Return whether hovering over a point of a figure shows a text."""
    return browser.execute_script(
        """
        const marks = `#${arguments[0]} .mark-symbol.role-mark path`;
        for (const point of document.querySelectorAll(marks)) {
            const box = point.getBoundingClientRect();
            const [clientX, clientY] = [box.x + box.width / 2, box.y + box.height / 2];
            const place = {clientX, clientY, bubbles: true};
            point.dispatchEvent(new PointerEvent('pointerover', place));
            point.dispatchEvent(new PointerEvent('pointermove', place));
            const tip = document.getElementById('vg-tooltip-element');
            if (tip && tip.textContent.includes(arguments[1])) return true;
        }
        return false;""",
        figure,
        text,
    )


@pytest.mark.parametrize(("count", "plots"), [(0, 1), (1, 9), (500, 12)])
def test_pages_of_any_size_are_drawn(
    count: int, plots: int, browser: "webdriver.Chrome", tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    for i in range(count):
        run_folder(
            tmp_path / "runs",
            f"run{i}",
            recipe=("mild", "hot")[i % 2],
            top1=60 + i / 50,
            seed=i,
            epochs=4 + i % 3,
        )
    assert (
        opened(browser, [str(tmp_path / "runs"), "--price", "32.77"], tmp_path / "r.html") == plots
    )


def test_hostile_names_stay_text(browser: "webdriver.Chrome", tmp_path: Path) -> None:
    run_folder(
        tmp_path / "runs",
        "<img src=x onerror=document.title='owned'>",
        recipe="<script>document.title='owned'<\\script>",
    )
    opened(browser, [str(tmp_path / "runs")], tmp_path / "r.html")
    assert browser.title == "1 run"
    assert browser.find_elements(By.TAG_NAME, "img") == []


def test_the_published_results_are_points_and_a_table_that_sorts(
    browser: "webdriver.Chrome", tmp_path: Path
) -> None:
    opened(browser, ["--published"], tmp_path / "r.html")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#time .mark-symbol.role-mark path")) > 20
    head = browser.find_element(By.XPATH, "//th[text()='top1']")
    column = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "th")].index("top1") + 1
    head.click()
    values = [
        float(cell.text)
        for cell in browser.find_elements(By.CSS_SELECTOR, f"td:nth-child({column})")
    ]
    assert values == sorted(values)
    head.click()
    assert float(browser.find_element(By.CSS_SELECTOR, f"td:nth-child({column})").text) == max(
        values
    )


def test_hovering_shows_a_point_with_its_command(
    browser: "webdriver.Chrome", tmp_path: Path
) -> None:
    run_folder(tmp_path / "runs", "mine")
    opened(browser, [str(tmp_path / "runs")], tmp_path / "r.html")
    found = hovered(browser, "time", "resnet-train recipe=mild seed=1")
    assert found


def test_a_phone_needs_no_sideways_scrolling(browser: "webdriver.Chrome", tmp_path: Path) -> None:
    run_folder(tmp_path / "runs", "a-rather-long-name-of-a-run-that-goes-on-and-on-and-on-20261121")
    browser.set_window_size(500, 900)
    opened(browser, [str(tmp_path / "runs")], tmp_path / "r.html")
    try:
        assert widest(browser) <= 0
    finally:
        browser.set_window_size(1280, 900)
