#!/usr/bin/env python3
"""Draws the pictures of README.md from what the program shows: a terminal, and the page of `hearth serve`.

    bench/pictures.py build/hearth docs    writes docs/terminal.svg and docs/page.png

The page needs Chromium, and a build with the server. Without Chromium the terminal alone is drawn. Python's standard
library only; the model is the embedded one, with a format for chats.
"""

import html
import os
import subprocess
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("serve", "cli")]
import browser  # noqa: E402: the path is set above
import chat_model  # noqa: E402
import program  # noqa: E402
import server  # noqa: E402

COMMANDS = [["run", "-p", "Once upon a time", "-n", "100", "--seed", "7"], ["list"]]
COLUMNS, LINE, LETTER, MARGIN = 80, 18, 8.4, 14  # letters, then pixels
FORMAT = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def session():
    """Lines of a terminal, commands with their prompt."""
    lines = []
    for command in COMMANDS:
        lines.append("$ hearth " + " ".join(f'"{word}"' if " " in word else word for word in command))
        out = subprocess.run([program.HEARTH, *command, "--gpu", "none"], check=True, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env=program.cases.clean_environment(program.CACHE.name)).stdout
        for line in out.rstrip("\n").split("\n"):
            lines += textwrap.wrap(line, COLUMNS) or [""]
        lines.append("")
    return lines[:-1]


def svg(lines):
    width, height = COLUMNS * LETTER + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="monospace" font-size="14">',
           f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1c1917"/>']
    for i, line in enumerate(lines):
        colour = "#fdba74" if line.startswith("$ ") else "#e7e5e4"
        out.append(f'<text x="{MARGIN}" y="{MARGIN + 13 + i * LINE}" fill="{colour}" xml:space="preserve">{html.escape(line)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def shoot_page(path):
    with open(program.MODEL, "rb") as f:
        model = chat_model.with_template(f.read(), FORMAT)
    name = os.path.join(program.CACHE.name, "storyteller.gguf")
    with open(name, "wb") as f:
        f.write(model)
    with server.Server("--seed", "7", "-n", "90", "--gpu", "none", model=name) as s, browser.Browser(960, 600) as b:
        b.open(f"http://localhost:{s.port}/")
        b.wait("page.isReached")
        b.click("#composer-text")
        b.type("A story about a dog, please.")
        b.press("Enter")
        b.wait("!page.run && document.querySelector('.message.assistant .tools') !== null")
        b.shoot(path)


if __name__ == "__main__":
    with open(os.path.join(sys.argv[2], "terminal.svg"), "w", encoding="utf-8") as f:
        f.write(svg(session()))
    if browser.find_browser():
        shoot_page(os.path.join(sys.argv[2], "page.png"))
    else:
        print("pictures.py: there is no Chromium here, so page.png is not drawn")
