/* Formulas: a subset of TeX becomes elements of MathML, which browsers set themselves. makeFormula gives null for what
 * is not in the subset, and then markdown.js shows the source. Each token is looked at a bounded number of times. */

class NotKnown extends Error {}

/* "alpha α beta β" as a Map. */
function tableOf(text) {
  const words = text.trim().split(/\s+/),
    table = new Map();
  for (let i = 0; i < words.length; i += 2) table.set(words[i], words[i + 1]);
  return table;
}

const LETTERS = tableOf(`alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι
  kappa κ lambda λ mu μ nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi
  φ
  chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ hbar ℏ
  ell ℓ Re ℜ Im ℑ aleph ℵ partial ∂ nabla ∇ emptyset ∅ varnothing ∅ imath ı jmath ȷ wp ℘ degree ° top ⊤ bot ⊥ $ $ % %
  # # & & _ _ backslash \\ dag † ddag ‡ S § pounds £ euro € checkmark ✓`);

const OPERATORS = tableOf(`times × cdot ⋅ div ÷ pm ± mp ∓ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙
  le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ lt < gt > ll ≪ gg ≫ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅
  propto ∝ asymp ≍ doteq ≐ prec ≺ succ ≻ preceq ⪯ succeq ⪰ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ subsetneq ⊊ supset ⊃
  supseteq ⊇ cup ∪ cap ∩ setminus ∖ sqcup ⊔ sqcap ⊓ uplus ⊎ forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ land ∧ wedge ∧
  lor ∨ vee ∨ perp ⊥ parallel ∥ mid ∣ nmid ∤ models ⊨ vdash ⊢ dashv ⊣ therefore ∴ because ∵ colon : to → rightarrow →
  leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ impliedby ⟸ iff ⟺
  longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ Longleftrightarrow ⟺ mapsto ↦ longmapsto ⟼ hookrightarrow ↪
  uparrow ↑ downarrow ↓ Uparrow ⇑ Downarrow ⇓ updownarrow ↕ nearrow ↗ searrow ↘ rightharpoonup ⇀ rightleftharpoons ⇌
  ldots … dots … dotsc … cdots ⋯ dotsb ⋯ vdots ⋮ ddots ⋱ prime ′ angle ∠ triangle △ square □ Box □ blacksquare ■
  lozenge ◊ diamond ⋄ wr ≀ bowtie ⋈ coloneqq ≔ triangleq ≜ lesssim ≲ gtrsim ≳ trianglelefteq ⊴ trianglerighteq ⊵ rtimes
  ⋊
  ltimes ⋉`);

const LARGE = tableOf(`sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigodot ⨀ bigvee ⋁ bigwedge ⋀
  bigsqcup ⨆ biguplus ⨄`);
const INTEGRALS = tableOf("int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯");
const DELIMITERS =
  tableOf(`( ( ) ) [ [ ] ] | | / / < ⟨ > ⟩ \\{ { \\} } \\lbrace { \\rbrace } \\lbrack [ \\rbrack ] \\| ‖
  \\vert | \\lvert | \\rvert | \\Vert ‖ \\lVert ‖ \\rVert ‖ \\langle ⟨ \\rangle ⟩ \\lfloor ⌊ \\rfloor ⌋ \\lceil ⌈
  \\rceil ⌉ \\backslash \\ \\uparrow ↑ \\downarrow ↓ \\updownarrow ↕`);
const OVER = tableOf(`bar ¯ overline ¯ hat ^ widehat ^ tilde ~ widetilde ~ vec → overrightarrow → overleftarrow ← dot ˙
  ddot ¨ dddot ⃛ acute ´ grave \` check ˇ breve ˘ mathring ˚ overbrace ⏞`);
const UNDER = tableOf("underline _ underbrace ⏟ underbar _");
const ARROWS = tableOf(`xrightarrow → xleftarrow ← xRightarrow ⇒ xLeftarrow ⇐ xleftrightarrow ↔ xrightleftharpoons ⇌
  xmapsto ↦`);
