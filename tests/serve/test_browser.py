"""The page of hearth serve, used by Chromium as a person would: messages, stopping, branches, files, keys, a server
that goes away, both sizes, light and dark. Called by CTest with the program's path; runs in make test-long, where there
is a browser. HEARTH_PAGE_SHOTS names a folder for pictures."""

import json
import os
import re
import time

from browser import Browser, Relay, find_browser
from page_cases import CODE, GROWING, MARKDOWN
from server import CHATML, MODEL, Server, case, cases, chat_model, check, program, run_all, scratch

FLOATS = program.data("models/storyteller-drelu/storyteller-drelu-f32.gguf")
SHOTS = os.environ.get("HEARTH_PAGE_SHOTS")
SIZES = {"wide": (1280, 800), "narrow": (390, 844)}
HOSTILE = '<img src=x onerror="document.hacked=1"><script>document.hacked=2</script>\n\n' \
    '[a](javascript:document.hacked=3) ![b](https://example.org/b.png)'


def with_chat(path):
    with open(path, "rb") as f:
        return scratch("chat-" + os.path.basename(path), chat_model.with_template(f.read(), CHATML))


def shoot(browser, name):
    if SHOTS:
        os.makedirs(SHOTS, exist_ok=True)
        browser.shoot(os.path.join(SHOTS, name + ".png"))


def open_page(browser, port):
    browser.open(f"http://localhost:{port}/")
    browser.wait("page.isReached")


def say(browser, text):
    browser.click("#composer-text")
    browser.type(text)
    browser.press("Enter")


def quote(text):
    """A text as a rule of a grammar."""
    return "root ::= " + json.dumps(text)


def writes(browser, text):
    """The model can only write this text from now on."""
    browser.change_requests(lambda body: {**body, "grammar": quote(text), "max_tokens": 2000})


def endless(browser):
    browser.change_requests(lambda body: {**body, "ignore_eos": True, "max_tokens": 400, "temperature": 1.0, "seed": 1})


TEXT, FACTS = ".message:last-child .text", ".message:last-child .facts"
LAST = f"document.querySelector('{TEXT}')"
DONE = "!page.run && document.querySelector('.message.assistant:last-child .tools') !== null"


def check_clean(browser, port, allowed="(?!)"):
    """Nothing was complained about but what is allowed, and no other server was asked."""
    browser.run("1")
    wrong = [c for c in browser.complaints if not re.search(allowed, c)]
    check(not wrong, wrong)
    others = {u for u in browser.urls if not re.match(rf"http://localhost:{port}/|data:|blob:", u)}
    check(not others, others)


@case
def long_texts_of_little_are_laid_out_in_a_moment():
    """What took a browser 16 s and 36 s to lay out, and a paragraph that it refused."""
    with Server("-t", "1") as s, Browser() as b:
        open_page(b, s.port)
        for piece in "` ", "# a\n", "b\n":
            seconds = b.run(f"""(() => {{
              const text = make("div", {{class: "text prose"}}), from = performance.now();
              document.querySelector("main").append(make("div", {{class: "message assistant"}}, text));
              showMarkdown(text, {json.dumps(piece)}.repeat(40000));
              return text.scrollHeight > 0 && (performance.now() - from) / 1000;
            }})()""")
            check(0 < seconds < 10, piece, seconds)


# ---- conversations -------------------------------------------------------------------------------------------------


@case
def a_message_is_answered_stopped_and_found_again():
    with Server("-t", "1", "-c", "0", model=with_chat(MODEL)) as s, Relay(s.port, pause=0.01) as slow, Browser() as b:
        endless(b)
        open_page(b, slow.port)
        check(b.run("document.activeElement.id") == "composer-text", "the field has no focus")
        shoot(b, "welcome")
        say(b, "A dog and a cat, please.")
        b.wait(f"page.run && {LAST}.textContent.length > 20")
        first = b.text(TEXT)
        b.wait(f"page.run && {LAST}.textContent.length > {len(first) + 20}")  # it grows while it runs
        check(b.text(TEXT).startswith(first), "the text changed")
        check(b.run("byId('send').getAttribute('aria-label')") == "Stop the answer", "the button")
        b.click("#send")
        b.wait(DONE)
        end = time.monotonic() + 10
        while s.get("/slots").json():
            check(time.monotonic() < end, "the server goes on")
            time.sleep(0.02)
        stopped = b.text(TEXT)
        check("stopped" in b.text(FACTS), "what it says")
        b.reload()
        b.wait("page.isReached && document.querySelectorAll('.message').length === 2")
        check(b.text(TEXT) == stopped, stopped, b.text(TEXT))
        check("A dog and a cat" in b.text("#conversations"), "the list")
        b.click("[aria-label='Continue the answer']")
        b.wait(f"page.run && {LAST}.textContent.length > {len(stopped) + 10}")
        b.press("Escape")
        b.wait(DONE)
        check(b.text(TEXT).startswith(stopped.rstrip()), "it does not go on from there")
        check(b.run("document.querySelectorAll('.message').length") == 2, "it is another message")
        check_clean(b, slow.port)


