"""The page /v1/docs: the OpenAPI document as plain HTML. It loads nothing, so it works offline.
Pure."""

from __future__ import annotations

import html
import json
from typing import Any, Final

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#8882;border-radius:4px;padding:0 .3em}
pre{padding:.6em;overflow:auto}summary{cursor:pointer}table{border-collapse:collapse}
td{padding:.1em .8em .1em 0;vertical-align:top}.m{display:inline-block;width:5em;font-weight:bold}
:root{color-scheme:light dark}
"""
_METHODS: Final = ("get", "post", "patch", "put", "delete")


def render(document: dict[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    groups: dict[str, list[str]] = {}
    for path, item in document.get("paths", {}).items():
        for method in _METHODS:
            if method in item:
                operation = item[method]
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append(_operation(path, method, operation, document))
    parts = [f"<h2>{_text(tag)}</h2>{''.join(rows)}" for tag, rows in groups.items()]
    title = _text(document.get("info", {}).get("title", ""))
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>{_text(document.get('info', {}).get('description', ''))}</p>"
        f"<p>The same for programs: <a href=/v1/openapi.json>/v1/openapi.json</a></p>"
        f"{''.join(parts)}"
    )


def _operation(path: str, method: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{_text(entry['name'])}</code><td>{_text(entry['in'])}"
        f"<td>{_text(entry.get('description', ''))}"
        for entry in operation.get("parameters", [])
    ]
    parameters = f"<table>{''.join(rows)}</table>" if rows else ""
    body = _schema(operation.get("requestBody", {}), document)
    answers = "".join(
        f"<p>{_text(status)} {_text(answer.get('description', ''))}</p>" + _schema(answer, document)
        for status, answer in operation.get("responses", {}).items()
    )
    return (
        f"<details><summary><span class=m>{method.upper()}</span> <code>{_text(path)}</code> "
        f"{_text(operation.get('summary', ''))}</summary>"
        f"<p>{_text(operation.get('description', ''))}</p>{parameters}"
        f"{'<p>Body</p>' + body if body else ''}{answers}</details>"
    )


def _schema(holder: dict[str, Any], document: dict[str, Any]) -> str:
    content: dict[str, Any] = next(iter(holder.get("content", {}).values()), {})
    schema = content.get("schema", {})
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        schema = document.get("components", {}).get("schemas", {}).get(name, {})
    properties = schema.get("properties", {})
    rows = [
        f"<tr><td><code>{_text(key)}</code><td>{_text(_kind(value))}"
        f"<td>{_text(value.get('description', ''))} {_examples(value)}"
        for key, value in properties.items()
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _kind(value: dict[str, Any]) -> str:
    if "oneOf" in value or "anyOf" in value:
        return " or ".join(map(_kind, value.get("oneOf") or value.get("anyOf") or []))
    return str(value.get("type") or str(value.get("$ref", "")).rpartition("/")[2] or "any")


def _examples(value: dict[str, Any]) -> str:
    examples = value.get("examples") or []
    return f"<code>{_text(json.dumps(examples[0]))}</code>" if examples else ""


def _text(value: object) -> str:
    return html.escape(str(value))
