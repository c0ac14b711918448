"""What the page makes of texts: of test_page.py, which asks Node, and of test_browser.py, which asks Chromium."""

OUTSIDE = 'target="_blank" rel="noopener noreferrer nofollow"'

MARKDOWN = [
    ("a *b* **c** `d < e` ~~f~~", "<p>a <em>b</em> <strong>c</strong> <code>d &lt; e</code> <del>f</del></p>"),
    ("***both***", "<p><strong><em>both</em></strong></p>"),
    ("snake_case_name 2 * 3 * 4", "<p>snake_case_name 2 * 3 * 4</p>"),
    ("a\nb", "<p>a<br>b</p>"),
    ("# One\n### Three #", "<h1>One</h1><h3>Three</h3>"),
    ("# C#\n#\n# #\n#no\n#######", "<h1>C#</h1><h1></h1><h1></h1><p>#no<br>#######</p>"),
    ("- a\n- b\n  - c\n\n1. d\n2. e",
     "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start=\"1\"><li>d</li><li>e</li></ol>"),
    ("3) x", "<ol start=\"3\"><li>x</li></ol>"),
    ("- a\n\n  b", "<ul><li><p>a</p><p>b</p></li></ul>"),
    ("> q\n> r\n\nt", "<blockquote><p>q<br>r</p></blockquote><p>t</p>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("<b>x</b> &amp; &lt;", "<p>&lt;b&gt;x&lt;/b&gt; &amp;amp; &amp;lt;</p>"),
    ("[x](http://a/b_(c)) [y](/z) [z](JaVaScRiPt:1)",
     f'<p><a href="http://a/b_(c)" {OUTSIDE}>x</a> [y](/z) [z](JaVaScRiPt:1)</p>'),
    ("see https://a.org/b.", f'<p>see <a href="https://a.org/b" {OUTSIDE}>https://a.org/b</a>.</p>'),
    (r"\*a\* \_ `` a`b ``", "<p>*a* _ <code>a`b</code></p>"),
    ("**open *and `open", "<p>**open *and `open</p>"),
    ("| a | b |\n|---|--:|\n| 1 | `x\\|y` |\n| 2 |",
     '<div class="table" tabindex="0"><table>'
     '<thead><tr><th scope="col">a</th><th class="right" scope="col">b</th></tr></thead>'
     '<tbody><tr><td>1</td><td class="right"><code>x|y</code></td></tr>'
     '<tr><td>2</td><td class="right"></td></tr></tbody></table></div>'),
    ("a | b\nno table", "<p>a | b<br>no table</p>"),
    ("a|b\n-|-:|\nc|d", '<div class="table" tabindex="0"><table>'
     '<thead><tr><th scope="col">a</th><th class="right" scope="col">b</th></tr></thead>'
     '<tbody><tr><td>c</td><td class="right">d</td></tr></tbody></table></div>'),
    ("- - -\n* *\n__ _", "<hr><ul><li><ul><li></li></ul></li></ul><hr>"),
    ('![p](<http://a/b> "t") [q](http://a b) [r](http://a/b "t" u)',
     f'<p><a href="http://a/b" {OUTSIDE}>p</a> [q](http://a b) [r](<a href="http://a/b" {OUTSIDE}>http://a/b</a> "t" u)</p>'),
    ("<https://a.org/?b=c> <javascript:x>",
     f'<p><a href="https://a.org/?b=c" {OUTSIDE}>https://a.org/?b=c</a> &lt;javascript:x&gt;</p>'),
    ("a ` ` b ``  `` c `` ` ``", "<p>a ` ` b ``  `` c <code>`</code></p>"),
    ("", ""),
]

# A piece, repeated to a long text, and its end: the page shows each in a moment. Where patterns retried, a line of 2,000
# characters took seconds, and one of these would take hours.
GROWING = [(piece, "") for piece in (
    "*", "_a ", "**a", "[", "](", "`", "``` ", "<", "> ", "- ", "|", "| a |\n|-|\n", "\\", "~~x", "https://a", "\n",
    "  - a\n", "***", "![a](", "`a``b", "-:|", "- - ", "# #", "<a:")] + [
    (" ", "\u2028b"), (" ", "x"), ("#", "\u2028b"), ("a|b\n- ", "x"), (".", "x"), ("`` ", "b`"), ("(a)", "]")] + [
    ("#\n" * 100000, ""), ("b\n" * 200000, ""), ("a|" * 150000 + "\n" + "-|" * 150000 + "\n", "a|b"),
    ("# a" + " " * 50000, "\u2028b"), ("a|b\n-" + " " * 50000, "x"), ("https://a" + "." * 50000, "x")]


def _block(inside):
    return f'<div class="formula" tabindex="0"><math display="block">{inside}</math></div>'


_PLAIN = ' stretchy="false" lspace="0" rspace="0"'
_FENCE = ' stretchy="true" fence="true"'
_LIM = '<mo form="prefix" lspace=".167em" rspace=".167em" movablelimits="true">lim</mo>'

MARKDOWN += [
    # ---- formulas ----
    (r"so \(x^2\) is", "<p>so <math><msup><mi>x</mi><mn>2</mn></msup></math> is</p>"),
    ("it is $a_1$, **$b'$**", "<p>it is <math><msub><mi>a</mi><mn>1</mn></msub></math>, "
     "<strong><math><msup><mi>b</mi><mo>′</mo></msup></math></strong></p>"),
    ("3$ and 4$, $5 or $6, $HOME:$PATH, a$b$c, \\$x$, $ y $", "<p>3$ and 4$, $5 or $6, $HOME:$PATH, a$b$c, $x$, $ y $</p>"),
    ("$$\\frac12$$", _block("<mfrac><mn>1</mn><mn>2</mn></mfrac>")),
    ("a\n\\[\nx\n- y\n\\]\nb", "<p>a</p>" + _block("<mrow><mi>x</mi><mo>−</mo><mi>y</mi></mrow>") + "<p>b</p>"),
    ("then $$x$$ too", '<p>then <math display="block"><mi>x</mi></math> too</p>'),
    ("- \\[ z \\]", "<ul><li>" + _block("<mi>z</mi>") + "</li></ul>"),
    ("$$\\sqrt[3]{x}+\\sqrt{10}$$", _block("<mrow><mroot><mi>x</mi><mn>3</mn></mroot><mo>+</mo><msqrt><mn>10</mn></msqrt></mrow>")),
    (r"$$\sum_{i=1}^n \int_0^\infty$$",
     _block("<mrow><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
            '<msubsup><mo>∫</mo><mn>0</mn><mi mathvariant="normal">∞</mi></msubsup></mrow>')),
    (r"$$\lim_{n\to 0}\alpha\Gamma$$",
     _block(f'<mrow><munder>{_LIM}<mrow><mi>n</mi><mo>→</mo><mn>0</mn></mrow></munder>'
            '<mi>α</mi><mi mathvariant="normal">Γ</mi></mrow>')),
    (r"$$\begin{pmatrix}1&2\\3&4\end{pmatrix}$$",
     _block(f"<mrow><mo{_FENCE}>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
            f"<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo{_FENCE}>)</mo></mrow>")),
    (r"$$\begin{align*}a&=b\\[4pt]&=c\end{align*}$$",
     _block('<mtable displaystyle="true"><mtr><mtd class="right close"><mi>a</mi></mtd>'
            '<mtd class="left close"><mo>=</mo><mi>b</mi></mtd></mtr><mtr><mtd class="right close"></mtd>'
            '<mtd class="left close"><mo>=</mo><mi>c</mi></mtd></mtr></mtable>')),
    (r"$$\left(\frac{a}{b}\right]$$",
     _block(f"<mrow><mo{_FENCE}>(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo{_FENCE}>]</mo></mrow>")),
    (r"\(f(x)=\begin{cases}1&\text{if }x\\0\end{cases}\)",
     f'<p><math><mrow><mi>f</mi><mo{_PLAIN}>(</mo><mi>x</mi><mo{_PLAIN}>)</mo><mo>=</mo><mrow><mo{_FENCE}>{{</mo><mtable>'
     '<mtr><mtd class="left"><mn>1</mn></mtd><mtd class="left"><mtext class="text">if&nbsp;</mtext><mi>x</mi></mtd></mtr>'
     '<mtr><mtd class="left"><mn>0</mn></mtd></mtr></mtable></mrow></mrow></math></p>'),
    (r"\(\mathbb{R}\mathbf{v}\hat{x}\overline{ab}\)",
     '<p><math><mrow><mi mathvariant="normal">ℝ</mi><mi mathvariant="normal">𝐯</mi>'
     '<mover accent="true"><mi>x</mi><mo stretchy="false">^</mo></mover>'
     '<mover accent="true"><mrow><mi>a</mi><mi>b</mi></mrow><mo stretchy="true">¯</mo></mover></mrow></math></p>'),
    (r"\(1{,}000\ne 2.5\)",
     f"<p><math><mrow><mn>1</mn><mo{_PLAIN}>,</mo><mn>000</mn><mo>≠</mo><mn>2.5</mn></mrow></math></p>"),
    # What is not known stays as it is written, and so does what is no formula.
    *[(text, f"<p>{text}</p>") for text in (
        r"\(\ce{H2O}\)", r"\(\constructor\)", r"\(x_1_2\)", r"\(\frac{a\)", r"\(\left(a\)", r"\(a}\)", r"\(\text{\b}\)",
        r"\(" + "{" * 3000 + "x" + "}" * 3000 + r"\)", r"\(" + r"\sqrt" * 1900 + r" x\)", "$$x", r"$$\end{x}$$ y")],
    (r"\(\mathrm{<b>}\)", '<p><math><mrow><mo>&lt;</mo><mi mathvariant="normal">b</mi><mo>&gt;</mo></mrow></math></p>'),
    (r"$$\href{javascript:1}{x}$$", r'<p class="source">$$\href{javascript:1}{x}$$</p>'),
    # ---- lists of tasks ----
    ("- [x] a\n- [ ] b\n- [y] c",
     '<ul><li class="task"><input type="checkbox" disabled="" checked="" aria-label="Done">a</li>'
     '<li class="task"><input type="checkbox" disabled="" aria-label="To do">b</li><li>[y] c</li></ul>'),
]

# The text of a block of code, its language, and its elements.
CODE = [
    ("int x = 10; // a \"b\nf('\\'', \"x\\\"y\");", "c",
     '<span class="c-word">int</span> x = <span class="c-number">10</span>; <span class="c-comment">// a "b</span>\n'
     'f(<span class="c-text">\'\\\'\'</span>, <span class="c-text">"x\\"y"</span>);'),
    ("/* a\nb */ returned = return0 + this.if;", "JavaScript",
     '<span class="c-comment">/* a\nb */</span> returned = return0 + <span class="c-word">this</span>.<span class="c-word">if</span>;'),
    ("def f(): # it's\n    return '''a\nb''' + 0x1F", "python",
     '<span class="c-word">def</span> f(): <span class="c-comment"># it\'s</span>\n    <span class="c-word">return</span> '
     '<span class="c-text">\'\'\'a\nb\'\'\'</span> + <span class="c-number">0x1F</span>'),
    ("echo $# don't \"x", "sh", "echo $# don't \"x"),
    ("fn f<'a>(x: &'a str)", "rust", '<span class="c-word">fn</span> f&lt;\'a&gt;(x: &amp;\'a <span class="c-word">str</span>)'),
    ("SELECT a -- b\nfrom t", "sql",
     '<span class="c-word">SELECT</span> a <span class="c-comment">-- b</span>\n<span class="c-word">from</span> t'),
    ('<a b="c">it\'s "d"</a>', "html",
     '<span class="c-word">&lt;a</span> b=<span class="c-text">"c"</span>&gt;it\'s "d"<span class="c-word">&lt;/a</span>&gt;'),
    ("int x; /* no end", "c", '<span class="c-word">int</span> x; <span class="c-comment">/* no end</span>'),
    ("if x then", "constructor", "if x then"),
    ("if x then", "", "if x then"),
]

GROWING += [(piece, "") for piece in (
    "$", "$a ", "$$", "\\(", "\\[\n", "$$\n", "\\[ x\n", "\\(x\\)", "$x_1$ ", "- [x] a\n")] + [
    (open_, end) for open_, end in (("\\(" + "{" * 9000, "\\)"), ("\\(" + "\\frac12" * 1200, "\\)"), ("\\[" + "a&" * 4000, "\\]"))] + [
    ("```c\n" + piece * (50000 // len(piece)), "") for piece in ('"\\', "'", "/*", "//\n", "a", "1", "a.", '"\\"', "`", "@ ")]
