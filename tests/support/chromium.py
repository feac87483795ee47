"""A real browser: Debian's Chromium, driven by Playwright. (Playwright's own browsers are not on PyPI.)"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.packages import require

PATIENCE = 60_000.0  # milliseconds until what a page is to show must be there
expect.set_options(timeout=PATIENCE)
LAPTOP = {"width": 1366, "height": 768}
WIDE = {"width": 1440, "height": 900}
SCREENSHOTS = Path(".cache/screenshots")  # kept by CI
IMAGES = Path("docs/images")  # those that documents show, renewed with HEADWATER_IMAGES=1

# Chromium's sandbox needs rights that containers do not give; /dev/shm is small there.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Browser, *, dark: bool = False, wide: bool = False) -> Page:
    """A page of its own, as on a laptop with this theme."""
    size = WIDE if wide else LAPTOP
    context = browser.new_context(
        viewport={"width": size["width"], "height": size["height"]}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(PATIENCE)
    context.set_default_navigation_timeout(PATIENCE)
    return context.new_page()


def screenshot(page: Page, name: str, *, whole: bool = False) -> Path:
    """A picture of the page, for CI."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path, full_page=whole, animations="disabled")
    if os.environ.get("HEADWATER_IMAGES") and (IMAGES / path.name).exists():
        shutil.copyfile(path, IMAGES / path.name)
    return path
