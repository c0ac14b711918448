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
    ("", ""),
]

# A piece, repeated to a long text, and its end: the page shows each in a moment. Where patterns retried, a line of 2,000
# characters took seconds, and one of these would take hours.
GROWING = [(piece, "") for piece in (
    "*", "_a ", "**a", "[", "](", "`", "``` ", "<", "> ", "- ", "|", "| a |\n|-|\n", "\\", "~~x", "https://a", "\n",
    "  - a\n", "***", "![a](", "`a``b", "-:|", "- - ", "# #", "<a:")] + [
    (" ", "\u2028b"), (" ", "x"), ("#", "\u2028b"), ("a|b\n- ", "x"), (".", "x"), ("`` ", "b`"), ("(a)", "]")] + [
    ("# a" + " " * 50000, "\u2028b"), ("a|b\n-" + " " * 50000, "x"), ("https://a" + "." * 50000, "x")]
