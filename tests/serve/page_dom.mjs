/* What the page makes of texts, in Node and without a browser, for test_page.py.
 *
 *     node page_dom.mjs FOLDER FILE.js... < questions > answers
 *
 * The files of FOLDER are run as one script, as in the page. A question is a JSON array of an expression, which is a
 * function of the page or of here, and its arguments; its answer is {value, seconds} or {error}. */
import fs from "node:fs";
import vm from "node:vm";
import {runPage} from "./page_document.mjs";

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
const context = runPage(folder, names, {crypto, location, sessionStorage, TextDecoder, Blob}, OWN);

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
