"""The dashboard in a real browser: every page opens, its numbers change, and it says what is wrong."""

import os
import re
import signal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.chromium import new_page, screenshot
from tests.support.servers import Headwater
from tests.ui.conftest import served
from tests.ui.world import World

PAGES = {
    "overview": "/",
    "queries": "/queries",
    "query": "/queries/clicks_by_country",
    "topics": "/topics",
    "topic": "/topics/shop.alerts",
    "views": "/views",
    "view": "/views/clicks_by_country",
    "connect": "/connect",
}

ROWS = "tr[data-row]:visible"  # those of other tabs are there, too


def changes(what: Locator) -> None:
    """Waits until a text has become another one."""
    expect(what).not_to_be_empty()
    before = what.text_content() or ""
    expect(what).not_to_have_text(before)


def grows(plot: Locator) -> None:
    """Waits until a chart has more points."""
    expect(plot).to_have_attribute("data-points", re.compile(r"[1-9]"))
    before = plot.get_attribute("data-points") or ""
    expect(plot).not_to_have_attribute("data-points", before)


def tile(page: Page, name: str) -> Locator:
    return page.locator(f'[data-tile="{name}"] .hw-tile-value')


# -- overview ----------------------------------------------------------------------------------------


def test_the_overview_shows_the_graph_with_its_figures(page: Page, address: str) -> None:
    page.goto(f"{address}/")
    expect(page.locator("[data-box]")).to_have_count(9)
    label = page.locator('[data-line="clicks > clicks_by_country"]')
    expect(label).to_contain_text("/s")
    expect(label).to_contain_text("lag")
    expect(label).to_contain_text("wm -3")
    expect(page.locator('[data-box="source shop"]')).to_contain_text("4/s")
    expect(page.locator('[data-line="users > sink shop.users.redis"]')).to_contain_text("1/s")
    changes(page.locator('[data-box="top_products"] .hw-box-note'))
    changes(page.locator('[data-box="clicks"] .hw-box-note'))
    expect(tile(page, "failing")).to_have_text("all well")
    expect(page.locator(".hw-notice")).to_have_count(0)
    expect(page.locator("[data-engine]")).to_have_text("running")


def test_the_applications_own_charts_are_live(page: Page, address: str) -> None:
    page.goto(f"{address}/")
    expect(page.locator('[data-chart="Clicks a minute"] .hw-plot')).to_have_attribute(
        "data-names", "AT,CH,DE,FR,IT"
    )
    for title in ("Clicks a minute", "Revenue a minute", "Best sellers"):
        plot = page.locator(f'[data-chart="{title}"] .hw-plot')
        expect(plot).to_have_attribute("data-points", re.compile(r"^[1-9]"))
        expect(plot.locator("canvas")).to_be_visible()


def test_a_box_opens_what_it_stands_for(page: Page, address: str) -> None:
    page.goto(f"{address}/")
    page.locator('[data-box="clicks_by_country"]').click()
    expect(page).to_have_url(f"{address}/queries/clicks_by_country")
    expect(page.locator("h1")).to_have_text("clicks_by_country")
    expect(page.locator('[data-page="queries"]')).to_have_class(re.compile("is-here"))
    page.go_back()
    page.locator('[data-box="clicks"]').click()
    expect(page).to_have_url(f"{address}/topics/shop.clicks")


# -- queries -----------------------------------------------------------------------------------------


def test_a_query_shows_rates_phases_state_and_inputs(page: Page, address: str) -> None:
    page.goto(f"{address}/queries/clicks_by_country")
    expect(page.locator("[data-state]")).to_have_text("running")
    expect(tile(page, "guarantee")).to_have_text("exactly once")
    plots = page.locator(".hw-plot")
    expect(plots).to_have_count(7)
    grows(plots.nth(0))
    expect(plots.nth(1)).to_have_attribute(
        "data-names", "look for records,plan,compute and write,commit,other"
    )
    expect(page.locator('[data-row="shop.clicks 0"] [data-column="share"]')).to_contain_text("%")
    expect(page.get_by_text("None since the start.")).to_be_visible()


def test_the_list_of_queries(page: Page, address: str) -> None:
    page.goto(f"{address}/queries")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(5)
    changes(page.locator('[data-row="top_products"] [data-column="batch"]'))
    page.get_by_role("link", name="sales_per_minute").click()
    expect(page.locator("h1")).to_have_text("sales_per_minute")


