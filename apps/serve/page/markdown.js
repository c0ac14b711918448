/* Shows markdown as elements: headings, lists, quotes, tables, code, formulas, emphasis, links. What it does not know
 * stays text. HTML in it is text too, and images are shown as links, because a page must not fetch what a model names.
 * Every line is looked at a bounded number of times: texts are as long as a model likes. */

const MAX_DEPTH = 8;

/* ---- blocks: parseBlocks(lines) is a list of {type, source, ...} ---- */

const LINE = {
  fence: /^ {0,3}(`{3,}|~{3,})/,
  heading: /^ {0,3}(#{1,6})(?=\s|$)/,
  quote: /^ {0,3}> ?/,
  item: /^( {0,8})([-*+]|\d{1,9}[.)])(?:\s+|$)/,
};

function isBlank(line) {
  return /^\s*$/.test(line);
}

function isRule(line) {
  return /^ {0,3}[-*_]/.test(line) && /^(-{3,}|\*{3,}|_{3,})$/.test(line.replace(/\s/g, ""));
}

/* [mark, language] of a line that opens a block of code, or null. */
function readFence(line) {
  const found = LINE.fence.exec(line),
    words = found && line.slice(found[0].length).trim();
  return found && !words.includes("`") ? [found[1], words.split(/\s/, 1)[0]] : null;
}

function beginsBlock(line) {
  return (
    readFence(line) !== null || LINE.heading.test(line) || isRule(line) || LINE.quote.test(line) || LINE.item.test(line)
  );
}

function takeFence(lines, at, [mark, language]) {
  const closes = line => line.startsWith(mark) && line === mark[0].repeat(line.length);
  let end = at + 1;
  while (end < lines.length && !(/^ {0,3}[`~]/.test(lines[end]) && closes(lines[end].trim()))) end++;
  return [{type: "code", language, text: lines.slice(at + 1, end).join("\n")}, Math.min(end + 1, lines.length)];
}

/* Number signs after the text close a heading; those of a word belong to it ("C#"). */
function makeHeading(line, mark) {
  const text = line.slice(mark[0].length).trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  const isClosed = end === 0 || /\s/.test(text[end - 1]);
  return {type: "heading", level: mark[1].length, text: isClosed ? text.slice(0, end).trimEnd() : text};
}

/* A formula in lines of its own: $$ or \[ at their beginning, its end at theirs. [text, the line after it], or null. */
const MAX_FORMULA_LINES = 100;

function readFormula(lines, at) {
  const first = lines[at].trim(),
    close = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\]" : null;
  if (!close) return null;
  const last = Math.min(lines.length, at + MAX_FORMULA_LINES);
  for (let end = at; end < last; end++) {
    const line = end > at ? lines[end].trim() : first.slice(2);
    const found = line.indexOf(close);
    if (found < 0) continue;
    if (found + 2 < line.length) return null; /* it is in a paragraph */
    const whole = lines
      .slice(at, end + 1)
      .join("\n")
      .trim();
    return [whole.slice(2, -2), end + 1];
  }
  return null;
}

function takeQuote(lines, at) {
  let end = at;
  while (end < lines.length && (LINE.quote.test(lines[end]) || (!isBlank(lines[end]) && !beginsBlock(lines[end]))))
    end++;
  return [{type: "quote", lines: lines.slice(at, end).map(l => l.replace(LINE.quote, ""))}, end];
}

/* A list is what is indented below its items, with blank lines between. */
function takeList(lines, at) {
  const first = LINE.item.exec(lines[at]),
    isOrdered = /\d/.test(first[2]),
    indent = first[1].length;
  const list = {type: "list", isOrdered, start: isOrdered ? parseInt(first[2], 10) : 1, items: []};
  let end = at,
    inner = 0;
  while (end < lines.length) {
    const line = lines[end],
      item = LINE.item.exec(line),
      spaces = /^ */.exec(line)[0].length;
    if (isBlank(line)) {
      const next = lines[end + 1];
      if (next === undefined || isBlank(next) || (/^ */.exec(next)[0].length < inner && !LINE.item.test(next))) break;
      list.items[list.items.length - 1].push("");
    } else if (item && spaces <= indent + 1) {
      if (/\d/.test(item[2]) !== isOrdered || spaces < indent || isRule(line)) break;
      inner = indent + item[2].length + 1;
      list.items.push([line.slice(item[0].length)]);
    } else if (spaces >= Math.min(inner, indent + 2)) {
      list.items[list.items.length - 1].push(line.slice(Math.min(spaces, inner)));
    } else if (beginsBlock(line) || isBlank(lines[end - 1])) {
      break;
    } else {
      list.items[list.items.length - 1].push(line);
    }
    end++;
  }
  return [list, end];
}

function tableCells(line) {
  const cells = line.trim().replace(/^\|/, "").replace(/\\\|/g, "\u0000").replace(/\|$/, "").split("|");
  return cells.map(c => c.replace(/\u0000/g, "|").trim());
}

function takeTable(lines, at) {
  const align = tableCells(lines[at + 1]).map(c => (!c.endsWith(":") ? null : c.startsWith(":") ? "center" : "right"));
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end])) end++;
  return [{type: "table", align, head: tableCells(lines[at]), rows: lines.slice(at + 2, end).map(tableCells)}, end];
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || at + 1 === lines.length) return false;
  const rule = tableCells(lines[at + 1]);
  return rule.every(c => /^:?-+:?$/.test(c)) && rule.length === tableCells(lines[at]).length;
}

function takeParagraph(lines, at) {
  let end = at + 1;
  while (
    end < lines.length &&
    !isBlank(lines[end]) &&
    !beginsBlock(lines[end]) &&
    !isTable(lines, end) &&
    !readFormula(lines, end)
  )
    end++;
  return [{type: "paragraph", text: lines.slice(at, end).join("\n")}, end];
}

function takeBlock(lines, at) {
  const line = lines[at];
  const fence = readFence(line),
    heading = LINE.heading.exec(line);
  if (fence) return takeFence(lines, at, fence);
  if (heading) return [makeHeading(line, heading), at + 1];
  if (isRule(line)) return [{type: "rule"}, at + 1];
  if (LINE.quote.test(line)) return takeQuote(lines, at);
  if (LINE.item.test(line)) return takeList(lines, at);
  if (isTable(lines, at)) return takeTable(lines, at);
  const formula = readFormula(lines, at);
  if (formula) return [{type: "formula", text: formula[0]}, formula[1]];
  return takeParagraph(lines, at);
}

function parseBlocks(lines) {
  const blocks = [];
  for (let at = 0, end; at < lines.length; at = end) {
    end = at + 1;
    if (isBlank(lines[at])) continue;
    let block;
    [block, end] = takeBlock(lines, at);
    block.source = lines.slice(at, end).join("\n");
    blocks.push(block);
  }
  return blocks;
}

/* ---- text within a block ---- */

/* Emphasis by a delimiter at `at`: [the text inside, where it ends], or null. */
function delimited(text, at, mark, absent) {
  const from = at + mark.length;
  if (absent.has(mark) || from >= text.length || /\s/.test(text[from])) return null;
  if (mark[0] === "_" && at > 0 && /[\p{L}\p{N}]/u.test(text[at - 1])) return null;
  for (let end = text.indexOf(mark, from); end >= 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length] || " ";
    if (end === from || /\s/.test(text[end - 1])) continue;
    if (mark.length === 1 && after === mark) {
      end++;
      continue;
    }
    if (mark[0] === "_" && /[\p{L}\p{N}]/u.test(after)) continue;
    return [text.slice(from, end), end + mark.length];
  }
  absent.add(mark);
  return null;
}

function isSafeLink(url) {
  return /^(https?|mailto):[^\s]+$/i.test(url);
}

/* A target outside of this page. Others stay text: they would lead to this server. */
function linkTo(url, children) {
  if (!isSafeLink(url)) return null;
  return make("a", {href: url, target: "_blank", rel: "noopener noreferrer nofollow"}, children);
}

/* Where the bracket at `at` is closed, or -1. The length is bounded, so that a bracket without an end costs little. */
function closing(text, at, open, close) {
  const last = Math.min(text.length, at + 2000);
  for (let i = at, depth = 0; i < last; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === open) depth++;
    else if (text[i] === close && --depth === 0) return i;
  }
  return -1;
}

/* [text](target "title") at `at`. */
function takeLink(text, at, depth) {
  const from = text[at] === "!" ? at + 1 : at,
    middle = text[from] === "[" ? closing(text, from, "[", "]") : -1,
    end = middle >= 0 && text[middle + 1] === "(" ? closing(text, middle + 1, "(", ")") : -1;
  if (end < 0) return null;
  const inside = text.slice(middle + 2, end).trim(),
    [word] = inside.split(/\s/, 1),
    title = inside.slice(word.length).trim();
  if (title && !/^"[^"]*"$/.test(title)) return null;
  const target = word.startsWith("<") && word.endsWith(">") ? word.slice(1, -1) : word,
    label = text.slice(from + 1, middle) || target;
  const link = linkTo(target, from > at ? label : parseInline(label, depth + 1));
  return link && [link, end + 1];
}

function takeCode(text, at, absent) {
  const mark = /^`+/.exec(text.slice(at, at + 100))[0];
  if (absent.has(mark)) return [document.createTextNode(mark), at + mark.length];
  for (let end = text.indexOf(mark, at + mark.length); end >= 0; end = text.indexOf(mark, end)) {
    let size = mark.length;
    while (text[end + size] === "`") size++;
    if (size === mark.length) {
      const inside = text.slice(at + mark.length, end).replace(/\n/g, " ");
      /* Boxes of spaces alone stay text: browsers look for the end of a line through all of them, again for each. */
      if (isBlank(inside)) return [document.createTextNode(text.slice(at, end + size)), end + size];
      const isPadded = inside.startsWith(" ") && inside.endsWith(" ");
      return [make("code", null, isPadded ? inside.slice(1, -1) : inside), end + size];
    }
    end += size;
  }
  absent.add(mark);
  return [document.createTextNode(mark), at + mark.length];
}

function takeBareLink(text, at) {
  if (at > 0 && /[\p{L}\p{N}]/u.test(text[at - 1])) return null;
  const found = /^https?:\/\/[^\s<>"'`|]+/i.exec(text.slice(at, at + 2000));
  if (!found) return null;
  let end = found[0].length;
  while (".,;:!?)]}*_~".includes(found[0][end - 1])) end--;
  const url = found[0].slice(0, end);
  return url.length > 8 ? [linkTo(url, url), at + url.length] : null;
}

/* A formula that `open` begins at `at` and `close` ends. What is no formula of formulas.js stays as it is written. */
function takeFormula(text, at, open, close, absent) {
  if (absent.has(close)) return null;
  const from = at + open.length,
    end = text.indexOf(close, from);
  if (end < 0) absent.add(close);
  if (end < 0 || (open === "$" && !isDollarFormula(text, at, end))) return null;
  const after = end + close.length,
    formula = makeFormula(text.slice(from, end), open === "$$" || open === "\\[");
  return [formula || document.createTextNode(text.slice(at, after)), after];
}

/* Dollars are prices and variables too: "$5 or $6", "$HOME:$PATH". */
function isDollarFormula(text, at, end) {
  const isWord = i => /[\p{L}\p{N}$]/u.test(text[i] || " "),
    isSpace = i => /\s/.test(text[i]);
  const isShort = end > at + 1 && end - at < 300 && !text.slice(at, end).includes("\n");
  return isShort && !isSpace(at + 1) && !isSpace(end - 1) && !isWord(end + 1) && (at === 0 || !isWord(at - 1));
}

const EMPHASIS = [
  ["***", "strong", "em"],
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];

function takeEmphasis(text, at, depth, absent) {
  for (const [mark, tag, inner] of EMPHASIS) {
    if (!text.startsWith(mark, at)) continue;
    const found = delimited(text, at, mark, absent);
    if (!found) continue;
    const children = parseInline(found[0], depth + 1);
    return [make(tag, null, inner ? make(inner, null, children) : children), found[1]];
  }
  return null;
}

function takeSpecial(text, at, depth, absent) {
  switch (text[at]) {
    case "\n":
      return [make("br"), at + 1];
    case "$":
      return text[at + 1] === "$" ? takeFormula(text, at, "$$", "$$", absent) : takeFormula(text, at, "$", "$", absent);
    case "\\": {
      const close = {"(": "\\)", "[": "\\]"}[text[at + 1]],
        formula = close && takeFormula(text, at, text.slice(at, at + 2), close, absent);
      if (formula) return formula;
      return /[!-/:-@[-`{-~]/.test(text[at + 1] || "") ? [document.createTextNode(text[at + 1]), at + 2] : null;
    }
    case "`":
      return takeCode(text, at, absent);
    case "[":
    case "!":
      return takeLink(text, at, depth);
    case "<": {
      const found = /^<([^\s<>]+)>/.exec(text.slice(at, at + 2000)),
        link = found && linkTo(found[1], found[1]);
      return link ? [link, at + found[0].length] : null;
    }
    case "h":
      return takeBareLink(text, at);
    default:
      return takeEmphasis(text, at, depth, absent);
  }
}

/* A list of nodes. */
function parseInline(text, depth) {
  if (depth > MAX_DEPTH) return [document.createTextNode(text)];
  const nodes = [],
    absent = new Set(); /* delimiters without an end from here on */
  const special = /[\\`*_~[!<h$\n]/g;
  let from = 0;
  for (let found = special.exec(text); found; found = special.exec(text)) {
    const taken = takeSpecial(text, found.index, depth, absent);
    if (!taken) {
      /* A run of the same character is looked at once. */
      while (text[special.lastIndex] === found[0] && found[0] !== "h") special.lastIndex++;
      continue;
    }
    if (found.index > from) nodes.push(document.createTextNode(text.slice(from, found.index)));
    nodes.push(taken[0]);
    from = special.lastIndex = taken[1];
  }
  if (from < text.length) nodes.push(document.createTextNode(text.slice(from)));
  return nodes;
}

/* ---- elements ---- */

function makeCode(block) {
  return make(
    "div",
    {class: "code"},
    make(
      "div",
      {class: "code-head"},
      make("span", null, block.language || "text"),
      copyButton("Copy this code", () => block.text, "Copy"),
    ),
    make("pre", {tabindex: "0"}, make("code", null, colourCode(block.text, block.language))),
  );
}

function makeTable(block) {
  const row = (cells, tag) =>
    make(
      "tr",
      null,
      block.align.map((align, i) =>
        make(tag, {class: align, scope: tag === "th" ? "col" : null}, parseInline(cells[i] || "", 0)),
      ),
    );
  return make(
    "div",
    {class: "table", tabindex: "0"},
    make(
      "table",
      null,
      make("thead", null, row(block.head, "th")),
      make("tbody", null, block.rows.map(cells => row(cells, "td"))),
    ),
  );
}

function makeFormulaBlock(block) {
  const formula = makeFormula(block.text, true);
  return formula ? make("div", {class: "formula", tabindex: "0"}, formula) : make("p", {class: "source"}, block.source);
}

/* "[ ]" and "[x]" at the beginning of an item are boxes, which a reader cannot change. */
function makeItem(lines, depth) {
  const box = /^\[([ xX])\]\s/.exec(lines[0]),
    isDone = box && box[1] !== " ",
    blocks = parseBlocks(box ? [lines[0].slice(box[0].length), ...lines.slice(1)] : lines),
    isLoose = lines.some((l, i) => l === "" && i < lines.length - 1);
  return make(
    "li",
    {class: box ? "task" : null},
    box && make("input", {type: "checkbox", disabled: true, checked: isDone, "aria-label": isDone ? "Done" : "To do"}),
    blocks.flatMap(b => (b.type === "paragraph" && !isLoose ? parseInline(b.text, 0) : [makeBlock(b, depth + 1)])),
  );
}

function makeBlock(block, depth) {
  if (depth > MAX_DEPTH) return make("p", null, block.source);
  switch (block.type) {
    case "code":
      return makeCode(block);
    case "heading":
      return make("h" + block.level, null, parseInline(block.text, 0));
    case "rule":
      return make("hr");
    case "quote":
      return make("blockquote", null, parseBlocks(block.lines).map(b => makeBlock(b, depth + 1)));
    case "list":
      return make(
        block.isOrdered ? "ol" : "ul",
        block.isOrdered ? {start: block.start} : null,
        block.items.map(i => makeItem(i, depth)),
      );
    case "table":
      return makeTable(block);
    case "formula":
      return makeFormulaBlock(block);
    default:
      return make("p", null, parseInline(block.text, 0));
  }
}

/* Shows a text that grows: blocks that have not changed since the last call stay, with what is selected in them. */
function showMarkdown(element, text) {
  const blocks = parseBlocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n")),
    shown = [...element.children]; /* once: a browser counts them again after each change */
  blocks.forEach((block, i) => {
    const there = shown[i];
    if (there && there.source === block.source) return;
    const made = makeBlock(block, 0);
    made.source = block.source;
    if (there) there.replaceWith(made);
    else element.append(made);
  });
  for (const there of shown.slice(blocks.length)) there.remove();
}
