/* Colours of code: comments, texts, numbers, and words that a language keeps for itself. One reader serves all: a
 * language says how comments begin, which quotes it has, and its words. It may colour wrongly; the text stays the
 * same. */

const MAX_COLOURED = 50000; /* characters: each becomes an element in the worst case */

const wordsOf = text => new Set(text.trim().split(/\s+/));

/* line, block: comments. quotes: of texts within a line; long: of texts over several lines. */
const LANGUAGES = [
  {
    names:
      wordsOf(`c h cc cpp cxx c++ hpp objc cs csharp c# java js javascript mjs jsx ts tsx typescript go golang kotlin kt
      swift scala php dart glsl hlsl cuda zig json json5 jsonc css scss less proto groovy gradle`),
    line: ["//"],
    block: ["/*", "*/"],
    quotes: "\"'",
    long: ["`", '"""'],
    words: wordsOf(`abstract async await bool boolean break byte case catch char class const constexpr continue debugger
      default defer delete do double else enum explicit export extends extern false final finally float fn for foreach
      friend func fun function go goto guard if implements import in inline instanceof int interface internal is let
      long
      mutable namespace new nil null nullptr operator override package private protected public range readonly register
      return sealed self short signed sizeof static string struct super switch template this throw throws trait true try
      type typedef typename typeof undefined union unsigned using val var virtual void volatile when where while yield
      auto as of`),
  },
  {
    names: wordsOf("rust rs"),
    line: ["//"],
    block: ["/*", "*/"],
    quotes: '"',
    long: [],
    words:
      wordsOf(`as async await bool break char const continue crate dyn else enum extern f32 f64 false fn for i8 i16 i32
      i64 if impl in isize let loop match mod move mut pub ref return self Self static str struct super trait true type
      u8
      u16 u32 u64 unsafe use usize where while`),
  },
  {
    names:
      wordsOf(`py python python3 rb ruby sh bash zsh fish shell console yaml yml toml pl perl r make makefile dockerfile
      docker cmake nix elixir ex julia jl nim tcl awk`),
    line: ["#"],
    quotes: "\"'",
    long: ['"""', "'''"],
    words:
      wordsOf(`and as assert async await begin break case class continue def del do done elif else elsif end esac except
      export False false fi finally for from function global if import in is lambda let local match module nil None
      nonlocal not null or pass raise require rescue return select self set then True true try unless until when while
      with yield`),
  },
  {
    names: wordsOf("sql postgres postgresql mysql sqlite plsql"),
    line: ["--"],
    block: ["/*", "*/"],
    quotes: "'",
    long: [],
    isCaseless: true,
    words: wordsOf(`add all alter and as asc begin between by case check commit constraint create cross database default
      delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key
      left like limit not null offset on or order outer over partition primary references returning right rollback
      select
      set table then union unique update using values view when where with bigint boolean char date integer int numeric
      real serial text timestamp varchar`),
  },
  {
    names: wordsOf("lua haskell hs elm ada vhdl"),
    line: ["--"],
    block: ["{-", "-}"],
    quotes: '"',
    long: [],
    words:
      wordsOf(`and break case data do else elseif end false for function goto if import in instance let local module nil
      newtype not of or repeat return then true type until where while`),
  },
  {
    names: wordsOf("html xml svg xhtml vue svelte"),
    isMarkup: true,
    line: [],
    block: ["<!--", "-->"],
    quotes: "\"'",
    long: [],
  },
];

/* Where the text in quotes at `at` ends, at most at `limit`; -1: nowhere. */
function endOfQuoted(code, at, quote, limit) {
  for (let i = at + quote.length; i < limit; i++) {
    if (code[i] === "\\") i++;
    else if (code.startsWith(quote, i)) return i + quote.length;
  }
  return -1;
}

class CodeReader {
  constructor(code, language) {
    Object.assign(this, {code, language, at: 0, isInTag: !language.isMarkup, openUntil: new Map()});
  }

  /* [kind, end] of what begins here, or null. */
  take() {
    const {code, at, language} = this,
      char = code[at];
    for (const mark of language.line)
      if (code.startsWith(mark, at) && (mark !== "#" || at === 0 || /\s/.test(code[at - 1])))
        return ["comment", this.endOf("\n", at)];
    if (language.block && code.startsWith(language.block[0], at))
      return ["comment", this.endOf(language.block[1], at + language.block[0].length, true)];
    const long = language.long.find(q => code.startsWith(q, at));
    if (long) {
      const end = endOfQuoted(code, at, long, code.length);
      return ["text", end < 0 ? code.length : end];
    }
    if (this.isInTag && language.quotes.includes(char)) return this.takeQuoted(char);
    if (language.isMarkup) return this.takeTag(char);
    if (/[0-9]/.test(char)) return ["number", this.endOfWord()];
    if (!/[\p{L}_$@]/u.test(char)) return null;
    const end = this.endOfWord(),
      word = code.slice(at, end);
    return [language.words.has(language.isCaseless ? word.toLowerCase() : word) ? "word" : "", end];
  }

  endOf(mark, from, isWhole) {
    const end = this.code.indexOf(mark, from);
    return end < 0 ? this.code.length : end + (isWhole ? mark.length : 0);
  }

  endOfWord() {
    const word = /[\p{L}\p{N}_$.@]*/uy;
    word.lastIndex = this.at;
    const found = word.exec(this.code)[0];
    const dot = /[0-9]/.test(found[0]) ? -1 : found.indexOf(".");
    return this.at + (dot > 0 ? dot : found.length);
  }

  /* A quote without an end in its line is looked for once in that line. */
  takeQuoted(quote) {
    if ((this.openUntil.get(quote) || 0) > this.at) return null;
    const limit = this.endOf("\n", this.at),
      end = endOfQuoted(this.code, this.at, quote, limit);
    if (end < 0) this.openUntil.set(quote, limit);
    return end < 0 ? null : ["text", end];
  }

  takeTag(char) {
    if (char === ">") this.isInTag = false;
    if (char !== "<") return null;
    const tag = /<\/?[\p{L}\p{N}:_-]*/uy;
    tag.lastIndex = this.at;
    const end = this.at + tag.exec(this.code)[0].length;
    this.isInTag = true;
    return ["word", end];
  }
}

/* Nodes of a block of code. */
function colourCode(code, name) {
  const language = code.length <= MAX_COLOURED && LANGUAGES.find(l => l.names.has(name.toLowerCase()));
  if (!language) return [code];
  const reader = new CodeReader(code, language),
    nodes = [];
  let plain = 0;
  while (reader.at < code.length) {
    const taken = reader.take();
    if (taken && taken[0]) {
      if (reader.at > plain) nodes.push(code.slice(plain, reader.at));
      nodes.push(make("span", {class: "c-" + taken[0]}, code.slice(reader.at, taken[1])));
      plain = taken[1];
    }
    reader.at = taken ? taken[1] : reader.at + 1;
  }
  if (plain < code.length) nodes.push(code.slice(plain));
  return nodes;
}
