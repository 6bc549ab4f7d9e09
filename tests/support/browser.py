"""A headless browser for pages, without a graphics card; tests are skipped where there is none."""

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# WebGL on the processor; no sandbox, which containers lack the rights for.
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
START, STEP = 60_000, 100  # how long, and how often, a page is asked whether it runs [ms]


class Visit:
    """A page in the browser, and what it did.

    problems: errors and warnings of its console; requests: addresses that it asked for beside its
        own file
    """

    def __init__(self, page):
        self.page, self.problems, self.requests = page, [], []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def _console(self, message):
        # The processor is slower at WebGL than a graphics card, of which the browser warns.
        if message.type in ("error", "warning") and "GPU stall" not in message.text:
            self.problems.append(message.text)

    def _request(self, request):
        if request.url != self.page.url and not request.url.startswith(("file:", "about:")):
            self.requests.append(request.url)

    def _dialog(self, dialog):
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def run(self, script):
        """The value of an expression of JavaScript in the page."""
        return self.page.evaluate(script)


def wait(page):
    """Wait until a page's scripts ran, asked from outside: the page itself evaluates no text."""
    for _ in range(START // STEP):
        if page.evaluate("document.readyState === 'complete' && 'viewer' in window"):
            return
        page.wait_for_timeout(STEP)
    pytest.fail(f"the page did not start within {START / 1000} s")


@pytest.fixture(scope="module")
def browser():
    """A function (path of a page) → context manager of a `Visit`."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip(f"no browser is installed; one of {', '.join(NAMES)} is needed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=list(FLAGS))

        @contextmanager
        def visit(path):
            page = chromium.new_page(viewport={"width": 900, "height": 600})
            try:
                one = Visit(page)
                page.goto(path.as_uri())
                wait(page)
                yield one
            finally:
                page.close()

        yield visit
        chromium.close()
