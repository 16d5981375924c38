# SPDX-License-Identifier: Apache-2.0
"""The proofs of core/model/proof.h, written a second time: for stand-ins and tests that forge or check them."""
import hashlib
import hmac

KEY = hmac.new(b"fixed", b"test", hashlib.sha256).digest()  # of tests/drivers/one_stack.h


def _mac(key, *fields):
    text = "".join(f"{len(str(f))}:{f}" for f in fields)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def token(text, key=KEY):
    return _mac(key, "token", text)


def launch(uid, first, count, attempt, key=KEY):
    return _mac(key, "launch", uid, first, count, attempt)[:32]


def machine(uid, provider, id, slot, fingerprint, key=KEY):
    return _mac(key, "machine", uid, provider, id, slot, fingerprint)[:32]


def deadline(uid, expires_s, key=KEY):
    return _mac(key, "deadline", uid, expires_s)[:32]
