"""Parts of the schemas of the definitions that Gatehouse brings along."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
SIZE: Schema = {"type": "string", "pattern": r"^\d{1,4}(k|m|g)?$"}
TIME: Schema = {"type": "string", "pattern": r"^[0-9]{1,4}(ms|s|m|h)?$"}
COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
SECURE_URL: Schema = {"type": "string", "pattern": "^https://"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
LOOSE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def fields(needed: str = "", /, *rules: tuple[str, str], **properties: Schema) -> Schema:
    """Return the schema of an object; ``needed`` names the required fields."""
    # kube-apiserver stores no empty object. An apply would conflict with its owner each time.
    result: Schema = {"type": "object", **({"properties": properties} if properties else {})}
    if needed:
        result["required"] = needed.split()
    if rules:
        result["x-kubernetes-validations"] = [checked(*rule) for rule in rules]
    return result


def checked(rule: str, message: str) -> Schema:
    """Return a validation rule."""
    return {"rule": rule, "message": message}


def several(items: Schema, *rules: tuple[str, str], least: int = 0, most: int = 0) -> Schema:
    """Return the schema of a list."""
    result: Schema = {"type": "array", "items": items}
    result |= {"minItems": least} if least else {}
    result |= {"maxItems": most} if most else {}
    if rules:
        result["x-kubernetes-validations"] = [checked(*rule) for rule in rules]
    return result


def one_of(*values: str) -> Schema:
    """Return the schema of an enum."""
    return {"type": "string", "enum": list(values)}
