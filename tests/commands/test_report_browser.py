"""The report in a real browser: no errors; all plots, hovering and switches work."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resnet_recipes.commands import dispatch
from tests.shared.run_folders import create_run_folder

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"
    ),
]

OFFLINE_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --window-size=1280,900"
)


@pytest.fixture(scope="module")
def browser() -> Iterator["webdriver.Chrome"]:
    """Headless Chromium without network access."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in OFFLINE_FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_network_conditions(offline=True, latency=0, throughput=0)
    yield driver
    driver.quit()


@pytest.fixture
def open_report(browser: "webdriver.Chrome") -> Callable[..., int]:
    """Return a function that makes and opens a page, waits for its plots, and counts them.

    The page must not log an error.
    """

    def open_page(arguments: str = "runs") -> int:
        dispatch.run(["report", *arguments.split(), "--out", "r.html"])
        browser.get(Path("r.html").absolute().as_uri())
        plots = len(browser.find_elements(By.CSS_SELECTOR, ".plot"))
        drawn = ".plot svg.marks"
        wait_until(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, drawn)) == plots)
        log = browser.get_log("browser")
        assert [entry for entry in log if entry["level"] in ("SEVERE", "WARNING")] == []
        return plots

    return open_page


def wait_until(browser: "webdriver.Chrome", condition: Callable[[], bool]) -> None:
    """Wait for a condition, at most a minute.

    Selenium would only check every half second.
    """
    WebDriverWait(browser, 60, poll_frequency=0.02).until(lambda _: condition())


def measure_overflow(browser: "webdriver.Chrome") -> int:
    """Return by how many pixels the page is wider than its window."""
    return browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def has_tooltip(browser: "webdriver.Chrome", figure: str, text: str) -> bool:
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


@pytest.mark.parametrize(("count", "plots"), [(1, 4), (500, 5)])
def test_browser_renders_pages_of_any_size(count, plots, open_report):
    for i in range(count):
        create_run_folder(
            Path("runs"),
            f"run{i}",
            recipe=("mild", "hot")[i % 2],
            top1=60 + i / 50,
            seed=i,
            epochs=4 + i % 3,
        )
    assert open_report("runs --price 32.77") == plots


def test_report_shows_hostile_names_as_text(browser, open_report):
    create_run_folder(
        Path("runs"),
        "<img src=x onerror=document.title='owned'>",
        recipe="<script>document.title='owned'<\\script>",
    )
    open_report()
    assert browser.title == "Run <img src=x onerror=document.title='owned'>"
    assert browser.find_elements(By.TAG_NAME, "img") == []


def test_published_report_has_plot_and_sortable_table(browser, open_report):
    open_report("--published")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#time .mark-symbol.role-mark path")) > 15
    heads = browser.find_elements(By.CSS_SELECTOR, "th")
    column = [head.text.split(" ")[0] for head in heads].index("top-1") + 1
    button = heads[column - 1].find_element(By.TAG_NAME, "button")
    for order, sign in (("ascending", 1), ("descending", -1)):
        button.send_keys(Keys.ENTER)  # by keyboard
        assert heads[column - 1].get_attribute("aria-sort") == order
        cells = browser.find_elements(By.CSS_SELECTOR, f"td:nth-child({column})")
        values = [sign * float(cell.text) for cell in cells if cell.text]
        assert values == sorted(values)


def test_accuracy_axis_ends_at_100_percent(browser, open_report):
    for recipe, top1 in (("mild", 62.0), ("hot", 98.0)):
        create_run_folder(Path("runs"), recipe, recipe=recipe, top1=top1, image_count=153)
    open_report()
    labels = browser.find_elements(By.CSS_SELECTOR, "#time .role-axis-label text")
    assert max(float(label.text) for label in labels) == 100


def test_report_removes_unchecked_run_from_curves(browser, open_report):
    for recipe, images in (("mild", 5000), ("hot", 5000), ("mild", 6000), ("hot", 6000)):
        create_run_folder(Path("runs"), f"a-{recipe}-{images}", recipe=recipe, image_count=images)
    open_report()
    lines = "#data{}-course-loss .mark-line.role-mark path"

    def count_lines() -> list[int]:
        return [len(browser.find_elements(By.CSS_SELECTOR, lines.format(n))) for n in (1, 2)]

    assert count_lines() == [2, 2]
    browser.find_element(By.CSS_SELECTOR, ".legend input[value^='a-hot']").click()
    wait_until(browser, lambda: count_lines() == [1, 2])


def test_plots_and_menus_have_accessible_names(browser, open_report):
    open_report("--published")
    plot = browser.find_element(By.CSS_SELECTOR, "#time [role=graphics-document]")
    assert plot.get_attribute("aria-label").startswith("Top-1 accuracy against training time")
    menu = browser.find_element(By.CSS_SELECTOR, "#time summary")
    assert menu.get_attribute("aria-label").startswith("Save the plot: Top-1")


def test_report_shows_command_of_hovered_point(browser, open_report):
    create_run_folder(Path("runs"), "mine")
    open_report()
    has_command = has_tooltip(browser, "time", "resnet-train recipe=mild seed=1")
    assert has_command


def test_report_in_narrow_window_needs_no_sideways_scrolling(browser, open_report):
    create_run_folder(
        Path("runs"), "a-rather-long-name-of-a-run-that-goes-on-and-on-and-on-20261121"
    )
    browser.set_window_size(500, 900)
    open_report()
    try:
        assert measure_overflow(browser) <= 0
        for note in browser.find_elements(By.CSS_SELECTOR, ".note"):
            assert note.rect["x"] + note.rect["width"] <= 500
    finally:
        browser.set_window_size(1280, 900)
