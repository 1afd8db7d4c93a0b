"""Доступность живых страниц: axe-core без серьёзных нарушений, телефон без прокрутки вбок."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import ROOT, START_MS
from test_delivery import PAGES

if TYPE_CHECKING:
    from collections.abc import Callable

VIEWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async () => {
  const found = await axe.run(document.querySelector("article"), {resultTypes: ["violations"]});
  return found.violations
    .filter(one => one.impact === "serious" || one.impact === "critical")
    .map(one => [one.id, ...one.nodes.slice(0, 5).map(node => node.target.join(" ") + " " + node.failureSummary)]);
}"""


def wake(page: Any) -> None:
    """Оживить первую живую часть и дождаться Python."""
    if page.locator("[data-widget]").count():
        page.locator("[data-widget] form").first.locator("input, select, button").first.focus()
        page.wait_for_function("document.querySelector('[data-widget]').dataset.answered", timeout=START_MS)
    else:
        page.locator('[data-do="check"]').first.click()
        page.locator("[data-output] > *").first.wait_for(timeout=START_MS)


@pytest.mark.parametrize("address", PAGES)
def test_no_serious_violation(visit: Callable[..., Any], address: str) -> None:
    # Проверяльщик — встроенный скрипт, строгая политика его бы не пустила.
    page = visit(address, bypass_csp=True).page
    wake(page)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    page.add_script_tag(path=AXE)
    for width, theme in VIEWS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        assert page.evaluate(RUN) == [], (width, theme)
        scrolls = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not scrolls, (width, theme)
