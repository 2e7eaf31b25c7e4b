"""Make the pictures of the documentation from a real terminal and the real MLflow UI.

    python -m pip install pyte selenium         # in addition to rlplug, chromium and chromedriver
    python docs/pictures/make.py terminal       # run-live.svg, run-end.svg
    python docs/pictures/make.py ui             # mlflow-runs.png, mlflow-charts.png, mlflow-compare.png

Films of the gallery: `rlplug run ppo CartPole-v1 --name film`, then `rlplug play film --video film-ppo.webp --fps 20`.

This script is not part of the product. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMAND = "rlplug run a3c CartPole-v1"
COLUMNS = 130
LINES = 30
#: The runs in the pictures of the UI: two algorithms with five seeds each.
SWEEP = (
    "sweep",
    "a2c,ppo",
    "CartPole-v1",
    "--seeds",
    "5",
    "--total-timesteps",
    "20000",
    "--name",
    "both",
)
PORT = 5123


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["terminal", "ui"], help="terminal, ui")
    parser.add_argument(
        "--directory",
        type=Path,
        help="directory of the runs, used again by a later call  [a temporary directory]",
    )
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as temporary:
        directory = (arguments.directory or Path(temporary)).absolute()
        directory.mkdir(exist_ok=True)
        if "terminal" in arguments.what:
            photograph_terminal(directory)
        if "ui" in arguments.what:
            photograph_ui(directory)


# The terminal.


def photograph_terminal(directory: Path) -> None:
    """Type the command into a shell on a pseudo-terminal; draw the screen at two thirds of the run and at its end."""
    import pyte

    # The first run in a directory also creates the MLflow store, which later runs only open.
    first = ["rlplug", "run", "a2c", "CartPole-v1", "--total-timesteps", "500"]
    subprocess.run(first, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    live = ""
    for output in type_command(COMMAND, directory):
        stream.feed(output)
        shown = "\n".join(screen.display)
        steps = re.search(r"([\d,]+) / ([\d,]+) steps", shown)
        done, total = (
            (int(number.replace(",", "")) for number in steps.groups()) if steps else (0, 1)
        )
        if not live and re.search(r"^training   \d", shown, re.M) and done > 0.6 * total:
            live = to_svg(screen)
    assert live, "the run ended before the picture at two thirds"
    (HERE / "run-live.svg").write_text(live, encoding="utf-8")
    (HERE / "run-end.svg").write_text(to_svg(screen), encoding="utf-8")


def type_command(command: str, directory: Path) -> Iterator[bytes]:
    """Type `command` into a shell; yield the output of its terminal until the next prompt."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(directory)
        os.environ.update(PS1="$ ", TERM="xterm-256color")
        os.execvp("bash", ["bash", "--norc", "--noprofile"])
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    output_end = b""
    while not output_end.endswith(b"$ "):
        output_end += os.read(terminal, 4096)
    yield b"$ "
    os.write(terminal, f"{command}\n".encode())
    output_end = b""
    while not (b"rlplug ui" in output_end and output_end.endswith(b"$ ")):
        if not select.select([terminal], [], [], 600)[0]:
            raise TimeoutError(command)
        output = os.read(terminal, 4096)
        output_end = (output_end + output)[-4096:]
        yield output
    os.write(terminal, b"exit\n")
    os.waitpid(process, 0)


WIDTH = 8.4
HEIGHT = 19
MARGIN = 14
TITLE = 28
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
#: pyte's names of colors; it gives all others as hexadecimal numbers.
COLORS = {
    "default": "#d0d0d0",
    "black": "#555555",
    "red": "#f07178",
    "green": "#a5d675",
    "brown": "#e6c86e",
    "blue": "#82aaff",
    "magenta": "#e05c9a",
    "cyan": "#7fd5d9",
    "white": "#f0f0f0",
}


def to_svg(screen: Any) -> str:
    """Return a screen as SVG, without the empty lines at its end."""
    rows = max(y for y, line in enumerate(screen.display) if line.strip()) + 1
    width = 2 * MARGIN + COLUMNS * WIDTH
    height = 2 * MARGIN + TITLE + rows * HEIGHT
    buttons = [
        f'<circle cx="{20 + 18 * number}" cy="18" r="5.5" fill="{fill}"/>'
        for number, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONTS}" font-size="14" xml:space="preserve">'
    )
    text = [word for y in range(rows) for word in words(screen.buffer[y], y)]
    return "\n".join(
        [
            head,
            '<rect width="100%" height="100%" rx="8" fill="#1c1e26"/>',
            *buttons,
            *text,
            "</svg>\n",
        ]
    )


