"""Pictures of a page of the viewer, drawn by a browser: stills, and a moving picture."""

import io
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def stills(page: Path, times: Iterable[float], size: tuple[int, int] = (640, 400)) -> list[Any]:
    """Images (of Pillow) of the page's motion at some times [s], without panels."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = driver.chromium.launch(executable_path=executable, args=flags)
        view = browser.new_page(viewport=dict(zip(("width", "height"), size, strict=True)))
        view.goto(page.absolute().as_uri())
        view.wait_for_function("() => 'viewer' in window")
        view.keyboard.press("b")
        images = []
        for time in times:
            view.evaluate("time => viewer.seek(time)", time)
            images.append(Image.open(io.BytesIO(view.screenshot())).convert("RGB"))
        browser.close()
    return images


def film(page: Path, picture: Path, start: float, period: float, frames: int = 75) -> None:
    """Draw a period of the page's motion, from a time on [s], into a picture (WebP or GIF)."""
    first, *others = stills(page, (start + period * n / frames for n in range(frames)))
    length = round(1000 * period / frames)
    first.save(picture, save_all=True, append_images=others, duration=length, loop=0, quality=70)
