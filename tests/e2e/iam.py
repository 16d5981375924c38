# SPDX-License-Identifier: Apache-2.0
"""Decides requests by an IAM policy: the operators that gpuprov's own policy uses, and no others (an unknown
operator or effect is an error, so that a new one is not passed over). Written from AWS's description of
the policy language; it shares nothing with the code that prints the policy."""
import re


def like(pattern, value):
    """IAM's wildcards: * is any text, ? one character."""
    parts = ["." if c == "?" else ".*" if c == "*" else re.escape(c) for c in pattern]
    return re.fullmatch("".join(parts), value, re.S) is not None


def as_list(value):
    return value if isinstance(value, list) else [value]


TESTS = {
    "StringEquals": lambda wanted, value: value == wanted,
    "StringLike": like,
    "Bool": lambda wanted, value: value.lower() == wanted.lower(),
}


def holds(operator, key, wanted, context):
    """One line of a Condition. A key that the request does not have fails every operator but Null and
    ForAllValues."""
    values = {k.lower(): v for k, v in context.items()}.get(key.lower())
    if operator == "Null":
        return (values is None or values == []) == (wanted == "true")
    if operator.startswith("ForAllValues:"):
        test = TESTS[operator.split(":", 1)[1]]
        return all(any(test(w, v) for w in as_list(wanted)) for v in as_list(values or []))
    test = TESTS[operator]
    if values is None:
        return False
    assert isinstance(values, str), f"{key} has several values: {operator} needs ForAllValues or ForAnyValue"
    return any(test(w, values) for w in as_list(wanted))


def statement_allows(statement, action, resource, context):
    assert statement["Effect"] == "Allow" and set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
    return (any(like(a.lower(), action.lower()) for a in as_list(statement["Action"]))
            and any(like(r, resource) for r in as_list(statement["Resource"]))
            and all(holds(operator, key, wanted, context)
                    for operator, keys in statement.get("Condition", {}).items() for key, wanted in keys.items()))


def allowed(policy, *needs):
    """Whether every (action, resource, context) of one request is allowed by some statement."""
    return all(any(statement_allows(s, action, resource, context) for s in policy["Statement"])
               for action, resource, context in needs)
