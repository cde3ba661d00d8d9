"""Hints for what is left of Python 2 in a program, which Python 3 does not know."""

import re

CONVERT = "`2to3 -w FILE` converts a file; it comes with Python up to 3.12"
NAMES = {
    "xrange": "range",
    "raw_input": "input",
    "unicode": "str",
    "basestring": "str",
    "long": "int",
    "unichr": "chr",
    "file": "open",
    "reduce": "functools.reduce",
    "execfile": "exec(open(…).read())",
    "reload": "importlib.reload",
}
MODULES = {
    "cPickle": "pickle",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
    "httplib": "http.client",
    "ConfigParser": "configparser",
    "Queue": "queue",
    "StringIO": "io",
    "cStringIO": "io",
    "Tkinter": "tkinter",
    "commands": "subprocess",
    "__builtin__": "builtins",
}
ATTRIBUTES = {
    "'dict' object has no attribute 'iteritems'": "items",
    "'dict' object has no attribute 'itervalues'": "values",
    "'dict' object has no attribute 'iterkeys'": "keys",
    "'dict' object has no attribute 'has_key'": "KEY in DICT",
    "module 'itertools' has no attribute 'izip'": "zip",
    "module 'itertools' has no attribute 'imap'": "map",
    "module 'string' has no attribute 'letters'": "string.ascii_letters",
    "module 'sys' has no attribute 'maxint'": "sys.maxsize",
    "module 'urllib' has no attribute 'urlretrieve'": "urllib.request.urlretrieve",
    "module 'urllib' has no attribute 'urlopen'": "urllib.request.urlopen",
}
# Of a SyntaxError: its message, and what stands in its line outside of strings and comments.
SYNTAX = (
    (r"Missing parentheses in call to '(print|exec)'", ""),
    (r"multiple exception types must be parenthesized", ""),
    (r"arameters cannot be parenthesized", ""),
    (r"leading zeros in decimal integer literals", ""),
    (r"invalid decimal literal", r"\d[lL]\b"),
    (r"^invalid syntax", r"^\s*raise \w+\s*,|<>|`|\bur['\"]"),
)
TEXT = re.compile(r"""(?P<quote>\"""|\'\'\'|"|')(\\.|(?!(?P=quote)).)*((?P=quote)|$)|#.*""")
OTHERS = (
    (
        r"'float' object cannot be interpreted as an integer|indices must be integers or slices, "
        r"not float|multiply sequence by non-int of type 'float'",
        "`/` of two integers gave an integer in Python 2: write `//`",
    ),
    (
        r"'(map|zip|filter|dict_\w+)' object is not subscriptable|object of type '(map|zip|filter)'"
        r" has no len|'dict_\w+' object has no attribute '(sort|append|remove)'|'range' object "
        r"(does not support item assignment|has no attribute '(append|remove|sort)')",
        "it gave a list in Python 2: write `list(…)` around it",
    ),
    (
        r"'str' object has no attribute 'decode'",
        "a string was bytes in Python 2, and is text now: leave `.decode(…)` out",
    ),
)


def hint(error: BaseException) -> str:
    """What to write instead, where Python 2 is the reason of an error; else nothing."""
    name, text = str(getattr(error, "name", "")), str(error)
    if isinstance(error, TabError):
        return (
            f"{error.filename}:{error.lineno}: a tab was eight spaces in Python 2: "
            f"`expand {error.filename} > NEW` writes spaces"
        )
    if isinstance(error, SyntaxError):
        line = TEXT.sub("''", error.text or "")
        if any(re.search(what, error.msg) and re.search(in_it, line) for what, in_it in SYNTAX):
            place = f"{error.filename}:{error.lineno}"
            return f"{place} is Python 2, and this is Python 3: {CONVERT}"
    elif isinstance(error, ModuleNotFoundError) and name in MODULES:
        return f"the module `{name}` is of Python 2: write `{MODULES[name]}`. {CONVERT}"
    elif isinstance(error, NameError) and name in NAMES:
        return f"`{name}` is of Python 2: write `{NAMES[name]}`. {CONVERT}"
    elif isinstance(error, AttributeError) and text in ATTRIBUTES:
        return f"`{name}` is of Python 2: write `{ATTRIBUTES[text]}`. {CONVERT}"
    elif isinstance(error, TypeError | AttributeError):
        for pattern, remedy in OTHERS:
            if re.search(pattern, text):
                return remedy
    return ""
