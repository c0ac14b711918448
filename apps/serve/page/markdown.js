/* Shows markdown as elements: headings, lists, quotes, tables, code, emphasis, links. What it does not know stays
 * text. HTML in it is text too, and images are shown as links, because a page must not fetch what a model names.
 * Every line is looked at a bounded number of times: texts are as long as a model likes. */

const MAX_DEPTH = 8;

/* ---- blocks: parseBlocks(lines) is a list of {type, source, ...} ---- */

const LINE = {
  fence: /^ {0,3}(`{3,}|~{3,})(?=[^`]*$)\s*(\S*)/,
  heading: /^ {0,3}(#{1,6})(?:\s|$)/,
  rule: /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/,
  quote: /^ {0,3}> ?/,
  item: /^( {0,8})([-*+]|\d{1,9}[.)])(?:\s+|$)/,
};

function isBlank(line) {
  return /^\s*$/.test(line);
}

function beginsBlock(line) {
  return (
    LINE.fence.test(line) ||
    LINE.heading.test(line) ||
    LINE.rule.test(line) ||
    LINE.quote.test(line) ||
    LINE.item.test(line)
  );
}

/* What stands behind its marks, without those that may close it. */
function headingText(line, marks) {
  const text = line.slice(marks.length).trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return text.slice(0, end).trimEnd();
}

function takeFence(lines, at) {
  const [, mark, language] = LINE.fence.exec(lines[at]);
  const close = new RegExp("^ {0,3}" + mark[0] + "{" + mark.length + ",}\\s*$");
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end++;
  return [{type: "code", language, text: lines.slice(at + 1, end).join("\n")}, Math.min(end + 1, lines.length)];
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
      if (/\d/.test(item[2]) !== isOrdered || spaces < indent || LINE.rule.test(line)) break;
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
  const align = tableCells(lines[at + 1]).map(c => (/^:.*:$/.test(c) ? "center" : /:$/.test(c) ? "right" : null));
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end])) end++;
  return [{type: "table", align, head: tableCells(lines[at]), rows: lines.slice(at + 2, end).map(tableCells)}, end];
}

function isTableRule(line) {
  return /^\s*[|:-]/.test(line) && tableCells(line).every(c => /^:?-+:?$/.test(c));
}

function isTable(lines, at) {
  const next = lines[at + 1];
  return (
    lines[at].includes("|") &&
    next !== undefined &&
    isTableRule(next) &&
    tableCells(lines[at]).length === tableCells(next).length
  );
}

function takeParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines[end]) && !isTable(lines, end)) end++;
  return [{type: "paragraph", text: lines.slice(at, end).join("\n")}, end];
}