def test_a_broken_function_shows_up_and_goes(page: Page, address: str, world: World) -> None:
    page.goto(f"{address}/")
    expect(tile(page, "failing")).to_have_text("all well")
    cause = "AnalysisException: A column with name `prize` cannot be resolved. Did you mean `price`?"
    world.fail("sales_per_minute", cause)
    try:
        notice = page.locator(".hw-notice.is-bad")
        expect(notice).to_contain_text("The query sales_per_minute keeps failing")
        expect(notice).to_contain_text("A column with name `prize` cannot be resolved")
        expect(notice).to_contain_text("It is started again from its last finished batch.")
        expect(page.locator('[data-box="sales_per_minute"]')).to_have_class(re.compile("is-bad"))
        expect(tile(page, "failing")).to_have_text("1 failing")
        expect(page.locator("[data-engine]")).to_have_text("a query fails")
        screenshot(page, "overview-failing")
        notice.get_by_role("link", name="show").click()
        expect(page.locator("[data-state]")).to_have_text("failing")
        expect(page.locator(".hw-notice-why")).to_contain_text("`prize`")
        expect(page.locator("tr[data-row] [data-column=cause]")).to_contain_text(["`prize`"])
        world.fail("sales_per_minute", "a second cause")
        expect(page.locator("tr[data-row] [data-column=cause]")).to_contain_text(
            ["a second cause", "`prize`"]
        )
    finally:
        world.mend("sales_per_minute")
    expect(page.locator("[data-state]")).to_have_text("running")
    expect(page.locator(".hw-notice")).to_have_count(0)
    expect(
        page.locator("tr[data-row] [data-column=cause]").first
    ).to_be_visible()  # what was stays to be seen


def test_an_application_that_stopped_says_so(page: Page, address: str, world: World) -> None:
    page.goto(f"{address}/")
    expect(page.locator("[data-engine]")).to_have_text("running")
    world.stopped = True
    try:
        expect(page.locator(".hw-notice")).to_contain_text("The application is stopped")
        expect(page.locator("[data-engine]")).to_have_text("stopped")
        for path in ("/views", "/views/users", "/queries/top_products"):  # what they show is old
            page.goto(f"{address}{path}")
            expect(page.locator(".hw-notice")).to_contain_text("The application is stopped")
        page.goto(f"{address}/topics")
        expect(page.locator('[data-row="shop.clicks"]')).to_be_visible()
        expect(page.locator(".hw-notice")).to_have_count(0)
        page.locator(".hw-pill").click()
        expect(page).to_have_url(f"{address}/")
    finally:
        world.stopped = False
    expect(page.locator(".hw-notice")).to_have_count(0)


# -- topics ------------------------------------------------------------------------------------------


def test_topics_with_their_partitions_sizes_and_readers(page: Page, address: str) -> None:
    page.goto(f"{address}/topics")
    row = page.locator('[data-row="shop.clicks"]')
    expect(row.locator('[data-column="partitions"]')).to_have_text("3")
    expect(row.locator('[data-column="size"]')).to_contain_text("B")
    expect(row.locator('[data-column="readers"]')).to_have_text("clicks_by_country")
    changes(row.locator('[data-column="records"]'))
    page.get_by_placeholder("Find a topic").fill("alerts")
    expect(row).to_have_count(0)
    page.get_by_role("link", name="shop.alerts").click()
    expect(page.locator("h1")).to_have_text("shop.alerts")


