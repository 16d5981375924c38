# SPDX-License-Identifier: Apache-2.0
"""Compares requests with the API description that botocore has: an unknown parameter, a value of another type, a
value that an enumeration does not have, or a missing required parameter is an error.

complaint(call) returns None or what is wrong with a faultproxy.Call."""
import base64
import binascii
import functools
import json
import re

import botocore.session
import botocore.validate

SERVICES = {"AmazonSSM": "ssm", "ServiceQuotasV20190624": "service-quotas"}
OPEN = {"InstanceType"}  # enumerations that grow: a spec may name a type that this botocore does not know
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Wrong(Exception):
    pass


@functools.cache
def model(service):
    return botocore.session.Session().get_service_model(service)


def known_by(name, shape):
    """The name of a structure's member in EC2's query protocol."""
    s = shape.serialization
    if "queryName" in s:
        return s["queryName"]
    return s["name"][0].upper() + s["name"][1:] if "name" in s else name


def branches(params):
    """{"A.1.B": "x"} as {"A": {"1": {"B": "x"}}}."""
    root = {}
    for key, value in params.items():
        *path, last = key.split(".")
        at = root
        for word in path:
            at = at.setdefault(word, {})
            if not isinstance(at, dict):
                raise Wrong(f"{key}: a value and members of one name")
        if last in at:
            raise Wrong(f"{key}: a value and members of one name")
        at[last] = value
    return root


def scalar(shape, text, path):
    kind = shape.type_name
    if isinstance(text, dict):
        raise Wrong(f"{path}: members where a {kind} belongs")
    if kind in ("integer", "long"):
        if not re.fullmatch(r"-?\d+", text):
            raise Wrong(f"{path}: {text!r} is not a number")
        return int(text)
    if kind in ("double", "float"):
        return float(text)
    if kind == "boolean":
        if text not in ("true", "false"):
            raise Wrong(f"{path}: {text!r} is neither true nor false")
        return text == "true"
    if kind == "timestamp":
        if not TIME.fullmatch(text):
            raise Wrong(f"{path}: {text!r} is not a time")
        return text
    if kind == "blob":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as e:
            raise Wrong(f"{path}: not base64") from e
    if getattr(shape, "enum", None) and text not in shape.enum and shape.name not in OPEN:
        raise Wrong(f"{path}: {text!r} is none of {', '.join(shape.enum[:20])}")
    return text


def value(shape, tree, path):
    """The tree of a shape as botocore's validation takes it."""
    if shape.type_name == "structure":
        if not isinstance(tree, dict):
            raise Wrong(f"{path}: a value where members belong")
        names = {known_by(name, member): (name, member) for name, member in shape.members.items()}
        got = {}
        for key, branch in tree.items():
            if key not in names:
                raise Wrong(f"{path or 'request'}: unknown parameter {key!r}")
            name, member = names[key]
            got[name] = value(member, branch, f"{path}.{key}".lstrip("."))
        return got
    if shape.type_name == "list":
        if not isinstance(tree, dict) or sorted(tree, key=str) != sorted(map(str, range(1, len(tree) + 1)), key=str):
            raise Wrong(f"{path}: not a list that is counted from 1 without gaps")
        return [value(shape.member, tree[str(i)], f"{path}.{i}") for i in range(1, len(tree) + 1)]
    return scalar(shape, tree, path)


def check(operation, got):
    report = botocore.validate.ParamValidator().validate(got, operation.input_shape)
    if report.has_errors():
        raise Wrong(report.generate_report().replace("\n", "; "))


def ec2(params):
    """The input of an EC2 request as boto3 would take it."""
    params = dict(params)
    action, version = params.pop("Action"), params.pop("Version", "")
    service = model("sts" if version == "2011-06-15" else "ec2")
    if version != service.api_version:
        raise Wrong(f"Version {version!r} is not {service.api_version}")
    if action not in service.operation_names:
        raise Wrong(f"there is no {action}")
    operation = service.operation_model(action)
    got = value(operation.input_shape, branches(params), "")
    check(operation, got)
    return got


def of_json(target, body):
    prefix, action = target.split(".")
    operation = model(SERVICES[prefix]).operation_model(action)
    check(operation, json.loads(body))


def complaint(call):
    try:
        target = call.headers.get("X-Amz-Target", "")
        if "Action" in call.params:
            ec2(call.params)
        elif target.split(".")[0] in SERVICES:
            of_json(target, call.body)
    except (Wrong, KeyError, ValueError) as e:
        return f"{call.action}: {e}"
    return None