const SPACES = tableOf(", .167em : .222em > .222em ; .278em ! 0 quad 1em qquad 2em thinspace .167em enspace .5em");
const SIZES = tableOf("big 1.2em Big 1.8em bigg 2.4em Bigg 3em");
const FENCED = tableOf(
  "matrix .. smallmatrix .. pmatrix () bmatrix [] Bmatrix {} vmatrix || Vmatrix ‖‖ cases {. rcases .}",
);
const ALIGNED = new Set("align aligned alignat alignedat split eqnarray flalign equation".split(" "));
const GATHERED = new Set("gather gathered multline displaymath math".split(" "));
const FUNCTIONS = new Set(
  `sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp arg deg dim ker hom
  sgn tr`.split(/\s+/),
);
const LIMITED = new Set("lim max min sup inf det gcd Pr limsup liminf argmax argmin".split(" "));
const TEXTS = new Set("text textrm textnormal textbf textit textsf texttt mbox hbox".split(" "));
const IGNORED = new Set(
  `displaystyle textstyle scriptstyle nonumber notag hline limits nolimits allowbreak nobreak`.split(/\s+/),
);
const GROUPS = new Set("mathop mathrel mathbin mathord mathopen mathclose mathpunct mathstrut hphantom".split(" "));

/* Letters of other alphabets: where A, a and 0 are in Unicode, and those that lie elsewhere. */
const ALPHABETS = {
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce],
  boldsymbol: [0x1d468, 0x1d482, 0x1d7ce],
  bm: [0x1d468, 0x1d482, 0x1d7ce],
  mathbb: [0x1d538, 0x1d552, 0x1d7d8, tableOf("C ℂ H ℍ N ℕ P ℙ Q ℚ R ℝ Z ℤ")],
  mathcal: [0x1d49c, 0x1d4b6, 0, tableOf("B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ")],
  mathscr: [0x1d49c, 0x1d4b6, 0, tableOf("B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ")],
  mathfrak: [0x1d504, 0x1d51e, 0, tableOf("C ℭ H ℌ I ℑ R ℜ Z ℨ")],
  mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
  mathtt: [0x1d670, 0x1d68a, 0x1d7f6],
  mathit: [0, 0, 0],
  mathrm: [0, 0, 0],
};

function inAlphabet(alphabet, char) {
  const [upper, lower, digit, others] = ALPHABETS[alphabet];
  if (others && others.has(char)) return others.get(char);
  const base = /[A-Z]/.test(char)
    ? [upper, 65]
    : /[a-z]/.test(char)
      ? [lower, 97]
      : /[0-9]/.test(char)
        ? [digit, 48]
        : [0];
  return base[0] ? String.fromCodePoint(base[0] + char.charCodeAt(0) - base[1]) : char;
}