def words(line: Any, y: int) -> Iterator[str]:
    """Yield the words of a line by color, with column and width, so that any monospaced font keeps the grid."""
    for (color, bold), run in groupby(range(COLUMNS), key=lambda x: (line[x].fg, line[x].bold)):
        columns = list(run)
        for word in re.finditer(r"\S+(?: \S+)*", "".join(line[x].data for x in columns)):
            x = MARGIN + (columns[0] + word.start()) * WIDTH
            fill = COLORS.get(color, f"#{color}")
            weight = ' font-weight="bold"' if bold else ""
            yield (
                f'<text x="{x:.1f}" y="{MARGIN + TITLE + 10 + y * HEIGHT}" fill="{fill}"{weight} '
                f'textLength="{len(word[0]) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">{escape(word[0])}</text>'
            )


# The MLflow UI.


def photograph_ui(directory: Path) -> None:
    """Train the sweep unless it exists, open `rlplug ui` in Chromium, and save the list of runs and the charts."""
    if not (directory / "runs" / "both").exists():
        subprocess.run(["rlplug", *SWEEP], cwd=directory, check=True)
    words = ["rlplug", "ui", "--port", str(PORT)]
    variables = {**os.environ, "RLPLUG_UI_TOKEN": "pictures"}
    with subprocess.Popen(
        words, cwd=directory, stdout=subprocess.PIPE, text=True, env=variables
    ) as server:
        try:
            assert server.stdout is not None
            links = (
                line.split(": ")[1].strip()
                for line in iter(server.stdout.readline, "")
                if "newest" in line
            )
            link = next(links, "")
            if not link:
                raise RuntimeError("the MLflow UI did not start")
            with chromium() as page:
                page.driver.get(link)
                page.runs()
                page.charts()
                page.driver.get(link)
                page.compare()
        finally:
            server.send_signal(signal.SIGINT)


@contextmanager
def chromium() -> Iterator[Page]:
    """Start a headless Chromium with an empty profile."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as profile:
        for flag in (
            "headless",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "hide-scrollbars",
            "window-size=1500,1000",
            f"user-data-dir={profile}",
        ):
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
        try:
            yield Page(driver)
        finally:
            driver.quit()


class Page:
    """The page of the experiment that `rlplug ui` links to, used like by hand."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def runs(self) -> None:
        """Save the list of runs."""
        self.find("//*[normalize-space(text())='a2c']")
        self.keep("mlflow-runs.png")

    def charts(self) -> None:
        """Save the charts with mean and deviation of each algorithm's seeds over env steps."""
        self.driver.get(f"{self.driver.current_url}&compareRunsMode=CHART")
        self.click("//button[normalize-space(.)='Group by']")
        self.find("//input[@placeholder='Search']").send_keys("algorithm")
        self.click("//*[@role='menuitemcheckbox' and normalize-space(.)='algorithm']")
        self.click("//h2 | //h1")
        self.find("//input[contains(@placeholder, 'Search metric')]").send_keys("return_m|rollout")
        self.keep("mlflow-charts.png")

    def compare(self) -> None:
        """Save the comparison of all runs; another element covers the box that selects them."""
        self.find("//*[normalize-space(text())='a2c']")
        box = self.driver.find_element("xpath", "//input[@aria-label='Select all runs']")
        self.driver.execute_script("arguments[0].click()", box)
        self.click("//button[normalize-space(.)='Compare']")
        self.find("//*[contains(text(), 'Comparing')]")
        self.keep("mlflow-compare.png")

    def find(self, path: str) -> Any:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.expected_conditions import element_to_be_clickable
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, 60).until(element_to_be_clickable((By.XPATH, path)))

    def click(self, path: str) -> None:
        self.find(path).click()

    def keep(self, name: str) -> None:
        """Save a picture as soon as the page stays the same for three seconds, without the toolbars of charts."""
        self.driver.execute_script(
            "const style = document.createElement('style'); style.textContent = '.modebar {display: none}';"
            "document.head.append(style)"
        )
        before = b""
        now = self.driver.get_screenshot_as_png()
        while before != now:
            time.sleep(3)
            before = now
            now = self.driver.get_screenshot_as_png()
        (HERE / name).write_bytes(now)


if __name__ == "__main__":
    main()
