# SPDX-License-Identifier: Apache-2.0
"""Checks requests to Azure and the stand-in's replies against Microsoft's API description (api/azure.json): an
unknown or mistyped field, an unknown query parameter or another API version is refused."""
import json
import pathlib
import re
import urllib.parse

import jsonschema

API = pathlib.Path(__file__).resolve().parent / "api" / "azure.json"
PLAIN = ("type", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems")


class Refused(Exception):
    pass


class Schemas:
    """Swagger definitions as JSON schemas that take no unknown member. request: nor one that only the server sets."""

    def __init__(self, source, request):
        self.source, self.request, self.made = source, request, {}
        self.definitions = {name: self.open(s) for name, s in source.items()}

    def is_free(self, s, seen=()):
        if "$ref" in s:
            name = s["$ref"].rsplit("/", 1)[1]
            return name in seen or self.is_free(self.source[name], seen + (name,))
        if "properties" in s or "additionalProperties" in s:
            return False
        return all(self.is_free(part, seen) for part in s.get("allOf", []))

    def closed(self, s):
        o = self.open(s)
        is_object = "$ref" in s or "properties" in s or "allOf" in s
        return dict(o, unevaluatedProperties=False) if is_object and not self.is_free(s) else o

    def open(self, s):
        if "$ref" in s:
            return {"$ref": "#/$defs/" + s["$ref"].rsplit("/", 1)[1]}
        o = {k: s[k] for k in PLAIN if k in s}
        if "enum" in s and "x-open" not in s:
            o["enum"] = s["enum"]
        hidden = {n for n, p in s.get("properties", {}).items() if self.request and p.get("readOnly")}
        if "properties" in s:
            o["properties"] = {n: self.closed(p) for n, p in s["properties"].items() if n not in hidden}
        if s.get("required"):
            o["required"] = [n for n in s["required"] if n not in hidden]
        if isinstance(s.get("additionalProperties"), dict):
            o["additionalProperties"] = self.closed(s["additionalProperties"])
        if isinstance(s.get("items"), dict):
            o["items"] = self.closed(s["items"])
        if "allOf" in s:
            o["allOf"] = [self.open(part) for part in s["allOf"]]
        return o

    def check(self, schema, value, where):
        key = json.dumps(schema, sort_keys=True)
        if key not in self.made:
            self.made[key] = jsonschema.Draft202012Validator(dict(self.closed(schema), **{"$defs": self.definitions}))
        for e in self.made[key].iter_errors(value):
            at = "/".join(str(p) for p in e.absolute_path)
            raise Refused("%s: %s: %s" % (where, at or "(top)", e.message[:300]))


class Operation:
    def __init__(self, name, path, query, body, row):
        self.name, self.path, self.query, self.body, self.row = name, path, query, body, row


def members_once(pairs):
    names = [k for k, _ in pairs]
    if len(names) != len(set(names)):
        raise ValueError("a member twice")
    return dict(pairs)


class Gate:
    def __init__(self):
        self.rows = []
        for f in json.loads(API.read_text())["files"].values():
            request, reply = Schemas(f["definitions"], True), Schemas(f["definitions"], False)
            for template, item in f["paths"].items():
                words = [p for p in re.split(r"(\{[^}]+\})", template) if p]
                pattern = "".join("(?P<%s>%s)" % (p[1:-1], ".+" if p == "{scope}" else "[^/]+") if p[0] == "{"
                                  else re.escape(p) for p in words)
                for method, o in item.items():
                    if method == "parameters":
                        continue
                    given = item.get("parameters", []) + o.get("parameters", [])
                    given = [f["parameters"][p["$ref"].rsplit("/", 1)[1]] if "$ref" in p else p for p in given]
                    self.rows.append({"method": method.upper(), "pattern": re.compile(pattern, re.I), "name":
                                      o["operationId"], "given": given, "version": f["version"], "replies":
                                      o["responses"], "request": request, "reply": reply})
        self.rows.sort(key=lambda r: "scope" in r["pattern"].pattern)

    def check(self, method, target, headers, body, any_version=False):
        parts = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        for row in self.rows:
            hit = row["pattern"].fullmatch(parts.path)
            if hit and row["method"] == method:
                break
        else:
            raise Refused("no operation for %s %s" % (method, parts.path))
        where = row["name"]
        if query.get("api-version") != row["version"] and not any_version:
            raise Refused("%s: api-version %s, the description is of %s" % (where, query.get("api-version"),
                                                                           row["version"]))
        known = {p["name"]: p for p in row["given"] if p["in"] == "query"}
        for name in query:
            if name not in known and name != "$skiptoken":
                raise Refused("%s: unknown query parameter %s" % (where, name))
        for name, p in known.items():
            if p.get("required") and name not in query:
                raise Refused("%s: query parameter %s is missing" % (where, name))
        wanted = [p for p in row["given"] if p["in"] == "body"]
        value = None
        if body:
            if not wanted:
                raise Refused("%s: a body, but none is described" % where)
            if headers.get("content-type", "").split(";")[0] != "application/json":
                raise Refused("%s: content-type %s" % (where, headers.get("content-type")))
            try:
                value = json.loads(body, object_pairs_hook=members_once)
            except ValueError as e:
                raise Refused("%s: the body is not JSON: %s" % (where, e)) from e
            row["request"].check(wanted[0]["schema"], value, where)
        elif wanted and wanted[0].get("required"):
            raise Refused("%s: no body" % where)
        path = {k: urllib.parse.unquote(v) for k, v in hit.groupdict().items()}
        return Operation(where, path, query, value, row)

    @staticmethod
    def answer(operation, status, value):
        described = operation.row["replies"].get(str(status))
        if described is None:
            raise Refused("%s: the stand-in's status %s is not described" % (operation.name, status))
        if value is not None and "schema" in described:
            operation.row["reply"].check(described["schema"], value, operation.name + " (reply)")