function takeBlock(lines, at) {
  const line = lines[at];
  if (LINE.fence.test(line)) return takeFence(lines, at);
  const heading = LINE.heading.exec(line);
  if (heading) return [{type: "heading", level: heading[1].length, text: headingText(line, heading[0])}, at + 1];
  if (LINE.rule.test(line)) return [{type: "rule"}, at + 1];
  if (LINE.quote.test(line)) return takeQuote(lines, at);
  if (LINE.item.test(line)) return takeList(lines, at);
  if (isTable(lines, at)) return takeTable(lines, at);
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

const SPECIAL = /[\\`*_~[!<h\n]/g;

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
function linkTo(url, ...children) {
  if (!isSafeLink(url)) return null;
  return make("a", {href: url, target: "_blank", rel: "noopener noreferrer nofollow"}, ...children);
}

/* Lengths are bounded, so that a bracket without an end costs little. */
const LABEL = String.raw`(?:[^[\]\\]|\\.|\[[^[\]]*\]){0,1000}`;
const TARGET = String.raw`[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*`;
const LINK = new RegExp(String.raw`^!?\[(${LABEL})\]\(\s*<?(${TARGET})>?(?:\s+"[^"]{0,500}")?\s*\)`);

/* [text](target) at `at`. */
function takeLink(text, at, depth) {
  const found = LINK.exec(text.slice(at, at + 4000));
  if (!found) return null;
  const label = found[1] || found[2],
    link = linkTo(found[2], ...(text[at] === "!" ? [label] : parseInline(label, depth + 1)));
  return link && [link, at + found[0].length];
}

function takeCode(text, at, absent) {
  const mark = /^`+/.exec(text.slice(at, at + 100))[0];
  if (absent.has(mark)) return [document.createTextNode(mark), at + mark.length];
  for (let end = text.indexOf(mark, at + mark.length); end >= 0; end = text.indexOf(mark, end)) {
    let size = mark.length;
    while (text[end + size] === "`") size++;
    if (size === mark.length) {
      const inside = text.slice(at + mark.length, end).replace(/\n/g, " ");
      return [make("code", null, /^ .*[^ ].* $/.test(inside) ? inside.slice(1, -1) : inside), end + size];
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
  const url = found[0].replace(/[.,;:!?)\]}*_~]+$/, "");
  return url.length > 8 ? [linkTo(url, url), at + url.length] : null;
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
    return [make(tag, null, ...(inner ? [make(inner, null, ...children)] : children)), found[1]];
  }
  return null;
}

function takeSpecial(text, at, depth, absent) {
  switch (text[at]) {
    case "\n":
      return [make("br"), at + 1];
    case "\\":
      return /[!-/:-@[-`{-~]/.test(text[at + 1] || "") ? [document.createTextNode(text[at + 1]), at + 2] : null;
    case "`":
      return takeCode(text, at, absent);
    case "[":
    case "!":
      return takeLink(text, at, depth);
    case "<": {
      const found = /^<([a-z]+:[^\s<>]+)>/i.exec(text.slice(at, at + 2000)),
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
  const special = new RegExp(SPECIAL);
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
    make("pre", {tabindex: "0"}, make("code", null, block.text)),
  );
}

function makeTable(block) {
  const row = (cells, tag) =>
    make(
      "tr",
      null,
      ...block.align.map((align, i) =>
        make(tag, {class: align, scope: tag === "th" ? "col" : null}, ...parseInline(cells[i] || "", 0)),
      ),
    );
  return make(
    "div",
    {class: "table", tabindex: "0"},
    make(
      "table",
      null,
      make("thead", null, row(block.head, "th")),
      make("tbody", null, ...block.rows.map(cells => row(cells, "td"))),
    ),
  );
}

function makeItem(lines, depth) {
  const blocks = parseBlocks(lines),
    isLoose = lines.some((l, i) => l === "" && i < lines.length - 1);
  return make(
    "li",
    null,
    ...blocks.flatMap(b => (b.type === "paragraph" && !isLoose ? parseInline(b.text, 0) : [makeBlock(b, depth + 1)])),
  );
}

function makeBlock(block, depth) {
  if (depth > MAX_DEPTH) return make("p", null, block.source);
  switch (block.type) {
    case "code":
      return makeCode(block);
    case "heading":
      return make("h" + block.level, null, ...parseInline(block.text, 0));
    case "rule":
      return make("hr");
    case "quote":
      return make("blockquote", null, ...parseBlocks(block.lines).map(b => makeBlock(b, depth + 1)));
    case "list":
      return make(
        block.isOrdered ? "ol" : "ul",
        block.isOrdered ? {start: block.start} : null,
        ...block.items.map(i => makeItem(i, depth)),
      );
    case "table":
      return makeTable(block);
    default:
      return make("p", null, ...parseInline(block.text, 0));
  }
}

/* Shows a text that grows: blocks that have not changed since the last call stay, with what is selected in them. */
function showMarkdown(element, text) {
  const blocks = parseBlocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
  blocks.forEach((block, i) => {
    const there = element.children[i];
    if (there && there.source === block.source) return;
    const made = makeBlock(block, 0);
    made.source = block.source;
    if (there) there.replaceWith(made);
    else element.append(made);
  });
  while (element.children.length > blocks.length) element.lastElementChild.remove();
}