def test_partitions_readers_and_configuration_of_a_topic(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/shop.clicks")
    expect(tile(page, "retention")).to_have_text("7 d")
    page.get_by_role("tab", name="Partitions").click()
    changes(page.locator('[data-row="0"] [data-column="end"]'))
    page.get_by_role("tab", name="Readers").click()
    expect(page.locator('[data-row="query clicks_by_country"] [data-column="lag"]')).to_be_visible()
    page.get_by_role("tab", name="Configuration").click()
    expect(page.locator('[data-row="retention.ms"] [data-column="meaning"]')).to_have_text("7 d")
    expect(page.locator('[data-row="retention.ms"] [data-column="source"]')).to_have_text("this topic")


def offsets(page: Page) -> list[int]:
    cells = page.locator(f'{ROWS} [data-column="offset"]').all_inner_texts()
    return [int(cell) for cell in cells]


def choose(page: Page, select: str, option: str) -> None:
    page.locator(f".q-field:has([{select}])").click()
    page.locator(".q-menu .q-item", has_text=option).first.click()


def test_messages_by_offset_filter_and_in_full(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/shop.orders")
    expect(page.locator(ROWS)).to_have_count(50)
    choose(page, "data-partition", "Partition 1")
    choose(page, "data-start", "From offset")
    page.locator("[data-at]").fill("5")
    page.locator("[data-show]").click()
    expect(page.locator('[data-row="1:5"]')).to_be_visible()
    expect(page.locator('[data-row^="0:"]')).to_have_count(0)
    assert min(offsets(page)) == 5
    page.locator("[data-older]").click()
    expect(page.locator('[data-row="1:4"]')).to_be_visible()
    assert sorted(offsets(page)) == [0, 1, 2, 3, 4]
    page.locator("[data-newer]").click()
    expect(page.locator('[data-row="1:5"]')).to_be_visible()
    page.locator('[data-row="1:5"]').click()
    detail = page.locator("[data-detail]")
    expect(detail).to_contain_text("Partition 1, offset 5")
    expect(detail.locator(".is-key", has_text="price")).to_be_visible()
    page.locator("[data-filter]").fill("head TORCH")
    page.locator("[data-show]").click()
    expect(page.locator("[data-said]")).to_contain_text("found in")
    values = page.locator(f'{ROWS} [data-column="value"]')
    expect(values.first).to_contain_text("Head torch")
    assert all("Head torch" in text for text in values.all_inner_texts())


def test_messages_by_time_and_what_is_no_time(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/shop.orders")
    expect(page.locator(ROWS)).to_have_count(50)
    choose(page, "data-start", "From time")
    page.locator("[data-at]").fill("1 hour ago")
    page.locator("[data-show]").click()
    expect(page.locator('[data-row="0:0"]')).to_be_visible()
    page.locator("[data-at]").fill("yesterday-ish")
    page.locator("[data-show]").click()
    expect(page.locator("[data-said]")).to_contain_text("It is not a time")


def test_tombstones_and_headers(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/shop.users")
    page.locator("[data-filter]").fill("key=41")
    page.locator("[data-filter]").press("Enter")
    expect(page.locator(ROWS)).to_have_count(1)
    expect(page.locator(ROWS)).to_contain_text("tombstone")
    page.locator(ROWS).click()
    expect(page.locator("[data-detail]")).to_contain_text("a tombstone, which deletes the key")
    expect(page.locator("[data-detail]")).to_contain_text("source: shop.db")


def test_what_is_asked_for_last_is_shown_however_slow_the_broker(
    page: Page, address: str, headwater: Headwater
) -> None:
    page.goto(f"{address}/topics/shop.users")
    keys = page.locator(f'{ROWS} [data-column="key"]')
    expect(keys.first).to_be_visible()
    os.kill(headwater.pid, signal.SIGSTOP)
    try:
        for key in ("41", "7"):
            page.locator("[data-filter]").fill(f"key={key}")
            page.locator("[data-filter]").press("Enter")
            page.wait_for_timeout(300)  # both are on their way
    finally:
        os.kill(headwater.pid, signal.SIGCONT)
    expect(keys).to_have_text(["7"])


def test_the_live_tail_can_be_paused(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/shop.clicks")
    page.locator("[data-live]").click()
    said = page.locator("[data-said]")
    expect(said).to_contain_text(re.compile(r"\d+ new messages"))
    newest = page.locator(ROWS).first
    before = newest.get_attribute("data-row") or ""
    expect(newest).not_to_have_attribute("data-row", before)
    page.locator("[data-pause]").click()
    expect(said).to_contain_text("paused")
    still = newest.get_attribute("data-row") or ""
    changes(said)  # more arrive, and are not shown
    changes(said)
    expect(newest).to_have_attribute("data-row", still)
    page.locator("[data-pause]").click()
    expect(newest).not_to_have_attribute("data-row", still)


# -- views -------------------------------------------------------------------------------------------


def test_rows_of_a_view_change_in_place(page: Page, address: str) -> None:
    page.goto(f"{address}/views")
    expect(page.locator('[data-row="users"] [data-column="rows"]')).to_have_text("40")
    page.get_by_role("link", name="top_products").click()
    expect(page.locator("tr[data-row]")).to_have_count(8)
    changes(page.locator('[data-row=\'["Map"]\'] [data-column="sold"]'))
    expect(page.locator(".hw-flash").first).to_be_attached()
    page.get_by_role("button", name="sold").click()
    expect(page.locator('th[aria-sort="descending"]')).to_contain_text("sold")
    expect(page.locator("tr[data-row]").first).to_contain_text("Alpine tent")


def test_a_view_is_filtered(page: Page, address: str) -> None:
    page.goto(f"{address}/views/users")
    expect(page.locator("tr[data-row]")).to_have_count(40)
    page.locator("[data-filter]").fill("country = 'CH' and id < 20")
    page.locator("[data-filter]").press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    page.locator("[data-filter]").fill("land = 'CH'")
    page.locator("[data-apply]").click()
    expect(page.locator("[data-said]")).to_contain_text(
        "there is no column 'land'; there are id, name, country"
    )
    page.locator("[data-filter]").fill("")
    page.locator("[data-apply]").click()
    expect(page.locator("tr[data-row]")).to_have_count(40)


def test_a_chart_is_chosen_on_the_page(page: Page, address: str) -> None:
    page.goto(f"{address}/views/clicks_by_country")
    choose(page, "data-kind", "bar")
    expect(page.locator("[data-code]")).to_have_text(
        'app.chart("clicks_by_country", x="window", y="count", by="country", kind="bar")'
    )
    plot = page.locator('[data-chart="count by country"] .hw-plot')
    expect(plot).to_have_attribute("data-names", "AT,CH,DE,FR,IT")
    expect(plot).to_have_attribute("data-points", "20")


# -- connect -----------------------------------------------------------------------------------------


def test_sources_sinks_and_snapshots(page: Page, address: str) -> None:
    page.goto(f"{address}/connect")
    expect(page.locator('[data-row="shop"] [data-column="state"]')).to_have_text("running")
    expect(page.locator('[data-row="shop users"] [data-column="share"]')).to_contain_text("done")
    changes(page.locator('[data-row="shop products"] [data-column="rows"]'))
    expect(page.locator('[data-row="shop.users.redis"] [data-column="topic"]')).to_have_text("shop.users")


# -- looks -------------------------------------------------------------------------------------------


def test_the_theme_follows_the_system_and_is_remembered(browser: Browser, address: str) -> None:
    page = new_page(browser, dark=True)
    try:
        page.goto(f"{address}/")
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))
        page.get_by_label("Light or dark").click()
        expect(page.locator("body")).to_have_class(re.compile("body--light"))
        page.reload()
        expect(page.locator(".hw-flow")).to_be_visible()
        expect(page.locator("body")).to_have_class(re.compile("body--light"))
    finally:
        page.context.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_in_both_themes(browser: Browser, address: str, dark: bool) -> None:
    page = new_page(browser, dark=dark, wide=dark)
    try:
        for name, path in PAGES.items():
            page.goto(f"{address}{path}")
            expect(page.locator("main.hw-page")).to_be_visible()
            expect(page.locator("canvas, tr[data-row], [data-box]").first).to_be_visible()
            if name in ("overview", "query", "view"):
                expect(page.locator(".hw-plot canvas").first).to_be_visible()
                expect(page.locator(".hw-plot").last).not_to_have_attribute("data-points", "0")
                expect(page.get_by_text("Waiting for the view …")).to_have_count(0)
            if name == "topic":
                expect(tile(page, "retention")).to_have_text("7 d")
                page.locator("tr[data-row]").first.click()
                expect(page.locator("[data-detail]")).to_be_visible()
            # Nothing is wider than the window.
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            screenshot(page, f"{name}-{'dark' if dark else 'light'}", whole=name == "overview")
    finally:
        page.context.close()


def test_with_a_token_one_signs_in_first(browser: Browser, world: World) -> None:
    with served(world, HEADWATER_TOKEN="a token of at least some length") as address:
        page = new_page(browser)
        try:
            page.goto(f"{address}/topics/shop.clicks")
            page.get_by_label("token").fill("another")
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_text("That is not the token.")).to_be_visible()
            page.get_by_label("token").fill("a token of at least some length")
            page.get_by_role("button", name="Sign in").click()
            expect(page).to_have_url(f"{address}/")
            changes(
                page.locator('[data-box="clicks"] .hw-box-note')
            )  # the figures come over a socket of its own
        finally:
            page.context.close()


def test_the_window_has_a_title_and_the_keyboard_is_enough(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/shop.orders")
    expect(page).to_have_title("shop.orders · shop · Headwater")
    rows = page.locator(ROWS)
    expect(rows).to_have_count(50)
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    expect(page.locator("[data-detail]")).to_contain_text("Partition")
    page.get_by_role("link", name="Queries").click()
    expect(page).to_have_title("Queries · shop · Headwater")
    expect(page.locator('[aria-current="page"]')).to_have_text("Queries")


def test_what_is_not_there_is_said(page: Page, address: str) -> None:
    page.goto(f"{address}/views/nothing")
    expect(tile(page, "rows")).to_have_text("not there yet")
    page.goto(f"{address}/topics/nothing")
    expect(tile(page, "records")).to_have_text("unknown")
    page.goto(f"{address}/queries/nothing")
    expect(page.locator("[data-state]")).to_have_text("is not a query of this application")


def test_a_path_that_is_no_page_says_so_and_leads_back(browser: Browser, address: str) -> None:
    page = new_page(browser)
    for path in ("nowhere", "topics/a%2Fb"):
        answer = page.goto(f"{address}/{path}")
        assert answer is not None and answer.status == 404
        expect(page.locator("h1")).to_have_text("There is no such page")
    screenshot(page, "no-page")
    page.get_by_role("link", name="Overview /").click()
    expect(page).to_have_title("Overview · shop · Headwater")
    page.context.close()
