"""The page in a real browser. `make test-browser` runs this file; `make test` does not, since it needs chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fabricated import Made, fabricate
from web_driver import Browser, browser

from fairlead.reports import summarize_settings, write_page

KEPT = Path(__file__).parents[2] / "reproductions" / "zeng2023_table_1-full.runs.jsonl.xz"
HOSTILE = "<img src=x onerror=document.title=1><script>document.title=1<"
ARROW_RIGHT, TAB, ENTER, ESCAPE = "\ue014", "\ue004", "\ue007", "\ue00c"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run; one evaluation; twenty methods over two seeds; runs that failed, with names that want to run; and what
    was kept of a reproduction, in three settings."""
    folder = tmp_path_factory.mktemp("pages")
    fabricate(folder / "one" / "run", Made(accuracy=(0.2, 0.5, 0.6)))
    for seed in (0, 1, 2):
        once = Made(seed=seed, accuracy=(None, None, 0.5 + 0.01 * seed), seconds=10.0 + seed)
        fabricate(folder / "once" / str(seed), once)
    for place in range(20):
        for seed in (0, 1):
            accuracy = tuple(0.1 + 0.04 * place * step / 4 + 0.01 * seed for step in range(5))
            made = Made(seed=seed, accuracy=accuracy, lr=0.01 * (place + 1), steps=(3, 1))
            fabricate(folder / "twenty" / f"a_method_of_a_long_name_{place:02}" / str(seed), made)
    for seed in (0, 1):
        fabricate(folder / "failed" / HOSTILE / str(seed), Made("fedavg", seed))
    failed = Made("fednova", outcome=f"failed: {HOSTILE}", accuracy=(0.1,), planned=4, metric=HOSTILE)
    fabricate(folder / "failed" / "fednova" / "0", failed)
    (fabricate(folder / "failed" / "broken") / "spec.toml").write_text(HOSTILE)
    names = ("one", "once", "twenty", "failed")
    for name in names:
        write_page(summarize_settings([folder / name], targets=[0.4]), folder / f"{name}.html", name)
    write_page(summarize_settings([KEPT]), folder / "kept.html", "kept")
    return {name: folder / f"{name}.html" for name in (*names, "kept")}