@case
def edits_and_other_answers_are_branches():
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        bodies = []
        b.change_requests(lambda body: bodies.append(body) or
                          {**body, "max_tokens": 12, "seed": len(bodies), "temperature": 1.5})
        open_page(b, s.port)
        b.click("#settings-open")
        b.click("#system")
        b.type("You tell stories.")
        b.run("byId('set-temperature').value = '0.5'; byId('set-stop').value = 'xyz'")
        b.click("#settings .primary")
        say(b, "One")
        b.wait(DONE)
        answer = b.text(TEXT)
        check(bodies[0]["messages"] == [{"role": "system", "content": "You tell stories."},
                                        {"role": "user", "content": "One"}], bodies)
        check(bodies[0]["temperature"] == 0.5 and bodies[0]["stop"] == "xyz" and bodies[0]["stream"] is True, bodies)
        facts = b.text(FACTS)
        check(re.search(r"12 tokens · [\d.]+ tokens/s · first after [\d.]+ m?s", facts), facts)
        check("limit of length" in facts, facts)
        check(re.fullmatch(r"\d+ of [\d,]+ tokens", b.text("#context")), b.text("#context"))
        b.click("[aria-label='Answer once more']")
        b.wait(DONE + " && document.querySelector('.branch') !== null")
        other = b.text(TEXT)
        check(other != answer and "2/2" in b.text(".message:last-child .branch"), answer, other)
        b.click("[aria-label='Earlier version']")
        b.wait(f"{LAST}.textContent === {json.dumps(answer)}")
        b.click("#composer-text")
        b.press("ArrowUp")
        b.wait("document.activeElement.closest('.edit') !== null")
        b.run("document.activeElement.select()")
        b.type("Two")
        b.press("Enter")
        b.wait(DONE + " && document.querySelector('.message.user .text').textContent === 'Two'")
        check(bodies[-1]["messages"][-1]["content"] == "Two", bodies[-1])
        check(b.text(".message.user .branch") == "2/2", "branches of the message")
        b.run("document.querySelector('.message.user [aria-label=\"Earlier version\"]').click()")
        b.wait("document.querySelector('.message.user .text').textContent === 'One'")
        say(b, "And then?")
        b.wait(DONE + " && document.querySelectorAll('.message').length === 4")
        check([m["role"] for m in bodies[-1]["messages"]] == ["system", "user", "assistant", "user"], bodies[-1])
        check("cache" in b.text(FACTS), "tokens from the cache")
        b.press("n", code="KeyN", modifiers=1)
        b.wait("document.querySelectorAll('.message').length === 0")
        check_clean(b, s.port)


@case
def conversations_are_exported_and_imported():
    folder = scratch()
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        b.change_requests(lambda body: {**body, "max_tokens": 8})
        b.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
        open_page(b, s.port)
        say(b, "Remember this")
        b.wait(DONE)
        text = b.text(TEXT)
        b.click("#export")
        path, end = os.path.join(folder, "hearth-conversations.json"), time.monotonic() + 20
        while not os.path.exists(path):
            check(time.monotonic() < end, os.listdir(folder))
            time.sleep(0.05)
        with open(path, encoding="utf-8") as f:
            exported = json.load(f)
        check(exported["format"] == "hearth-conversations" and len(exported["conversations"]) == 1, exported)
        b.click("[aria-label^='Delete: ']")
        b.click("#ask-ok")
        b.wait("document.querySelectorAll('#conversations .open').length === 0")
        choose_files(b, "#import-file", path)
        b.wait("document.querySelectorAll('#conversations .open').length === 1")
        b.click("#conversations .open")
        b.wait(f"{LAST} && {LAST}.textContent === {json.dumps(text)}")
        b.reload()
        b.wait(f"page.isReached && {LAST} && {LAST}.textContent === {json.dumps(text)}")
        circle = {k: {"id": k, "parent": other, "role": "user", "content": "x"} for k, other in ("ab", "ba")}
        wrong = [json.dumps({"format": "hearth-conversations", "version": 1, "conversations": [c]})
                 for c in (None, {}, {"messages": circle}, {"messages": {"a": {"role": "system"}}})]
        read = "(t => { try { readFileOfConversations(t); return ''; } catch (e) { return e.message; } })"
        for text in (*wrong, "[]", "{", "null", ""):
            check(b.run(f"{read}({json.dumps(text)})"), text)
        check_clean(b, s.port)


