"""Sorts the lines of a file by kind, from its tokens: only they tell a comment from a `#` in a string."""

import ast
import io
import re
import tokenize

# Tokens that say how the text is laid out, and hold none of it.
LAYOUT = {
    tokenize.ENCODING,
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
MARKER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
LOOKS_LIKE_CODE = re.compile(r"[\w.\[\]]+ ?[-+*/|&]?= ?\S|[\w.]+\(.*\)$|(?:return|import|from|raise|del)\b")
CODE = (ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.Return, ast.Raise, ast.Delete, ast.Call)


def count_lines(source: bytes, docstrings: set[int]) -> dict[str, int]:
    """Count the lines of code, docstrings, comments and none of these; `docstrings` are the lines those stand on."""
    code: set[int] = set()
    comments: dict[int, str] = {}
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    total = len(source.splitlines())
    alone = comments.keys() - code  # the others end a line of code
    return {
        "lines": total,
        "code": len(code - docstrings),
        "docs": len(docstrings),
        "comments": len(alone),
        "blank": total - len(code | docstrings | alone),
        "markers": sum(len(MARKER.findall(text)) for text in comments.values()),
        "dead": sum(is_code(comments[line]) for line in alone),
    }


def is_code(comment: str) -> bool:
    """Whether a comment is a statement that somebody switched off."""
    text = comment.lstrip("#").strip()
    if not LOOKS_LIKE_CODE.match(text):  # prose: most comments, and parsing each would take long
        return False
    try:
        body = ast.parse(text, "<audit>/comment").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    statement = body[0] if body else None
    return isinstance(statement.value if isinstance(statement, ast.Expr) else statement, CODE)
