"""The page of the board in a real browser, against the command as a player starts it."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from lostcities_jax.replay import verify_file

ROOT = pathlib.Path(__file__).parent.parent
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)

pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs chromium and chromedriver on the path"
)


@contextlib.contextmanager
def served(rules):
    """Address of the command's server."""
    command = [sys.executable, "-m", "lostcities_jax.play", "--port", "0", "--rules", rules]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            line = server.stdout.readline()
            yield re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def url():
    """The board of MINI, whose games are over after four turns."""
    with served("mini") as url:
        yield url


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(DRIVER)) as browser:
        yield browser


@pytest.fixture
def page(browser, url, tmp_path):
    """The page as somebody sees it who comes for the first time; downloads go to `tmp_path`."""
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    open_first(browser, url)
    yield browser
    assert browser.get_log("browser") == []  # no error in the console
    assert not browser.find_element(By.ID, "banner").is_displayed()


def open_first(page, url):
    page.get(url)
    page.execute_script("sessionStorage.clear()")
    page.refresh()


def until(page, condition):
    return WebDriverWait(page, 20, poll_frequency=0.02).until(lambda _: condition())


def one(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def buttons(page, selector):
    """Those that can be pressed."""
    return page.find_elements(By.CSS_SELECTOR, f":is({selector}):not(:disabled)")


def press(page, key):
    ActionChains(page).send_keys(key).perform()


def begin(page, seat=0, rounds=3, seed="11"):
    until(page, lambda: one(page, "#new-dialog").is_displayed())
    one(page, f"input[name=seat][value='{seat}']").click()
    one(page, f"#rounds option[value='{rounds}']").click()
    one(page, "#seed").send_keys(seed)
    one(page, "#new-form .primary").click()
    until(page, lambda: one(page, "main").is_displayed())


def said(page):
    return one(page, "#say").text


def scores(page):
    """Numbers of every row of the table of scores, read at once."""
    return page.execute_script(
        "return [...document.querySelectorAll('#score tbody tr')].map((row) =>"
        " [...row.querySelectorAll('td')].map((cell) => Number(cell.textContent)))"
    )


def click_in_sight(page, element):
    """Scrolls the table, of which a low window shows a part, and clicks."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def click_through_round(page):
    """Plays to the end of the round: the first card where it may be played, else discarded."""
    turns = 0
    while not buttons(page, "[data-key=next], [data-key=again]"):
        buttons(page, ".held")[0].click()
        targets = buttons(page, "#near .column") or buttons(page, "#middle .column")
        assert len(targets) == 1
        click_in_sight(page, targets[0])
        until(page, lambda: buttons(page, "[data-key=deck]"))
        click_in_sight(page, one(page, "[data-key=deck]"))
        until(page, lambda: buttons(page, ".held, [data-key=next], [data-key=again]"))
        turns += 1
    return turns


def test_a_classic_game_is_played_by_clicking(page, tmp_path):
    with served("classic") as url:
        open_first(page, url)
        begin(page, rounds=1)
        assert click_through_round(page) >= 22  # 44 cards in the deck, two players
        ((own, other), _) = scores(page)
        assert f"the match, {own} : {other}." in said(page)
        one(page, "#export").click()
        until(page, (tmp_path / "games.jsonl").exists)
    assert verify_file(tmp_path / "games.jsonl").finished == 1


def test_a_match_of_three_rounds_is_played_by_clicking_and_saved(page, tmp_path):
    begin(page)
    for number in (1, 2, 3):
        click_through_round(page)
        assert page.find_elements(By.CSS_SELECTOR, "#far .small-hand .back") == []
        own, other = scores(page)[number - 1]
        assert f"{own} : {other}" in said(page)
        if number < 3:
            one(page, "[data-key=next]").click()
            until(page, lambda: buttons(page, ".held"))
    *rounds, total, (seed, _) = scores(page)
    assert seed == 11
    assert total == [sum(column) for column in zip(*rounds, strict=True)]
    assert f"the match, {total[0]} : {total[1]}." in said(page)
    one(page, "#export").click()
    until(page, (tmp_path / "games.jsonl").exists)
    assert verify_file(tmp_path / "games.jsonl").finished == 3


def test_a_match_is_played_by_the_keyboard_alone(page):
    until(page, lambda: one(page, "#new-dialog").is_displayed())
    while page.switch_to.active_element.text != "Start":
        press(page, Keys.TAB)
    press(page, Keys.ENTER)
    until(page, lambda: one(page, "main").is_displayed())
    for _ in range(3):
        while not buttons(page, "[data-key=next], [data-key=again]"):
            until(page, lambda: buttons(page, ".held"))
            press(page, "1")
            press(page, Keys.ARROW_RIGHT)
            assert one(page, ".held[aria-pressed=true]").get_attribute("data-key") == "hand-1"
            press(page, "d")
            until(page, lambda: buttons(page, "[data-key=deck]"))
            press(page, "t")
            until(page, lambda: buttons(page, ".held, [data-key=next], [data-key=again]"))
        press(page, "n")
        until(page, lambda: buttons(page, ".held, [data-key=again]"))
    assert "the match, 0 : " in said(page)
    press(page, "?")
    assert one(page, "#help-dialog").is_displayed()


def test_undo_hint_and_reload_keep_the_match(page):
    begin(page, seat=1)
    hand = [card.get_attribute("aria-label") for card in buttons(page, ".held")]
    one(page, "[data-key=hint]").click()
    until(page, lambda: one(page, "#hint").is_displayed())
    assert "expert would " in said(page)
    buttons(page, ".held")[0].click()
    one(page, "[data-key=discard]").click()
    until(page, lambda: buttons(page, "[data-key=deck]"))
    page.refresh()
    until(page, lambda: buttons(page, "[data-key=deck]"))
    one(page, "[data-key=undo]").click()
    until(page, lambda: buttons(page, ".held"))
    assert [card.get_attribute("aria-label") for card in buttons(page, ".held")] == hand


def test_recorded_games_are_opened_and_stepped_through(page):
    begin(page)
    one(page, "#file").send_keys(str(ROOT / "tests" / "data" / "replays.jsonl"))
    until(page, lambda: one(page, "#replay").is_displayed())
    one(page, "#replay-last").click()
    until(page, lambda: one(page, "#replay-move").text == "138 of 138")
    assert "other rules" in one(page, "#replay-why").text
    press(page, Keys.ARROW_LEFT)
    until(page, lambda: one(page, "#replay-move").text == "137 of 138")
    one(page, "#replay-close").click()
    assert buttons(page, ".held")


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_fits_its_width(page, width):
    begin(page)
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everything_that_can_be_pressed_has_a_name(page):
    begin(page)
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('button, select, input, a.button')].filter((one) =>"
        " !one.getAttribute('aria-label') && !one.textContent.trim() && !one.labels?.length)"
        ".map((one) => one.outerHTML)"
    )
    assert unnamed == []
