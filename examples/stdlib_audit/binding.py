"""Asks the compiler's own symbol tables which local variables nobody reads."""

import symtable


def unread_locals(source: str, filename: str) -> int:
    """How many local variables are assigned and never read. A name with a leading underscore says it is meant so."""
    unread = 0
    tables = [symtable.symtable(source, filename, "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        if table.get_type() == "function":
            inner = _read_inside(table)
            unread += sum(_is_unread(symbol) and symbol.get_name() not in inner for symbol in table.get_symbols())
    return unread


def _is_unread(symbol: symtable.Symbol) -> bool:
    given = symbol.is_parameter() or symbol.is_imported() or symbol.get_name().startswith("_")
    return symbol.is_local() and symbol.is_assigned() and not symbol.is_referenced() and not given


def _read_inside(table: symtable.SymbolTable) -> set[str]:
    """The names that functions inside this one read from it, as closures."""
    return {symbol.get_name() for child in table.get_children() for symbol in child.get_symbols() if symbol.is_free()}
