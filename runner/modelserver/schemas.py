"""The plainest value that a JSON schema accepts: what a scripted model says when it has to follow one."""

from typing import Any

_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "email": "demo@example.org",
    "time": "00:00:00Z",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def instance_of(schema: dict[str, Any], text: str = "demo") -> Any:
    """A value that ``schema`` accepts; the same for the same arguments. ``text`` stands where any text would do."""
    return _value(schema, schema.get("$defs") or schema.get("definitions") or {}, text, 0)


def _value(schema: Any, defs: dict[str, Any], text: str, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > 12:
        return None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return _value(defs.get(str(schema["$ref"]).rpartition("/")[2], {}), defs, text, depth + 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return _value(schema[name][0], defs, text, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind == "object":
        wanted = schema.get("required", list(schema.get("properties") or {}))
        return {
            name: _value(one, defs, text, depth + 1)
            for name, one in (schema.get("properties") or {}).items()
            if name in wanted
        }
    if kind == "array":
        return [_value(schema.get("items", {}), defs, text, depth + 1) for _ in range(int(schema.get("minItems", 1)))]
    if kind in ("integer", "number"):
        return _number(schema, kind)
    if kind == "boolean":
        return True
    return None if kind == "null" else _text(schema, text)


def _number(schema: dict[str, Any], kind: str) -> int | float:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is not None:
        least = least + 1 if "exclusiveMinimum" in schema and kind == "integer" else least
        if "exclusiveMinimum" in schema and kind == "number":
            least = (least + most) / 2 if most is not None else least + 1
    found = least if least is not None else 1 if most is None else min(1, most - ("exclusiveMaximum" in schema))
    step = schema.get("multipleOf")
    if step:
        found = -(-found // step) * step
    return int(found) if kind == "integer" else float(found)


def _text(schema: dict[str, Any], text: str) -> str:
    found = _FORMATS.get(str(schema.get("format")), text)
    found = found.ljust(int(schema.get("minLength", 0)), ".")
    return found[: schema["maxLength"]] if "maxLength" in schema else found
