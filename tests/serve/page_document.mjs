/* As much of a document as makes elements, for scripts that run files of the page in Node: page_dom.mjs, and
 * tests/fuzz/fuzz_markdown.mjs. It writes elements as browsers do. */
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const VOID = new Set(["br", "hr", "input"]);
const escape = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\u00a0/g, "&nbsp;");

export class Text {
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

export class Element {
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

/* Runs files of the page as one script, as the page does, with code behind them; the context has what they made. */
export function runPage(folder, names, more, code = "") {
  const context = vm.createContext({document, ...more});
  vm.runInContext(names.map(n => fs.readFileSync(path.join(folder, n), "utf8")).join("\n") + code, context);
  return context;
}