def choose_files(browser, field, *paths):
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    node = browser.call("DOM.querySelector", nodeId=root, selector=field)["nodeId"]
    browser.call("DOM.setFileInputFiles", files=list(paths), nodeId=node)


@case
def files_and_long_questions_are_sent_whole_and_folded():
    text = "".join(f"line {i} of ``` it\n" for i in range(400))
    with Server("-t", "1", "-c", "0", model=with_chat(MODEL)) as s, Browser() as b:
        bodies = []
        b.change_requests(lambda body: bodies.append(body) or
                          {**body, "max_tokens": 4, "messages": [{"role": "user", "content": "One"}]})
        open_page(b, s.port)
        check(b.run("byId('send').disabled"), "nothing is there to send")
        choose_files(b, "#attach-files", scratch("notes.txt", text.encode()), scratch("other.py", b"x = 1"),
                     scratch("picture.png", b"\x89PNG\xff"))
        b.wait("document.querySelectorAll('#attached li').length === 2 && document.querySelector('.banner') !== null")
        check("“picture.png” was not attached: it is no text in UTF-8" in b.text("#banners"), b.text("#banners"))
        check("notes.txt, " in b.text("#attached") and not b.run("byId('send').disabled"), b.text("#attached"))
        for size, (width, height) in SIZES.items():
            b.resize(width, height)
            shoot(b, f"{size}-attached")
            check(b.run("document.scrollingElement.scrollWidth") <= width and b.run(CONTRAST) == [], size, b.run(CONTRAST))
        b.resize(*SIZES["wide"])
        b.click("[aria-label='Remove other.py']")
        b.wait("document.querySelectorAll('#attached li').length === 1")
        b.click(".banner button")
        b.wait("document.querySelector('.banner') === null")
        say(b, "What is it?")
        b.wait(DONE)
        whole = f"What is it?\n\nFile notes.txt:\n\n````txt\n{text}````"
        check(bodies[0]["messages"] == [{"role": "user", "content": whole}], bodies[0]["messages"][0]["content"][:200])
        check(b.run("byId('attached').hidden"), "they are still there")
        shown = b.text(".message.user .text")
        check(shown.startswith("What is it?\n\nFile notes.txt:") and shown.endswith(" …") and len(shown) < 1010, shown)
        check(b.text(".fold") == f"Show all {len(whole):,} characters", b.text(".fold"))
        shoot(b, "folded")
        b.run("document.querySelector('.fold').focus()")
        b.press("Enter")
        b.wait(f"document.querySelector('.message.user .text').textContent.length === {len(whole)}")
        check(b.run("document.activeElement.className.includes('fold') && document.activeElement.ariaExpanded") == "true", "focus")
        b.click(".fold")
        b.wait("document.querySelector('.message.user .text').textContent.length < 1010")
        # No more room before an answer than between others.
        b.press("n", code="KeyN", modifiers=1)
        say(b, "Short")
        b.wait(DONE)
        room = b.run(f"{LAST}.getBoundingClientRect().top - document.querySelector('.message.user .text').getBoundingClientRect().bottom")
        check(room <= 36, room, "pixels before an answer")
        check_clean(b, s.port)