function mathElement(tag, attributes, ...children) {
  const e = document.createElementNS(byId("math").content.firstElementChild.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

const mathRow = nodes => (nodes.length === 1 ? nodes[0] : mathElement("mrow", null, ...nodes));
const mathOperator = (text, attributes) => mathElement("mo", attributes, text);
const NO_SPACE = {stretchy: "false", lspace: "0", rspace: "0"};
const mathFence = text => mathOperator(text, {stretchy: "true", fence: "true"});
const mathSpace = width => mathElement("mspace", {width});

/* An operator that is written as a word. Scripts of some are set below it. */
function mathFunction(name, isLimited, isClose) {
  const e = mathOperator(name, {
    form: "prefix",
    lspace: ".167em",
    rspace: isClose ? "0" : ".167em",
    movablelimits: isLimited ? "true" : null,
  });
  e.isLimited = isLimited;
  return e;
}

class FormulaReader {
  constructor(text) {
    this.tokens = text.match(/\\(?:[a-zA-Z]+|[\s\S])|[\s\S]/gu) || [];
    this.at = 0;
    this.depth = 0;
    this.alphabet = null;
  }

  peek() {
    while (this.at < this.tokens.length && /^\s/.test(this.tokens[this.at])) this.at++;
    return this.tokens[this.at];
  }
  next() {
    const token = this.peek();
    if (token === undefined) throw new NotKnown("the end");
    this.at++;
    return token;
  }
  expect(token) {
    if (this.next() !== token) throw new NotKnown(token);
  }
  takes(token) {
    if (this.peek() !== token) return false;
    this.at++;
    return true;
  }

  /* What `ends` ends, which stays. */
  atoms(...ends) {
    const nodes = [];
    while (this.peek() !== undefined && !ends.includes(this.peek())) nodes.push(this.scripted());
    return nodes;
  }

  /* The characters between braces, as they are. */
  rawGroup() {
    let depth = 0,
      text = "";
    this.expect("{");
    for (; this.at < this.tokens.length; this.at++) {
      const token = this.tokens[this.at];
      if (token === "{") depth++;
      else if (token === "}" && depth-- === 0) {
        this.at++;
        return text;
      } else if (/^\\[a-zA-Z]/.test(token)) throw new NotKnown(token);
      else text += token.length > 1 && token[0] === "\\" ? token.slice(1) : token;
    }
    throw new NotKnown("the end");
  }

  optional() {
    if (!this.takes("[")) return null;
    const nodes = this.atoms("]");
    this.expect("]");
    return mathRow(nodes);
  }

  /* A group, or one token: "12" is two of them. */
  argument() {
    const token = this.peek();
    if (token === "^" || token === "_") throw new NotKnown(token);
    return /^[0-9]/.test(token) ? this.number(this.next()) : this.atom();
  }

  /* An atom with what is above and below it. */
  scripted() {
    const base = this.atom();
    let isLimited = base.isLimited,
      under = null,
      over = null,
      primes = "";
    for (;;) {
      if (this.takes("'")) primes += "′";
      else if (this.takes("\\limits")) isLimited = true;
      else if (this.takes("\\nolimits")) isLimited = false;
      else if (!under && this.takes("_")) under = this.argument();
      else if (!over && this.takes("^")) over = this.argument();
      else if (this.peek() === "_" || this.peek() === "^") throw new NotKnown("a second " + this.peek());
      else break;
    }
    if (primes) over = mathRow([mathOperator(primes), ...(over ? [over] : [])]);
    if (!under && !over) return base;
    const tag = isLimited ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    return mathElement(tag[under && over ? 2 : over ? 1 : 0], null, base, ...[under, over].filter(Boolean));
  }

  number(digits) {
    return mathElement("mn", null, this.alphabet ? inAlphabet(this.alphabet, digits) : digits);
  }

  letter(char) {
    const isPlain = this.alphabet !== null && this.alphabet !== "mathit";
    return mathElement(
      "mi",
      {mathvariant: isPlain ? "normal" : null},
      isPlain ? inAlphabet(this.alphabet, char) : char,
    );
  }

  atom() {
    if (++this.depth > 60) throw new NotKnown("depth");
    const e = this.read();
    this.depth--;
    return e;
  }

  read() {
    if (this.peek() === "^" || this.peek() === "_") return mathRow([]);
    const token = this.next();
    if (token.length > 1 && token[0] === "\\") return this.command(token.slice(1));
    if (token === "{") {
      const nodes = this.atoms("}");
      this.expect("}");
      if (nodes.length !== 1 || nodes[0].localName !== "mo") return mathRow(nodes);
      return mathOperator(nodes[0].textContent, NO_SPACE); /* as in 1{,}000 */
    }
    if (/[0-9]/.test(token)) {
      let digits = token;
      while (
        /^[0-9]$/.test(this.tokens[this.at]) ||
        (this.tokens[this.at] === "." && /^[0-9]$/.test(this.tokens[this.at + 1]))
      )
        digits += this.tokens[this.at++];
      return this.alphabet ? mathRow([...digits].map(d => this.number(d))) : this.number(digits);
    }
    if (/\p{L}/u.test(token)) return this.letter(token);
    if ("}&\\#$".includes(token)) throw new NotKnown(token);
    if (token === "~") return mathSpace(".25em");
    if ("()[]|".includes(token)) return mathOperator(token, NO_SPACE);
    return mathOperator(token === "-" ? "−" : token === "*" ? "∗" : token);
  }

  command(name) {
    const isClose = () => this.peek() === "(" || this.peek() === "\\left";
    if (LETTERS.has(name)) {
      const char = LETTERS.get(name);
      return mathElement("mi", {mathvariant: /[Α-Ω]/.test(char) || !/\p{L}/u.test(char) ? "normal" : null}, char);
    }
    if (OPERATORS.has(name)) return mathOperator(OPERATORS.get(name));
    if (LARGE.has(name)) return Object.assign(mathOperator(LARGE.get(name)), {isLimited: true});
    if (INTEGRALS.has(name)) return mathOperator(INTEGRALS.get(name));
    if (FUNCTIONS.has(name)) return mathFunction(name, false, isClose());
    if (LIMITED.has(name)) return mathFunction(name.replace(/^(lim|arg)(?=...)/, "$1 "), true, isClose());
    if (DELIMITERS.has("\\" + name)) return mathOperator(DELIMITERS.get("\\" + name), NO_SPACE);
    if (SPACES.has(name)) return mathSpace(SPACES.get(name));
    if (/^\s/.test(name)) return mathSpace(".25em");
    if (OVER.has(name)) return this.accent("mover", OVER.get(name), name);
    if (UNDER.has(name)) return this.accent("munder", UNDER.get(name), name);
    if (ARROWS.has(name)) return this.arrow(ARROWS.get(name));
    if (Object.hasOwn(ALPHABETS, name)) return this.inOtherAlphabet(name);
    if (TEXTS.has(name)) return mathElement("mtext", {class: name}, this.rawGroup().replace(/\s/g, "\u00a0"));
    if (GROUPS.has(name)) return this.argument();
    if (IGNORED.has(name)) return mathRow([]);
    const size = /^(big|Big|bigg|Bigg)[lrm]?$/.exec(name);
    if (size) return this.sized(SIZES.get(size[1]));
    return this.structure(name);
  }

  structure(name) {
    switch (name) {
      case "frac":
      case "cfrac":
        return mathElement("mfrac", null, this.argument(), this.argument());
      case "dfrac":
      case "tfrac":
        return mathElement("mstyle", {displaystyle: String(name === "dfrac")}, this.structure("frac"));
      case "binom":
      case "dbinom":
      case "tbinom": {
        const choice = mathElement("mfrac", {linethickness: "0"}, this.argument(), this.argument());
        return mathRow([mathFence("("), choice, mathFence(")")]);
      }
      case "sqrt": {
        const index = this.optional();
        return index ? mathElement("mroot", null, this.argument(), index) : mathElement("msqrt", null, this.argument());
      }
      case "overset":
      case "stackrel": {
        const over = this.argument();
        return mathElement("mover", null, this.argument(), over);
      }
      case "underset": {
        const under = this.argument();
        return mathElement("munder", null, this.argument(), under);
      }
      case "operatorname": {
        const isLimited = this.takes("*");
        return mathFunction(this.rawGroup().trim(), isLimited, this.peek() === "(");
      }
      case "not":
        return mathOperator(this.atom().textContent + "\u0338");
      case "bmod":
        return mathOperator("mod", {lspace: ".222em", rspace: ".222em"});
      case "pmod":
        return mathRow([mathSpace("1em"), mathOperator("("), mathFunction("mod"), this.argument(), mathOperator(")")]);
      case "tag":
        return mathRow([mathSpace("2em"), mathElement("mtext", null, "(" + this.rawGroup() + ")")]);
      case "label":
        this.rawGroup();
        return mathRow([]);
      case "phantom":
        return mathElement("mphantom", null, this.argument());
      case "boxed":
        return mathElement("mrow", {class: "boxed"}, this.argument());
      case "substack":
        this.expect("{");
        return this.table(this.rows("}"), () => null);
      case "left":
        return this.fenced();
      case "begin":
        return this.environment(this.rawGroup());
      default:
        throw new NotKnown(name);
    }
  }

  accent(tag, char, name) {
    const isWide = /^(over|under|wide)/.test(name);
    const e = mathElement(
      tag,
      {[tag === "mover" ? "accent" : "accentunder"]: "true"},
      this.argument(),
      mathOperator(char, {stretchy: String(isWide)}),
    );
    e.isLimited = name.endsWith("brace");
    return e;
  }

  arrow(char) {
    const under = this.optional(),
      over = this.argument(),
      e = mathOperator(char, {stretchy: "true"});
    return under ? mathElement("munderover", null, e, under, over) : mathElement("mover", null, e, over);
  }

  inOtherAlphabet(name) {
    const before = this.alphabet;
    this.alphabet = name;
    const e = this.argument();
    this.alphabet = before;
    return e;
  }

  delimiter() {
    const token = this.next();
    if (token === ".") return [];
    if (!DELIMITERS.has(token)) throw new NotKnown(token);
    return [mathFence(DELIMITERS.get(token))];
  }

  sized(size) {
    const [e] = this.delimiter();
    if (!e) return mathRow([]);
    e.setAttribute("minsize", size);
    e.setAttribute("maxsize", size);
    return e;
  }

  fenced() {
    const nodes = this.delimiter();
    for (;;) {
      nodes.push(...this.atoms("\\right", "\\middle"));
      const isMiddle = this.next() === "\\middle";
      nodes.push(...this.delimiter());
      if (!isMiddle) return mathElement("mrow", null, ...nodes);
    }
  }

  /* Rows of cells up to `end`, which is taken. */
  rows(end) {
    const rows = [[]];
    for (;;) {
      rows[rows.length - 1].push(this.atoms("&", "\\\\", "\\cr", end));
      const token = this.next();
      if (token === end) break;
      if (token === "&") continue;
      if (this.tokens[this.at] === "[") this.optional(); /* a distance */
      rows.push([]);
    }
    const last = rows[rows.length - 1];
    if (rows.length > 1 && last.length === 1 && last[0].length === 0) rows.pop();
    return rows;
  }

  table(rows, alignOf, attributes) {
    const cell = (nodes, i) => mathElement("mtd", {class: alignOf(i)}, ...nodes);
    return mathElement("mtable", attributes || null, ...rows.map(row => mathElement("mtr", null, ...row.map(cell))));
  }

  environment(given) {
    const name = given.replace("*", "");
    let columns = "";
    if (name === "array") columns = this.rawGroup().replace(/[^lcr]/g, "");
    else if (name === "alignat" || name === "alignedat") this.rawGroup();
    const rows = this.rows("\\end");
    if (this.rawGroup() !== given) throw new NotKnown(given);
    const sides = {l: "left", r: "right"};
    if (name === "array") return this.table(rows, i => sides[columns[i]] || null);
    if (ALIGNED.has(name)) return this.table(rows, i => (i % 2 ? "left close" : "right close"), {displaystyle: "true"});
    if (GATHERED.has(name)) return this.table(rows, () => null, {displaystyle: "true"});
    if (!FENCED.has(name)) throw new NotKnown(name);
    const [open, close] = FENCED.get(name),
      table = this.table(rows, () => (name.endsWith("cases") ? "left" : null)),
      fence = char => (char === "." ? [] : [mathFence(char)]);
    return mathElement("mrow", null, ...fence(open), table, ...fence(close));
  }

  /* All of it; lines and columns without an environment are aligned. */
  all() {
    this.tokens.push("\\end");
    const rows = this.rows("\\end");
    if (this.peek() !== undefined) throw new NotKnown(this.peek());
    if (rows.length === 1 && rows[0].length === 1) return mathRow(rows[0][0]);
    return this.table(rows, i => (i % 2 ? "left close" : "right close"), {displaystyle: "true"});
  }
}

/* The element of a formula, or null. */
function makeFormula(text, isBlock) {
  if (text.length > 10000 || !text.trim()) return null;
  try {
    return mathElement("math", {display: isBlock ? "block" : null}, new FormulaReader(text).all());
  } catch (error) {
    if (error instanceof NotKnown) return null;
    throw error;
  }
}
