"""The settings of a plugin: as its config class states them, and as a command line gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml
from pydantic import BaseModel

from crossbreed.core.errors import ConfigError


def settings_of(config: type[BaseModel]) -> list[dict[str, Any]]:
    """One entry a setting, in the order of the class: name, type, default (null when required), required, meaning."""
    properties = config.model_json_schema().get("properties", {})
    return [
        {
            "name": name,
            "type": _type_text(properties.get(name, {})),
            "default": None if field.is_required() else properties.get(name, {}).get("default"),
            "required": field.is_required(),
            "meaning": " ".join((field.description or "").split()),
        }
        for name, field in config.model_fields.items()
    ]


def given_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings from ``NAME=VALUE`` pairs, values as in YAML. Raises ConfigError for another form."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {pair!r} breaks the rule: NAME=VALUE, such as length=64.")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {pair!r} has a value that is no YAML.") from error
    return found


def _type_text(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type_text(option) for option in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    text = str(schema.get("type", "any"))
    if text == "array" and isinstance(schema.get("items"), dict):
        text = f"list of {_type_text(schema['items'])}"
    bounds = [
        f"{sign} {schema[key]}"
        for key, sign in (
            ("minimum", ">="),
            ("exclusiveMinimum", ">"),
            ("maximum", "<="),
            ("exclusiveMaximum", "<"),
        )
        if key in schema
    ]
    return " ".join([text, *bounds])
