/* Text files of the next message. They are read here, and go into the message as blocks of code with their names. */

const MAX_FILE = 1e6; /* bytes: more than contexts hold */

async function readTextFile(file) {
  let text;
  if (file.size > MAX_FILE) throw new Error("it is larger than " + formatBytes(MAX_FILE));
  try {
    text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
  } catch (error) {
    throw new Error("it is no text in UTF-8");
  }
  if (text.includes("\0")) throw new Error("it is no text");
  return text.replace(/\r\n?/g, "\n");
}

async function attachFiles(files) {
  for (const file of files) {
    const name = file.name.replace(/[\p{C}`]/gu, "_").slice(-120);
    try {
      page.attached.push({name, text: await readTextFile(file)});
      announce("Attached " + name);
    } catch (error) {
      showBanner("attach", "“" + name + "” was not attached: " + error.message + ".", [
        ["Close", () => hideBanner("attach")],
      ]);
    }
  }
  showAttached();
  byId("composer-text").focus();
}

function showAttached() {
  const remove = file => {
    page.attached = page.attached.filter(f => f !== file);
    showAttached();
    byId("composer-text").focus();
  };
  byId("attached").replaceChildren(
    ...page.attached.map(file =>
      make(
        "li",
        null,
        make("span", null, file.name + ", " + formatCount(file.text.length) + " characters"),
        iconButton("close", "Remove " + file.name, () => remove(file)),
      ),
    ),
  );
  byId("attached").hidden = page.attached.length === 0;
  updateComposer();
}

/* A text and files as one message. Fences are longer than those in a file. */
function withFiles(text, files) {
  const blocks = files.map(file => {
    const longest = (file.text.match(/`+/g) || []).reduce((n, run) => Math.max(n, run.length), 2),
      fence = "`".repeat(longest + 1),
      ending = /\.(\w{1,10})$/.exec(file.name);
    return (
      "File " +
      file.name +
      ":\n\n" +
      fence +
      (ending ? ending[1] : "") +
      "\n" +
      file.text +
      (file.text.endsWith("\n") ? "" : "\n") +
      fence
    );
  });
  return [text, ...blocks].filter(part => part !== "").join("\n\n");
}