@case
def conversations_are_searched():
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        open_page(b, s.port)
        for question, answer in (("Apples", "They are " + "red. " * 300 + "Some are *yellow*."), ("Pears", "Green."), ("Nuts", "Brown")):
            b.answer_requests([{"id": "a", "choices": [{"index": 0, "delta": {"content": answer}, "finish_reason": "stop"}]}])
            b.press("n", code="KeyN", modifiers=1)
            say(b, question)
            b.wait(DONE)
        titles = "[...document.querySelectorAll('#conversations .open')].map(e => e.title)"
        check(sorted(b.run(titles)) == ["Apples", "Nuts", "Pears"], b.run(titles))
        b.click("#search")
        b.type("YELLOW")
        b.wait(titles + ".join() === 'Apples'")
        check("Some are *yellow*" in b.text("#conversations .around"), b.text("#conversations"))
        shoot(b, "search")
        check(b.run(CONTRAST) == [], b.run(CONTRAST))
        b.click("#conversations .open")
        b.wait("document.querySelector('.message.user .text').textContent === 'Apples'")
        check(b.run(f"{LAST}.getBoundingClientRect().top < 200"), "the message is not shown")
        b.run("byId('search').select()")
        b.click("#search")
        b.run("byId('search').select()")
        b.type("plums")
        b.wait("document.querySelectorAll('#conversations .open').length === 0")
        check(b.text("#no-conversations") == "No conversation has this text.", b.text("#no-conversations"))
        b.run("byId('search').select()")
        b.press("Backspace")
        b.run("byId('search').value = ''; byId('search').dispatchEvent(new Event('input'))")
        b.wait(titles + ".length === 3")
        check_clean(b, s.port)


@case
def settings_show_what_is_in_force():
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        bodies = []
        b.change_requests(lambda body: bodies.append(body) or {**body, "max_tokens": 4})
        open_page(b, s.port)
        b.click("#settings-open")
        b.wait("byId('set-temperature').placeholder !== ''")
        names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "max_tokens", "seed", "stop")
        shown = [b.run(f"byId('set-{n}').placeholder") for n in names]
        check(shown == ["0.8", "0.95", "40", "0.05", "1", "0", "no limit", "a new one", "nothing"], shown)
        check(b.text("#settings-title") == "Settings of new conversations", b.text("#settings-title"))
        check(b.run("byId('system-default').offsetParent === null"), "a box without a conversation")
        b.press("Escape")

        def asked(prompt):
            b.press("n", code="KeyN", modifiers=1)
            say(b, "One")
            b.wait(DONE)
            system = [m["content"] for m in bodies[-1]["messages"] if m["role"] == "system"]
            check(system == ([prompt] if prompt else []), prompt, bodies[-1])

        def choose(prompt, is_default):
            b.click("#settings-open")
            b.run(f"byId('system').value = {json.dumps(prompt)}")
            if b.run("byId('system-default').checked") != is_default:
                b.click("#system-default")
            b.click("#settings .primary")
            b.wait(f"page.open.system === {json.dumps(prompt)}")

        asked("")
        choose("Be brief.", False)
        asked("")
        choose("Be kind.", True)
        asked("Be kind.")
        choose("Be loud.", False)
        asked("")
        check_clean(b, s.port)


# ---- what a model writes -------------------------------------------------------------------------------------------


@case
def what_a_model_writes_stays_text():
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        writes(b, HOSTILE)
        open_page(b, s.port)
        say(b, HOSTILE.split("\n", 1)[0])
        b.wait(DONE)
        shown = b.text(TEXT)
        check('<img src=x onerror="document.hacked=1"><script>document.hacked=2</script>' in shown, shown)
        check("[a](javascript:document.hacked=3)" in shown, shown)
        made = b.run("document.querySelectorAll('.messages img, .messages script, .messages [onerror]').length")
        check(made == 0, "elements of the text")
        links = b.run("[...document.querySelectorAll('.messages a')].map(a => a.href)")
        check(links == ["https://example.org/b.png"], links)
        check(b.run("document.hacked") is None, "the text ran")
        check(b.text(".message.user .text") == HOSTILE.split("\n", 1)[0], "the user's text")
        check_clean(b, s.port)
        # The policy holds even if a page's code would do it.
        b.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.hacked=4\">')")
        time.sleep(0.3)
        check(b.run("document.hacked") is None, "the text ran")
        check(any("Content Security Policy" in c for c in b.complaints), b.complaints)


