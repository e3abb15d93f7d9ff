"""Find accessibility barriers of a page, for users without a mouse, sight or colour vision.

The names and roles of elements are those that chromium gives to screen readers. The required
contrast is that of WCAG, level AA.
"""

from collections.abc import Iterator
from typing import Any

from .chromium import Browser

NAMED = {
    "link", "button", "textbox", "searchbox", "combobox", "listbox", "checkbox", "spinbutton",
    "Date", "DateTime", "InputTime", "DisclosureTriangle", "table", "image", "img", "region",
    "navigation", "columnheader", "rowheader", "heading", "RootWebArea",
}  # fmt: skip
TAB = {"type": "rawKeyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
STOPS_MAX = 300
CONTRAST_MIN = 4.5
PLACE = """
  const place = (e) => {
    const steps = [];
    for (; e.parentElement; e = e.parentElement)
      steps.unshift(`${e.tagName}${[...e.parentElement.children].indexOf(e)}`);
    return steps.join(">");
  };
"""
STOPS = (
    PLACE
    + """
  const able = "a[href],button,input:not([type=hidden]),select,textarea,summary,[tabindex='0']";
  return [...document.querySelectorAll(able)]
    .filter((e) => e.checkVisibility() && !e.disabled).map((e) => [place(e), e.outerHTML]);
"""
)
FOCUSED = (
    PLACE
    + """
  const e = document.activeElement, style = getComputedStyle(e);
  return e === document.body ? null : [place(e), style.outlineStyle !== "none"];
"""
)
PALE = """
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((each) => each / 255)
      .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const e = words.currentNode.parentElement;
    if (!words.currentNode.data.trim() || !e.checkVisibility() || e.closest("script,title,.on-bar"))
      continue;
    const style = getComputedStyle(e);
    const ink = light(rgb(e.ownerSVGElement ? style.fill : style.color)), paper = light(behind(e));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < arguments[0]) found.push(`${contrast.toFixed(1)}: ${e.outerHTML.slice(0, 120)}`);
  }
  return found;
"""
# A colour says a thing again that a sign and a word, or a title, or a line under it, say too.
COLOUR_ALONE = """
  const found = [];
  for (const e of document.querySelectorAll(".state,.outcome")) {
    const [sign, ...words] = e.innerText.trim().split(/\\s+/);
    if (!words.length || /^[a-z]/i.test(sign)) found.push(e);
  }
  for (const e of document.querySelectorAll("svg .log,svg .open,svg .reader,svg .event,svg .span"))
    if (!e.closest("[aria-hidden]") && !e.querySelector("title")?.textContent) found.push(e);
  for (const e of document.querySelectorAll("svg .line"))
    if (!e.closest("g,svg").querySelector("title")?.textContent) found.push(e);
  for (const e of document.querySelectorAll("main a"))
    if (!e.ownerSVGElement && !getComputedStyle(e).textDecorationLine.includes("underline"))
      found.push(e);
  for (const e of document.querySelectorAll(".trouble:not(.unseen)"))
    if (!e.innerText.trim()) found.push(e);
  return found.map((e) => e.outerHTML.slice(0, 160));
"""


def barriers(chrome: Browser) -> list[str]:
    """Return the barriers of the displayed page, each with its kind, such as "no name".

    The browser keeps the dark colour scheme, in which it is examined last.
    """
    found = [f"no name: {words}" for words in _without_name(chrome)]
    found += [f"colour alone: {words}" for words in chrome.driver.execute_script(COLOUR_ALONE)]
    for scheme in ("light", "dark"):
        features: list[Any] = [{"name": "prefers-color-scheme", "value": scheme}]
        chrome.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        pale = chrome.driver.execute_script(PALE, CONTRAST_MIN)
        found += [f"pale in {scheme}: {words}" for words in pale]
    return found


def _without_name(chrome: Browser) -> Iterator[str]:
    nodes = chrome.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    known = {node["nodeId"]: node for node in nodes}
    for node in nodes:
        role = _value(node, "role")
        can_have_focus = any(p["name"] == "focusable" for p in node.get("properties", ()))
        if can_have_focus and _is_in_picture(node, known):
            yield f"{role} {_value(node, 'name')} is in a picture, whose parts are not told"
        elif node["ignored"]:
            continue
        elif not _value(node, "name").strip() and (
            role in NAMED or (can_have_focus and role != "main")
        ):
            yield f"{role} {_value(known.get(node.get('parentId', ''), {}), 'name')}"


def _is_in_picture(node: dict[str, Any], known: dict[str, dict[str, Any]]) -> bool:
    while parent := known.get(node.get("parentId", "")):
        if _value(parent, "role") in ("image", "img"):
            return True
        node = parent
    return False


def _value(node: dict[str, Any], field: str) -> str:
    return str(node.get(field, {}).get("value", ""))


def out_of_reach(chrome: Browser) -> Iterator[str]:
    """Press Tab until the focus has passed the whole page.

    Yield each usable element that did not get the focus, or got it without a visible outline.
    """
    chrome.driver.execute_script("document.activeElement.blur(); getSelection().empty()")
    wanted: dict[str, str] = dict(chrome.driver.execute_script(STOPS))
    reached: set[str] = set()
    rounds = 0  # the focus may begin in the middle of the page, and passes the browser's own bar
    for _ in range(STOPS_MAX):
        chrome.driver.execute_cdp_cmd("Input.dispatchKeyEvent", TAB)
        at = chrome.driver.execute_script(FOCUSED)
        rounds += at is None
        if rounds > 1 or wanted.keys() <= reached:
            break
        if at is None:
            continue
        if not at[1]:
            yield f"focus is not seen: {at[0]}"
        reached.add(at[0])
    for place, words in wanted.items():
        if place not in reached:
            yield f"not by Tab: {words[:160]}"
