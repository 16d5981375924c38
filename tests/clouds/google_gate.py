# SPDX-License-Identifier: Apache-2.0
"""Requests and replies of a Google API, checked against its discovery document: unknown names, wrong types, fields that
only the server sets, missing parameters."""
import json
import re
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema


class Gate:
    """The discovery document as a check of requests and replies."""

    def __init__(self, doc):
        self.doc, self.methods, self.validators = doc, [], {}
        for resource in doc["resources"].values():
            for method in resource["methods"].values():
                pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", method["path"])
                self.methods.append((method["httpMethod"], re.compile("/" + doc["servicePath"] + pattern), method))
        self.schemas = {True: {n: self._schema(s, True) for n, s in doc["schemas"].items()},
                        False: {n: self._schema(s, False) for n, s in doc["schemas"].items()}}

    def _schema(self, s, request):
        if "$ref" in s:
            return {"$ref": "#/$defs/" + s["$ref"]}
        kind = s.get("type", "any")
        if kind == "any":
            return {}
        if kind == "array":
            return {"type": "array", "items": self._schema(s["items"], request)}
        if kind == "object":
            more = s.get("additionalProperties")
            known = {n: self._schema(p, request) for n, p in s.get("properties", {}).items()
                     if not (request and p.get("readOnly"))}
            return {"type": "object", "properties": known,
                    "additionalProperties": self._schema(more, request) if more else False}
        out = {"type": kind}
        if kind == "string" and s.get("format") in ("int64", "uint64"):
            out["pattern"] = "^-?[0-9]+$" if s["format"] == "int64" else "^[0-9]+$"
        if "enum" in s:
            out["enum"] = s["enum"]
        elif request and "pattern" in s:
            out["pattern"] = "^(?:" + s["pattern"] + ")$"
        if s.get("format") == "int32":
            out.update(minimum=-2 ** 31, maximum=2 ** 31 - 1)
        return out

    def validate(self, ref, request, obj):
        """The first fault as text, or None."""
        key = (ref, request)
        if key not in self.validators:
            self.validators[key] = jsonschema.Draft202012Validator(
                {"$ref": "#/$defs/" + ref, "$defs": self.schemas[request]})
        fault = jsonschema.exceptions.best_match(self.validators[key].iter_errors(obj))
        return None if fault is None else "%s: %s" % ("/".join(str(p) for p in fault.absolute_path),
                                                  fault.message[:300])

    def _parameter(self, name, p, value):
        if p.get("type") == "boolean" and value not in ("true", "false"):
            return f"{name}={value} is not true or false"
        if p.get("type") == "integer" or p.get("format") in ("int64", "uint64"):
            if not re.fullmatch(r"-?\d+", value):
                return f"{name}={value} is not a number"
            if float(value) < float(p.get("minimum", value)) or float(value) > float(p.get("maximum", value)):
                return f"{name}={value} is out of range"
        if "enum" in p and value not in p["enum"]:
            return f"{name}={value} is none of {p['enum']}"
        if "pattern" in p and not re.fullmatch(p["pattern"], value):
            return f"{name}={value} does not match {p['pattern']}"
        return None

    def check(self, method, target, body):
        """(method's description, path arguments, query, object), or raises ValueError."""
        url = urlsplit(target)
        fits = [(m, p.fullmatch(url.path)) for verb, p, m in self.methods if verb == method and p.fullmatch(url.path)]
        if not fits:
            raise ValueError(f"no method {method} {url.path}")
        found, hit = fits[0]
        query, parameters = {}, found["parameters"]
        args = {k: unquote(v) for k, v in hit.groupdict().items()}
        for k, v in args.items():
            fault = self._parameter(k, parameters.get(k, {}), v)
            if fault:
                raise ValueError(fault)
        for k, values in parse_qs(url.query, keep_blank_values=True, strict_parsing=bool(url.query)).items():
            p = parameters.get(k) or self.doc["parameters"].get(k)
            if p is None or p.get("location") == "path" or len(values) != 1:
                raise ValueError(f"query parameter {k} of {found['id']}")
            fault = self._parameter(k, p, values[0])
            if fault:
                raise ValueError(fault)
            query[k] = values[0]
        obj = None
        if "request" in found:
            obj = json.loads(body)
            fault = self.validate(found["request"]["$ref"], True, obj)
            if fault:
                raise ValueError(f"{found['id']}: {fault}")
            for name, p in self.doc["schemas"][found["request"]["$ref"]].get("properties", {}).items():
                if found["id"] in p.get("annotations", {}).get("required", []) and name not in obj:
                    raise ValueError(f"{found['id']}: {name} is missing")
        elif body:
            raise ValueError(f"{found['id']} has no body")
        return found, args, query, obj