@pytest.mark.parametrize("name", ["one", "once", "twenty", "failed", "kept"])
@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out_and_nothing_is_complained_of(
    window: Browser, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    window.open(pages[name], width=width, dark=dark)
    assert window.run("return document.documentElement.scrollWidth") == width
    assert window.run("return document.title") == f"{name} – fairlead report"
    assert window.complaints() == []
    outside = """
      const page = document.documentElement.clientWidth;
      return [...document.querySelectorAll("main *, header *, .legend *")]
        .filter((element) => !element.closest(".scroll, .skip, svg, pre") && element.getClientRects().length)
        .filter((element) => element.getBoundingClientRect().right > page + 1)
        .map((element) => element.outerHTML.slice(0, 80));
    """
    assert window.run(outside) == []
    assert len(window.picture()) > 20_000


@pytest.mark.parametrize(
    ("width", "least", "most"), [(400, 9, 16), (800, 11, 16), (1200, 11, 16), (1600, 11, 16)]
)
def test_texts_are_of_one_size(
    window: Browser, pages: dict[str, Path], width: int, least: float, most: float
) -> None:
    """In pixels: drawings grow and shrink with the window, their texts hardly; nine is the least that can be read."""
    window.open(pages["twenty"], width=width)
    heights = """
      return [...document.querySelectorAll("svg text, main td, main small")]
        .filter((element) => element.getClientRects().length)
        .map((element) => {
          const drawing = element.closest("svg");
          const scale = drawing ? drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : 1;
          return parseFloat(getComputedStyle(element).fontSize) * scale;
        });
    """
    found = window.run(heights)
    assert least <= min(found)
    assert max(found) <= most


@pytest.mark.parametrize("width", [400, 800, 1000, 1600])
def test_rows_and_their_axis_have_one_zero(window: Browser, pages: dict[str, Path], width: int) -> None:
    """And what is said beside a row has room for words."""
    window.open(pages["twenty"], width=width)
    places = """
      const middle = (element) => { const box = element.getBoundingClientRect(); return box.left + box.width / 2; };
      const zero = document.querySelector(".standing .bar .zero");
      const tick = [...document.querySelectorAll(".standing .row-axis text")].find((text) => text.textContent === "0");
      const verdict = document.querySelector(".standing .verdict");
      return [middle(zero), middle(tick), verdict.getBoundingClientRect().width];
    """
    zero, tick, room = window.run(places)
    assert zero == pytest.approx(tick, abs=1.5)
    assert room >= 150


def test_a_table_that_goes_on_has_a_shadow_at_that_edge(window: Browser, pages: dict[str, Path]) -> None:
    """It comes of layers of which some move with the table; at its end they cover the shadow."""
    window.open(pages["twenty"], width=1200)
    hinted = """
      const box = document.querySelector("#results .scroll");
      return [box.scrollWidth > box.clientWidth, getComputedStyle(box).backgroundAttachment];
    """
    assert window.run(hinted) == [True, "local, local, scroll, scroll, scroll"]


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_their_background(window: Browser, pages: dict[str, Path], dark: bool) -> None:
    """4.5 to 1 for text, as the Web Content Accessibility Guidelines ask; 3 to 1 for lines."""
    window.open(pages["twenty"], width=1600, dark=dark)
    contrast = """
      const [foreground, background] = arguments;
      const style = getComputedStyle(document.documentElement);
      const luminance = (name) => {
        const hex = style.getPropertyValue(name).trim().slice(1);
        const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
        const [r, g, b] = [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16) / 255)
          .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const [a, b] = [luminance(foreground), luminance(background)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    """
    for ink in ("--ink", "--soft", "--accent", "--good", "--bad"):
        assert window.run(contrast, ink, "--paper") >= 4.5, ink
        assert window.run(contrast, ink, "--card") >= 4.5, ink
    for color in range(7):
        assert window.run(contrast, f"--color-{color}", "--card") >= 3, color


def test_the_theme_follows_the_system_and_the_switch(window: Browser, pages: dict[str, Path]) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    window.open(pages["one"], width=1600, dark=False)
    light = window.run(background)
    window.open(pages["one"], width=1600, dark=True)
    dark = window.run(background)
    assert light != dark
    window.click("#theme")
    assert window.run(background) == light
    window.click("#theme")
    assert window.run(background) == dark
    assert window.run("return document.getElementById('theme').textContent") == "Theme: dark"
    window.open(pages["one"], width=1600, dark=False)
    assert window.run(background) == dark
    window.click("#theme")
    assert window.run(background) == light


def test_values_appear_at_the_pointer(window: Browser, pages: dict[str, Path]) -> None:
    """The second of three rounds lies in the middle of the axis."""
    window.open(pages["one"], width=1600)
    box = window.run(
        "const chart = document.querySelector('.by-rounds .chart'); chart.scrollIntoView({block: 'center'});"
        "const box = chart.getBoundingClientRect(); return [box.left, box.top, box.width, box.height];"
    )
    left, top, width, height = box
    window.point_at(left + width * (54 + 394 / 2) / 460, top + height / 2)
    assert window.run("return document.getElementById('tip').innerText").split("\n") == [
        "Rounds: 2",
        "run\t50.0 %",
    ]
    window.point_at(2, 2)
    assert window.run("return document.getElementById('tip').hidden") is True


@pytest.mark.parametrize("axis", ["rounds", "virtual"])
def test_a_single_evaluation_can_be_seen_and_read(window: Browser, pages: dict[str, Path], axis: str) -> None:
    """Its marker and the bar of its interval, against rounds and by clocks of which every seed has another.

    Where the marker is, above and below it, the topmost thing drawn is the marker or the bar.
    """
    window.open(pages["once"], width=1600)
    window.click(f"label[for='axis-{axis}']")
    seen = """
      const chart = document.querySelector(`.by-${arguments[0]} .chart`);
      chart.scrollIntoView({block: "center"});
      const box = chart.querySelector(".method .marker").getBoundingClientRect();
      const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
      return [0, -20, 20].map((away) => document.elementFromPoint(x, y + away).getAttribute("class"));
    """
    assert window.run(seen, axis) == ["marker", "band whisker", "band whisker"]
    window.run("document.querySelector(`.by-${arguments[0]} .chart`).focus()", axis)
    window.press(ARROW_RIGHT)
    title = {"rounds": "Rounds: 3", "virtual": "Virtual time: 16.5 s"}[axis]
    assert window.run("return document.getElementById('tip').innerText").split("\n")[0] == title


def test_charts_are_read_with_the_keyboard(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["one"], width=1600)
    window.run("document.querySelector('.by-rounds .chart').focus()")
    seen = []
    for _ in range(4):
        window.press(ARROW_RIGHT)
        seen.append(window.run("return document.querySelector('#tip b').textContent"))
    assert seen == ["Rounds: 1", "Rounds: 2", "Rounds: 3", "Rounds: 3"]
    window.press(ESCAPE)
    assert window.run("return document.getElementById('tip').hidden") is True


def test_tables_are_sorted_by_mouse_and_keyboard(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["twenty"], width=1600)
    names = "return [...document.querySelectorAll('#results tbody tr')].map((row) => row.dataset.method)"
    as_written = [str(place) for place in range(20)]
    assert window.run(names) == as_written
    heads = window.run(
        "return [...document.querySelectorAll('#results thead th')].map((head) => head.innerText)"
    )
    final = next(place for place, head in enumerate(heads, 1) if head.startswith("Final"))
    window.click(f"#results thead th:nth-child({final}) button")
    assert window.run(names) == as_written[::-1]
    assert (
        window.run(f"return document.querySelector('#results thead th:nth-child({final})').ariaSort")
        == "descending"
    )
    window.run(f"document.querySelector('#results thead th:nth-child({final}) button').focus()")
    window.press(ENTER)
    assert window.run(names) == as_written


def test_entries_without_a_value_stay_last_in_either_order(window: Browser, pages: dict[str, Path]) -> None:
    """Methods 0 to 19 end at 0.04·place above 0.1; the target lies above what some of them reach."""
    window.open(pages["twenty"], width=1600)
    entries = "return [...document.querySelectorAll('#targets tbody td:nth-child(2)')].map((cell) => cell.innerText)"
    missing = window.run(entries).count("–")
    assert 0 < missing < 20
    for _ in range(2):
        window.click("#targets thead th:nth-child(2) button")
        shown = window.run(entries)
        assert shown[20 - missing :] == ["–"] * missing
        assert "–" not in shown[: 20 - missing]


def test_methods_are_hidden_everywhere_and_come_back(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["twenty"], width=1600)
    shown = (
        "return [...document.querySelectorAll('[data-method=\"3\"]')]"
        ".filter((element) => getComputedStyle(element).display !== 'none').length"
    )
    before = window.run(shown)
    assert before > 10
    window.click("[data-toggle='3']")
    assert window.run(shown) == 0
    window.click("[data-toggle='3']")
    assert window.run(shown) == before
    bands = (
        "return [...document.querySelectorAll('.by-rounds .band')]"
        ".filter((band) => band.getClientRects().length).length"
    )
    # The method under the pointer shows its interval.
    window.point_at(2, 2)
    assert window.run(bands) == 0
    window.click("[data-toggle-all='hide']")
    assert window.run(shown) == 0
    for place in (3, 4):
        window.click(f"[data-toggle='{place}']")
    assert window.run(bands) > 0
    window.click("[data-toggle-all='show']")
    assert window.run(shown) == before
    assert window.complaints() == []


def test_settings_share_methods_and_have_axes_of_their_own(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["kept"], width=1600)
    shown = (
        "return [...document.querySelectorAll('.standing [data-method=\"1\"]')]"
        ".filter((element) => element.getClientRects().length).length"
    )
    assert window.run(shown) >= 3
    window.click("[data-toggle='1']")
    assert window.run(shown) == 0
    by_steps = (
        "return [...document.querySelectorAll('.by-steps')].map((chart) => chart.getClientRects().length > 0)"
    )
    assert not any(window.run(by_steps))
    window.click("label[for='axis-steps-Hybrid']")
    found = window.run(by_steps)
    third = len(found) // 3
    assert found == [False] * third + [True] * third + [False] * third
    assert window.complaints() == []


def test_axes_change_without_a_script(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["twenty"], width=1600, script=False)
    window.click("label[for='axis-bytes']")
    document = window.devtools("DOM.getDocument")["root"]["nodeId"]
    visible = {}
    for axis in ("rounds", "bytes"):
        node = window.devtools("DOM.querySelector", nodeId=document, selector=f".by-{axis}")["nodeId"]
        window.devtools("DOM.enable")
        window.devtools("CSS.enable")
        style = window.devtools("CSS.getComputedStyleForNode", nodeId=node)["computedStyle"]
        visible[axis] = next(each["value"] for each in style if each["name"] == "display")
    assert visible == {"rounds": "none", "bytes": "block"}
    window.devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_everything_that_can_be_used_can_be_reached_with_the_keyboard(
    window: Browser, pages: dict[str, Path]
) -> None:
    window.open(pages["failed"], width=1600)
    reached = set()
    for _ in range(60):
        window.press(TAB)
        reached.add(
            window.run(
                "const it = document.activeElement; return it.id || it.className.baseVal || it.tagName"
            )
        )
    assert {"theme", "chart", "BUTTON", "INPUT", "SUMMARY", "axis-rounds", "DIV", "A"} <= reached


def test_hostile_names_do_nothing(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["failed"], width=1600)
    window.run("for (const each of document.querySelectorAll('details')) each.open = true;")
    window.run("document.querySelector('.by-rounds .chart').focus()")
    window.press(ARROW_RIGHT)
    assert HOSTILE in window.run("return document.getElementById('tip').innerText")
    assert window.run("return [document.images.length, document.scripts.length]") == [0, 1]
    assert window.run("return document.title") == "failed – fairlead report"
    assert window.complaints() == []


def test_paper_gets_light_colors_and_no_controls(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["failed"], width=1600, dark=True)
    window.devtools("Emulation.setEmulatedMedia", media="print")
    assert window.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in ("#theme", ".legend input", ".buttons", "nav"):
        assert (
            window.run("return getComputedStyle(document.querySelector(arguments[0])).display", control)
            == "none"
        )
    window.devtools("Emulation.setEmulatedMedia", media="")
