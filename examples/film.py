"""A moving picture of a page of the viewer, drawn by a browser."""

import io
import shutil
from pathlib import Path


def film(page: Path, picture: Path, start: float, period: float, frames: int = 75) -> None:
    """Draw a period of the page's motion, from a time on [s], into a picture (WebP or GIF)."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = driver.chromium.launch(executable_path=executable, args=flags)
        view = browser.new_page(viewport={"width": 640, "height": 400})
        view.goto(page.absolute().as_uri())
        view.wait_for_function("() => 'viewer' in window")
        view.keyboard.press("b")
        images = []
        for n in range(frames):
            view.evaluate("time => viewer.seek(time)", start + period * n / frames)
            images.append(Image.open(io.BytesIO(view.screenshot())).convert("RGB"))
        browser.close()
    first, *others = images
    length = round(1000 * period / frames)
    first.save(picture, save_all=True, append_images=others, duration=length, loop=0, quality=70)