@case
def reasoning_is_folded():
    parts = [{"role": "assistant", "content": ""}, {"reasoning_content": "Let me "},
             {"reasoning_content": "<b>see</b>."}, {"content": "It is "}, {"content": "**so**."}]
    events = [{"id": "a", "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in parts]
    events += [{"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        b.answer_requests(events)
        open_page(b, s.port)
        say(b, "Why?")
        b.wait(DONE)
        check(b.run(f"{LAST}.innerHTML") == "<p>It is <strong>so</strong>.</p>", b.run(f"{LAST}.innerHTML"))
        check(b.run("document.querySelector('.reasoning').open") is False, "it is open")
        b.click(".reasoning summary")
        check(b.run("document.querySelector('.reasoning').open") is True, "it does not open")
        check("Reasoning, 3 words" in b.run("document.querySelector('.reasoning').innerText"), "its heading")
        check(b.text(".thought") == "Let me <b>see</b>.", "its text")
        b.run("document.querySelector('[aria-label=\"Copy the answer\"]').focus()")
        b.run("showMessages()")
        check(b.run("document.activeElement.getAttribute('aria-label')") == "Copy the answer", "the focus is lost")
        check(b.run("document.querySelector('.reasoning').open") is True, "it closes by itself")
        b.reload()
        b.wait("page.isReached && document.querySelector('.thought') !== null")
        check_clean(b, s.port)


@case
def markdown_becomes_elements():
    with Server("-t", "1") as s, Browser() as b:
        open_page(b, s.port)
        show = "(t => { const e = make('div'); showMarkdown(e, t); return e.innerHTML; })"
        for text, expected in MARKDOWN:
            shown = b.run(f"{show}({json.dumps(text)})")
            check(shown == expected, text, shown, expected)
        colour = "((t, l) => make('code', null, ...colourCode(t, l)).innerHTML)"
        for text, language, expected in CODE:
            shown = b.run(f"{colour}({json.dumps(text)}, {json.dumps(language)})")
            check(shown == expected, language, text, shown, expected)
        text = "```c++\n<a> *b*\n# c\n```\nafter"
        code = b.run(f"{show}({json.dumps(text)})")
        check("<code>&lt;a&gt; *b*\n# c</code>" in code and code.endswith("<p>after</p>"), code)
        check("<span>c++</span>" in code, code)
        # Text that grows gives the same elements at the end, and those that are complete stay.
        whole = "\n\n".join(t for t, _ in MARKDOWN if t) + "\n\n```\ncode\n```\n"
        check(b.run(f"""(() => {{
            const t = {json.dumps(whole)}, e = make("div"), all = make("div");
            let first = null;
            for (let n = 0; n <= t.length; n += 7) {{
                showMarkdown(e, t.slice(0, n));
                if (n > 60 && !first) first = e.firstElementChild;
            }}
            showMarkdown(e, t);
            showMarkdown(all, t);
            return e.innerHTML === all.innerHTML && e.firstElementChild === first;
        }})()"""), "text that grows")
        time_of = ("((piece, n, end) => { const e = make('div'), t = piece.repeat(n) + end, from = performance.now();"
                   " showMarkdown(e, t); return (performance.now() - from) / 1000; })")
        for piece, end in GROWING:
            seconds = b.run(f"{time_of}({json.dumps(piece)}, {50000 // len(piece)}, {json.dumps(end)})")
            check(seconds < 5, "50,000 characters of", repr(piece), "take", seconds, "s")


# ---- the server ----------------------------------------------------------------------------------------------------


@case
def a_key_is_asked_for_once():
    with Server("-t", "1", env={"HEARTH_API_KEY": "sk-right"}, model=with_chat(MODEL)) as s, Browser() as b:
        b.change_requests(lambda body: {**body, "max_tokens": 8})
        b.open(f"http://localhost:{s.port}/")
        b.wait("byId('key-dialog').open")
        check(b.run("byId('key-wrong').hidden"), "it was not wrong yet")
        for key, right in (("sk-wrong", False), ("sk-right", True)):
            b.type(key)
            b.press("Enter")
            b.wait("page.isReached" if right else "byId('key-dialog').open && !byId('key-wrong').hidden")
        say(b, "One")
        b.wait(DONE)
        check(b.run("[sessionStorage.getItem(KEY_NAME), document.cookie]") == ["sk-right", ""], "where the key is")
        b.reload()
        b.wait("page.isReached && document.querySelectorAll('.message').length === 2")
        check(not b.run("byId('key-dialog').open"), "it is asked for again")
        check_clean(b, s.port, allowed="status of 401")


@case
def it_works_below_a_prefix():
    with Server("-t", "1", "--api-prefix", "/llm", env={"HEARTH_API_KEY": "sk-right"}, model=with_chat(MODEL)) as s, Browser() as b:
        b.change_requests(lambda body: {**body, "max_tokens": 8})
        for place in ("/llm", "/llm/"):
            b.urls.clear()
            b.open(f"http://localhost:{s.port}{place}")
            b.wait("byId('key-dialog').open")
            b.type("sk-right")
            b.press("Enter")
            b.wait("page.isReached")
            b.press("n", code="KeyN", modifiers=1)
            say(b, "One")
            b.wait(DONE)
            asked = {u.split(f"localhost:{s.port}")[-1] for u in b.urls if not u.startswith(("data:", "blob:"))}
            check({place, "/llm/v1/models", "/llm/v1/chat/completions"} <= asked, asked)
            check(all(path.startswith("/llm") for path in asked), asked)
            b.run("sessionStorage.clear()")
        check_clean(b, s.port, allowed="status of 401")


@case
def a_server_that_restarts_is_found_again():
    model = with_chat(MODEL)
    with Server("-t", "1", model=model) as s:
        port = s.port
    with Browser() as b:
        with Server("-t", "1", "--port", str(port), model=model) as s:
            b.change_requests(lambda body: {**body, "max_tokens": 8})
            open_page(b, port)
        say(b, "Are you there?")
        b.wait("document.querySelector('.banner') !== null")
        check(re.search("cannot be reached.* Trying again in", b.text("#banners")), b.text("#banners"))
        shoot(b, "unreachable")
        with Server("-t", "1", "--port", str(port), model=model) as s:
            b.wait(DONE + " && page.isReached", 60)
            check(b.text(TEXT) and b.run("document.querySelector('.banner') === null"), "the answer came by itself")
            check_clean(b, port, allowed="Failed to load|ERR_")


@case
def stopping_works_while_the_server_is_away():
    with Server("-t", "1", model=with_chat(MODEL)) as s, Relay(s.port) as relay, Relay(0) as nothing, Browser() as b:
        open_page(b, relay.port)
        relay.point_at(nothing.port)  # which closes each connection at once
        say(b, "Are you there?")
        b.wait("document.querySelector('.banner') !== null")
        b.press("Escape")
        b.wait(DONE, 5)
        check("stopped" in b.text(FACTS), "what it says")
        relay.point_at(s.port)
        b.run("document.querySelector('.banner button').click()")
        b.wait("page.isReached && document.querySelector('.banner') === null")
        b.change_requests(lambda body: {**body, "max_tokens": 8})
        b.click("[aria-label='Answer once more']")
        b.wait(DONE + f" && {LAST}.textContent.length > 0")
        check_clean(b, relay.port, allowed="Failed to load|ERR_")


@case
def errors_say_what_to_do():
    with Server("-t", "1", "-c", "64", model=with_chat(MODEL)) as s, Browser() as b:
        open_page(b, s.port)
        say(b, "word " * 200)
        b.wait(DONE)
        said = b.text(FACTS)
        check("does not fit into the context of 64 tokens" in said and "-c" in said, said)
        b.change_requests(lambda body: {**body, "temperature": 9})
        b.press("n", code="KeyN", modifiers=1)
        say(b, "One")
        b.wait(DONE)
        check("refuses temperature" in b.text(FACTS), "a setting")
        check_clean(b, s.port, allowed="status of 400")


@case
def a_model_without_a_template_continues_texts():
    with Server("-t", "1") as s, Browser() as b:
        bodies = []
        b.change_requests(lambda body: bodies.append(body) or {**body, "max_tokens": 20, "seed": 3})
        open_page(b, s.port)
        check("no chat template" in b.text("#hint"), b.text("#hint"))
        say(b, "Once upon a time")
        b.wait(DONE)
        check(bodies[0]["prompt"] == "Once upon a time" and b.run(f"{LAST}.textContent.length") > 20, bodies)
        check_clean(b, s.port)


# ---- figures and looks ---------------------------------------------------------------------------------------------


@case
def the_engine_shows_what_it_does():
    with Server("-t", "1", "-c", "0", model=with_chat(FLOATS)) as s, Relay(s.port, pause=0.02) as slow, Browser() as b:
        endless(b)
        open_page(b, slow.port)
        b.press("e", code="KeyE", modifiers=1)
        b.wait("byId('engine').offsetParent !== null || getComputedStyle(byId('engine')).display === 'block'")
        say(b, "A bear")
        b.wait("figures.heat.length > 0", 60)
        say_so = b.run("byId('figures').innerText")
        for words in ("Exact", "Live neurons by layer", "of all neurons", "Tokens per second", "Until the first token",
                      "Cache of conversations"):
            check(words in say_so, words, say_so)
        check("Read from storage" not in say_so, say_so)
        shares = b.run("figures.heat[0]")
        check(len(shares) == s.get("/stats").json()["n_layer"], shares)
        check(all(0 <= x <= 1 for x in shares) and max(shares) > 0, shares)
        shoot(b, "engine")
        b.press("Escape")
        b.wait(DONE)
        check_clean(b, slow.port)


def choose_model(browser, name):
    browser.run(f"byId('model').value = {json.dumps(name)}; byId('model').dispatchEvent(new Event('change'))")
    browser.wait(f"page.isReached && document.title.startsWith({json.dumps(name)})")


@case
def a_model_is_chosen_and_each_answers():
    folder = scratch("models")
    os.makedirs(folder)
    long = "neurons-of-a-model-with-quite-a-long-name-f32"
    for name, path, template in (("alone", MODEL, None), (long, FLOATS, CHATML), ("tales", MODEL, CHATML)):
        with open(path, "rb") as f, open(os.path.join(folder, name + ".gguf"), "wb") as out:
            out.write(chat_model.with_template(f.read(), template))
    with Server("-t", "1", "-c", "0", model=folder) as s, Browser() as b:
        bodies = []
        b.change_requests(lambda body: bodies.append(body) or {**body, "max_tokens": 60, "temperature": 1.0, "seed": 1, "ignore_eos": True})
        open_page(b, s.port)
        check(b.run("[...byId('model').options].map(o => o.value)") == ["alone", long, "tales"], "the menu")
        check(b.run("byId('model').value") == "alone", "the one that is loaded")
        check("no chat template" in b.text("#hint"), b.text("#hint"))
        b.run("showEngine(true)")
        for i, name in enumerate(("alone", long, "tales")):
            if i > 0:
                choose_model(b, name)
                b.wait("byId('figures').innerText.includes('Not in memory')")
                check(name in b.run("byId('figures').innerText"), b.run("byId('figures').innerText"))
                check(b.run("figures.last === null && figures.rates.length === 0 && figures.heat.length === 0"), "figures of another model")
                check(b.text("#hint") == "", b.text("#hint"))
                shoot(b, f"models-{i}-chosen")
            say(b, f"Message {i}")
            b.wait(DONE, 60)
            b.wait(f"figures.last !== null && figures.last.model === {json.dumps(name)} && byId('figures').innerText.includes('Exact')")
            check(bodies[-1]["model"] == name and ("prompt" in bodies[-1]) == (i == 0), bodies[-1])
            check(name in b.text(FACTS) and "60 tokens" in b.text(FACTS), b.text(FACTS))
            check("Not in memory" not in b.run("byId('figures').innerText"), "it is there")
            check([m["id"] for m in s.get("/v1/models").json()["data"] if m["meta"]["loaded"]] == [name], "who is loaded")
            for size, (width, height) in SIZES.items():
                b.resize(width, height)
                for dark in (False, True):
                    b.choose(dark)
                    for panel in (False, True):
                        b.run(f"showEngine({json.dumps(panel)}); byId('log').scrollTop = 1e6")
                        time.sleep(0.2)
                        shot = f"models-{i}-{size}-{'dark' if dark else 'light'}" + ("-engine" if panel else "")
                        shoot(b, shot)
                        check(b.run("document.scrollingElement.scrollWidth") <= width, shot, "is too wide")
                        check(b.run(CONTRAST) == [], shot, b.run(CONTRAST))
            b.resize(*SIZES["wide"])
            b.choose(False)
        named = b.run("[...document.querySelectorAll('.message.assistant .by')].map(e => e.textContent)")
        check(named == ["alone", long, "tales"], named)
        shown = b.run("byId('model').getBoundingClientRect().width")
        choose_model(b, long)
        check(b.run("byId('model').getBoundingClientRect().width") > shown + 50, "the menu is as wide as its longest name")
        b.click("[aria-label='Answer once more']")  # of another model
        b.wait(DONE + " && document.querySelector('.branch') !== null", 60)
        check(bodies[-1]["model"] == long and long in b.text(FACTS), bodies[-1], b.text(FACTS))
        check_clean(b, s.port)


CONTRAST = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const read = c => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = c;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = read(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c;
    }
    return [255, 255, 255, 255];
  };
  const bad = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t = walker.nextNode(); t; t = walker.nextNode()) {
    const e = t.parentElement, box = e.getBoundingClientRect();
    if (!t.data.trim() || box.width < 2 || box.height < 2 || !e.checkVisibility()) continue;
    if (e.closest("script, style, noscript, .visually-hidden, [disabled], .skip, option")) continue;
    const a = light(read(getComputedStyle(e).color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(t.data.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return bad;
})()"""

ANSWER = """## Sizes

A *small* model, **bold** and `code`, a [link](https://example.org/).

| a | b |
|---|--:|
| 1 | 2 |

- [x] done

\\[ \\sum_{i=1}^n \\frac{a_i}{2} = \\begin{pmatrix}1 & 2 & 3\\\\4 & 5 & 6\\end{pmatrix} + x_1 + x_2 + x_3 + x_4 + x_5 + x_6 + x_7 + x_8 + x_9 + x_{10} \\]

```c
int main(void) { return 0 + "a"; } /* a line that is longer than a narrow window is wide, by far */
```

> a quote

1. one
2. two
"""


@case
def it_looks_right_at_both_sizes_light_and_dark():
    with Server("-t", "1", model=with_chat(FLOATS)) as s, Browser() as b:
        writes(b, ANSWER)
        open_page(b, s.port)
        say(b, "Show me what you can write, with a word that is very long: " + "extra" * 30)
        b.wait(DONE)
        n_made = b.run(f"{LAST}.querySelectorAll('table, pre, blockquote, ol, h2, strong, em, a, math, input, .c-word').length")
        check(n_made == 13, n_made)
        for size, (width, height) in SIZES.items():
            b.resize(width, height)
            for dark in (False, True):
                b.choose(dark)
                scheme = "dark" if dark else "light"
                for panel in (False, True):
                    b.run(f"showEngine({json.dumps(panel)}); byId('log').scrollTop = 0")
                    b.wait("true")
                    time.sleep(0.2)
                    name = f"{size}-{scheme}" + ("-engine" if panel else "")
                    shoot(b, name)
                    wide = b.run("document.scrollingElement.scrollWidth")
                    check(wide <= width, name, "is wider than the window:", wide)
                    check(b.run("byId('log').scrollWidth <= byId('log').clientWidth"), name, "scrolls sideways")
                    check(b.run(CONTRAST) == [], name, b.run(CONTRAST))
                b.run("showEngine(false)")
                for dialog in ("settings", "shortcuts"):
                    b.run("openSettings()" if dialog == "settings" else "byId('shortcuts').showModal()")
                    shoot(b, f"{size}-{scheme}-{dialog}")
                    check(b.run(CONTRAST) == [], dialog, b.run(CONTRAST))
                    b.press("Escape")
                    b.wait("!document.querySelector('dialog[open]')")
        b.click("#side-open")
        b.wait("getComputedStyle(byId('side')).visibility === 'visible'")
        time.sleep(0.2)
        shoot(b, "narrow-list")
        b.press("Escape")
        b.wait("getComputedStyle(byId('side')).visibility === 'hidden'")
        check_clean(b, s.port)


FOCUSED = """(() => {
  const e = document.activeElement;
  if (e === document.body) return null;
  const label = e.labels && e.labels[0] ? e.labels[0].textContent : "";
  const isShown = getComputedStyle(e).outlineStyle !== "none" || e.id === "composer-text" || e.id === "log";
  return [e.tagName + "#" + (e.id || e.className), (e.ariaLabel || label || e.textContent).trim(), isShown];
})()"""
NAMED = ("button", "textbox", "combobox", "link", "dialog", "navigation")


@case
def the_keyboard_reaches_all_and_names_are_there():
    with Server("-t", "1", model=with_chat(MODEL)) as s, Browser() as b:
        b.change_requests(lambda body: {**body, "max_tokens": 8})
        open_page(b, s.port)
        say(b, "One")
        b.wait(DONE)
        b.run("document.querySelector('.skip').focus()")
        names = []
        for _ in range(60):
            at = b.run(FOCUSED)
            if at is None:
                break
            check(at[1] or at[0] == "MAIN#log", "no name", at)
            check(at[2], "the focus cannot be seen", at)
            names.append(at[0])
            b.press("Tab")
        check(names[0] == "A#skip", names)
        wanted = ["BUTTON#new-chat", "SELECT#model", "BUTTON#settings-open", "BUTTON#engine-toggle",
                  "TEXTAREA#composer-text"]
        check([n for n in names if n in wanted] == wanted, names)
        tree = b.call("Accessibility.getFullAXTree")["nodes"]
        for node in tree:
            role, name = node.get("role", {}).get("value"), node.get("name", {}).get("value", "")
            check(node.get("ignored") or role not in NAMED or name.strip(), "no name", node)
        check_clean(b, s.port)


def reason_to_skip():
    if not os.environ.get("HEARTH_LONG"):
        return "only in make test-long"
    return "" if find_browser() else "there is no Chromium (Debian: chromium)"


if __name__ == "__main__":
    if reason_to_skip():
        cases._cases.clear()

        @case
        def a_browser_uses_the_page():
            raise cases.Skip(reason_to_skip())

    run_all(__file__)
