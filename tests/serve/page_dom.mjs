/* What the page makes of texts, in Node and without a browser, for test_page.py.
 *
 *     node page_dom.mjs FOLDER FILE.js... < questions > answers
 *
 * The files of FOLDER are run as one script, as in the page. A question is a JSON array of an expression, which is a
 * function of the page or of here, and its arguments; its answer is {value, seconds} or {error}. The document has what
 * makes elements, and writes them as browsers do. */
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const VOID = new Set(["br", "hr", "input"]);
const escape = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\u00a0/g, "&nbsp;");

class Text {
  constructor(data) {
    this.data = String(data);
  }
  get textContent() {
    return this.data;
  }
  get outerHTML() {
    return escape(this.data);
  }
}

class Element {
  constructor(tag) {
    Object.assign(this, {tag, attributes: [], childNodes: [], parent: null});
  }
  setAttribute(name, value) {
    this.attributes = [...this.attributes.filter(([n]) => n !== name), [name, String(value)]];
  }
  addEventListener() {}
  append(...children) {
    for (const c of children) {
      const node = typeof c === "string" ? new Text(c) : c;
      node.parent = this;
      this.childNodes.push(node);
    }
  }
  replaceWith(other) {
    const all = this.parent.childNodes;
    other.parent = this.parent;
    all[all.indexOf(this)] = other;
  }
  remove() {
    this.parent.childNodes = this.parent.childNodes.filter(c => c !== this);
  }
  get localName() {
    return this.tag;
  }
  get children() {
    return this.childNodes.filter(c => c instanceof Element);
  }
  get firstElementChild() {
    return this.children[0] || null;
  }
  get lastElementChild() {
    return this.children[this.children.length - 1] || null;
  }
  get textContent() {
    return this.childNodes.map(c => c.textContent).join("");
  }
  get innerHTML() {
    return this.childNodes.map(c => c.outerHTML).join("");
  }
  get outerHTML() {
    const names = this.attributes.map(([n, v]) => ` ${n}="${v.replace(/&/g, "&amp;").replace(/"/g, "&quot;")}"`);
    return `<${this.tag}${names.join("")}>` + (VOID.has(this.tag) ? "" : `${this.innerHTML}</${this.tag}>`);
  }
}

const document = {
  createElement: tag => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
  createTextNode: data => new Text(data),
  /* Templates of icons and formulas. */
  getElementById: id => ({content: {firstElementChild: {namespaceURI: id, cloneNode: () => icon()}}}),
};
function icon() {
  const svg = new Element("svg");
  svg.append(new Element("use"));
  return svg;
}

const [folder, ...names] = process.argv.slice(2);
const OWN = `
function shown(text) {
  const element = make("div");
  showMarkdown(element, text);
  return element.innerHTML;
}
function coloured(text, language) {
  return make("code", null, ...colourCode(text, language)).innerHTML;
}
function addressBelow(pathname, path) {
  location.pathname = pathname;
  return addressOf(path);
}
function shownRepeated(piece, n, end) {
  return shown(piece.repeat(n) + end).length;
}
`;
const location = {origin: "https://host", pathname: "/"};
const sessionStorage = {getItem: () => null, setItem() {}};
const context = vm.createContext({document, crypto, location, sessionStorage, TextDecoder, Blob});
vm.runInContext(names.map(n => fs.readFileSync(path.join(folder, n), "utf8")).join("\n") + OWN, context);

const answers = [];
for (const [what, ...given] of JSON.parse(fs.readFileSync(0, "utf8"))) {
  const from = performance.now();
  try {
    const value = await vm.runInContext("(" + what + ")", context)(...given);
    answers.push({value, seconds: (performance.now() - from) / 1000});
  } catch (error) {
    answers.push({error: String(error)});
  }
}
process.stdout.write(JSON.stringify(answers));
