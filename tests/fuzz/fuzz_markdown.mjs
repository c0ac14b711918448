/* Seeded texts for the page's markdown, run by test_markdown.py: node fuzz_markdown.mjs PAGE_FOLDER SEED COUNT. What is
 * promised of every text: it becomes elements of the known kinds, without attributes but the known ones and with links that
 * leave the page alone, nested to a bounded depth; in time that its length bounds; and a text that came in pieces looks like
 * the one that came at once. */
import {Element, runPage} from "../serve/page_document.mjs";

const [folder, seed, count] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const page = runPage(folder, ["elements.js", "formulas.js", "code.js", "markdown.js"], {});

/* ---- what must hold ---- */

const TAGS = new Set("p h1 h2 h3 h4 h5 h6 hr ul ol li blockquote table thead tbody tr th td pre code strong em del a br div span button svg use input".split(" "));
const MATH =
  /^(math|mi|mn|mo|mtext|mspace|mrow|mfrac|msqrt|mroot|msub|msup|msubsup|mover|munder|munderover|mtable|mtr|mtd|mstyle|mphantom|mpadded|menclose)$/;
const ATTRIBUTES = new Set("class href target rel tabindex start scope type aria-label aria-hidden title disabled checked".split(" "));
const MATH_ATTRIBUTES = new Set(
  "class display mathvariant form stretchy fence lspace rspace minsize maxsize width accent accentunder linethickness displaystyle symmetric".split(" "),
);
const MAX_NESTED = 120;

function fail(what, text) {
  console.error(`seed ${seed}: ${what}\n${JSON.stringify(text)}`);
  process.exit(1);
}

function check(element, depth, text) {
  if (depth > MAX_NESTED) fail("elements are nested too deep", text);
  const isMath = MATH.test(element.tag);
  if (!isMath && !TAGS.has(element.tag)) fail(`an element ${element.tag}`, text);
  for (const [name, value] of element.attributes) {
    if (!(isMath ? MATH_ATTRIBUTES : ATTRIBUTES).has(name)) fail(`an attribute ${name} of ${element.tag}`, text);
    if (element.tag === "input" && name === "type" && value !== "checkbox") fail(`an input of type ${value}`, text);
    if (name === "href" && element.tag === "a" && !/^(https?|mailto):\S+$/i.test(value)) fail(`a link to ${value}`, text);
    if (name === "href" && element.tag !== "a" && element.tag !== "use") fail(`a link of ${element.tag}`, text);
  }
  for (const child of element.children) check(child, depth + 1, text);
}

function shown(texts) {
  const root = new Element("div");
  for (const text of texts) page.showMarkdown(root, text);
  return root;
}

const MS_OF_A_TEXT = 10000; /* of CPU time: what is quadratic in these short texts does not take it, what explodes does */

function checkText(text, cuts) {
  const before = process.cpuUsage();
  const root = shown([text]);
  const used = process.cpuUsage(before),
    ms = (used.user + used.system) / 1000;
  if (ms > MS_OF_A_TEXT) fail(`${ms} ms for ${text.length} characters`, text.slice(0, 200));
  check(root, 0, text);
  if (shown([...cuts.map(n => text.slice(0, n)), text]).outerHTML !== root.outerHTML) fail("pieces make a difference", text);
}

/* ---- texts ---- */

let state = BigInt(seed) * 2n + 1n;
function below(n) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number((state >> 33n) % BigInt(n));
}

const PIECES = [
  "a", "b c", "x_y", "é", "\u{1F600}", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", "\r", "\u2028", "\u00a0", "\u0000", "#", "# ", "## ",
  "-", "- ", "* ", "+ ", "1. ", "12) ", "> ", ">", "|", "\\|", "|-|", "| --- | :-: |", ":", "`", "```", "```js", "~~~", "*", "**", "***", "_",
  "__", "~~", "[", "]", "](", ")", "(", "![", "<", ">", "\"", "\\", "[a](https://b.c)", "[a](javascript:alert(1))", "<javascript:a>",
  "<https://a.b>", "https://a.b/c", "http://", "mailto:a@b", "[x](data:text/html,a)", "<script>", "<img src=x onerror=a>", "&lt;", "---", "===",
  "- [ ] ", "- [x] ", "$", "$$", "\\(", "\\[", "{", "}", "^", "%", "0",
];

/* Half of the texts have long runs of one piece, which is where patterns that go back take their time. */
function makeText(i) {
  let text = "";
  for (let n = 1 + below(24); n > 0 && text.length < 6000; n--)
    text += PIECES[below(PIECES.length)].repeat(i % 2 && !below(6) ? 1 + below(2500) : 1 + below(2));
  return text.slice(0, 8000);
}

const FIXED = [
  "# a" + " ".repeat(1500) + "\u2028b", "# a" + " ".repeat(1500) + "\u00a0b#", "# " + "# ".repeat(3000), "a|b\n-" + " ".repeat(6000) + "x",
  "```" + " ".repeat(3000) + "a".repeat(3000) + "`", "> ".repeat(3000) + "a", "- ".repeat(3000) + "a", "[a](" + " ".repeat(3900) + "b",
  "`".repeat(4000) + "a", "[".repeat(4000), "*a ".repeat(2000), "**a".repeat(2000), "_".repeat(6000), "|".repeat(4000) + "\n" + "|-".repeat(3000),
];

for (const text of FIXED) checkText(text, [text.length >> 1]);
for (let i = 0; i < count; i++) {
  const text = makeText(i);
  checkText(text, [below(text.length + 1), below(text.length + 1)].sort((a, b) => a - b));
}
console.log(`     ${FIXED.length + count} texts, seed ${seed}`);
