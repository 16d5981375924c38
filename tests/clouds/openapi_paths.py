# SPDX-License-Identifier: Apache-2.0
"""A gate in front of a stand-in cloud, from the API's OpenAPI 3 description: requests with an unknown or mistyped
field or parameter are refused, and so are the stand-in's own replies, which therefore cannot drift from the API.

    gate = Gate(json.loads(path.read_text()))
    op = gate.check("POST", "/api/v1/things?x=1", headers, body)     # Refused, or the operation
    gate.reply(op, 200, {"data": {}})                                # Refused, or nothing"""
import json
import re
import urllib.parse

import jsonschema


class Refused(Exception):
    """What does not fit the description."""


class Op:
    def __init__(self, path, raw, words, query, body):
        self.path, self.raw, self.words, self.query, self.body = path, raw, words, query, body


def closed(schema):
    """The schema with unknown names of objects refused, and references as JSON Schema has them."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: {n: closed(s) for n, s in v.items()} if k == "properties" else closed(v) for k, v in schema.items()}
    if "$ref" in out:
        return {"$ref": out["$ref"].replace("#/components/schemas/", "#/$defs/")}
    if "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


def once(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


class Gate:
    def __init__(self, doc):
        self.defs = {n: closed(s) for n, s in doc["components"]["schemas"].items()}
        self.ops = []
        for path, methods in doc["paths"].items():
            pattern = re.compile("".join(f"(?P<{p[1:-1]}>[^/]+)" if p.startswith("{") else re.escape(p)
                                         for p in re.split(r"(\{\w+\})", path)))
            self.ops += [(m.upper(), pattern, path, raw) for m, raw in methods.items()]
        self.ops.sort(key=lambda op: op[2].count("{"))

    def _valid(self, schema, value, what):
        validator = jsonschema.Draft202012Validator({**closed(schema), "$defs": self.defs})
        for error in sorted(validator.iter_errors(value), key=lambda e: -len(list(e.absolute_path))):
            at = "/".join(str(p) for p in error.absolute_path)
            raise Refused(f"{what}: {at or 'the whole'}: {error.message[:300]}")

    def check(self, method, target, headers, body):
        url = urllib.parse.urlsplit(target)
        fitting = [(hit, path, raw) for m, pattern, path, raw in self.ops
                   for hit in [pattern.fullmatch(url.path)] if m == method and hit]
        if not fitting:
            raise Refused(f"{method} {url.path}: no such operation")
        hit, path, raw = fitting[0]
        what = f"{method} {path}"
        query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
        known = {p["name"]: p for p in raw.get("parameters", []) if p["in"] == "query"}
        for name, value in query:
            if name not in known:
                raise Refused(f"{what}: unknown parameter {name}")
            kind = known[name].get("schema", {})
            number = kind.get("type") in ("integer", "number")
            self._valid(kind, float(value) if number else value == "true" if kind.get("type") == "boolean" else value,
                        f"{what}?{name}")
        wanted = raw.get("requestBody", {})
        if body and not wanted:
            raise Refused(f"{what}: it takes no body")
        value = None
        if wanted and (body or wanted.get("required")):
            if headers.get("content-type", "").split(";")[0] != "application/json":
                raise Refused(f"{what}: content-type {headers.get('content-type')}")
            try:
                value = json.loads(body, object_pairs_hook=once)
            except ValueError as e:
                raise Refused(f"{what}: {e}") from e
            self._valid(wanted["content"]["application/json"]["schema"], value, what)
        words = {k: urllib.parse.unquote(v) for k, v in hit.groupdict().items()}
        return Op(what, raw, words, dict(query), value)

    def reply(self, op, status, value):
        described = op.raw["responses"].get(str(status), op.raw["responses"].get("default"))
        if described is None:
            raise Refused(f"{op.path}: a reply {status} is not described")
        content = described.get("content", {}).get("application/json")
        if content is not None:
            self._valid(content.get("schema", {}), value, f"{op.path}, reply {status}")
