"""A query that really fails, of an application that really runs, as the dashboard shows it."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.application import Application
from tests.support.chromium import new_page, screenshot

BROKEN = Path(__file__).with_name("broken.py")


@pytest.mark.wide  # the page itself is tried in test_dashboard.py
def test_a_function_that_raises_is_named_with_its_cause(browser: Browser, tmp_path: Path) -> None:
    with Application("up", str(BROKEN), "--port", "0", "--http", "0", data=tmp_path / "data") as running:
        found = running.wait_for(lambda: re.search(r"is served at (http://\S+)", running.err()))
        address = found[1].rstrip("/") + "/ui"
        page = new_page(browser)
        try:
            page.goto(f"{address}/")
            running.produce("numbers", [{"text": "even"}])
            expect(page.locator('[data-box="halves"] .hw-box-note')).to_contain_text("1 row")
            expect(page.locator(".hw-notice")).to_have_count(0)
            running.produce("numbers", [{"text": "odd"}])
            notice = page.locator(".hw-notice.is-bad")
            expect(notice).to_contain_text("The query halves keeps failing")
            expect(notice).to_contain_text("ValueError: an odd number cannot be halved")
            notice.get_by_role("link", name="show").click()
            causes = page.locator("tr[data-row] [data-column=cause]")
            expect(causes.first).to_contain_text("an odd number cannot be halved")
            expect(causes.nth(1)).to_contain_text("an odd number cannot be halved")  # it was started again
            screenshot(page, "query-failing")
        finally:
            page.context.close()
