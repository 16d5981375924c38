# SPDX-License-Identifier: Apache-2.0
"""Google's token services and the metadata server, as a part of the stand-in cloud (google_cloud.py): signatures are
verified, and a wrong claim is refused."""
import base64
import datetime
import json
import threading
import time
import uuid
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from mock import Fault  # noqa: UP026  (the one of this folder)

PROJECT = "proj-1"
EMAIL = "gpuprov@proj-1.iam.gserviceaccount.com"
USER = "somebody@example.com"
ROBOT = "robot@proj-1.iam.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE = "https://oauth2.googleapis.com/token"
KEYS, KEYS_LOCK = {}, threading.Lock()


def private_key():
    """One for the process: making it takes a while. Several clouds may start at once."""
    with KEYS_LOCK:
        if not KEYS:
            KEYS["key"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return KEYS["key"]


def error(status, reason, message):
    return Fault(status, {"error": {"code": status, "message": message,
                                    "errors": [{"message": message, "domain": "global", "reason": reason}]}})


class Tokens:
    """A part of Google: needs its `tokens`, `grants`, `token_s` and `project`."""

    def _new_token(self, email):
        token = "ya29." + uuid.uuid4().hex
        self.tokens[token] = (email, time.time() + self.token_s)
        return {"access_token": token, "expires_in": self.token_s, "token_type": "Bearer"}

    @staticmethod
    def _refuse_token(code, text):
        return 400, {}, {"error": code, "error_description": text}

    def _verify(self, assertion):
        """The claims of a JWT that the key of EMAIL signed; raises on any other."""
        def part(s):
            return base64.urlsafe_b64decode(s + "=" * (-len(s) % 4))
        head, claims, signature = assertion.split(".")
        private_key().public_key().verify(part(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(),
                                          hashes.SHA256())
        head, claims = json.loads(part(head)), json.loads(part(claims))
        assert head["alg"] == "RS256" and head["typ"] == "JWT" and head["kid"] == "k1", head
        assert claims["iss"] == EMAIL and claims["aud"] == AUDIENCE and SCOPE in claims["scope"].split(), claims
        assert claims["exp"] - claims["iat"] == 3600 and abs(claims["iat"] - time.time()) < 600, claims
        return claims

    def _token(self, headers, body):
        if headers.get("content-type") != "application/x-www-form-urlencoded":
            return self._refuse_token("invalid_request", "content type")
        form = {k: v[0] for k, v in parse_qs(body.decode(), strict_parsing=True).items()}
        self.grants.append(form["grant_type"])
        if form["grant_type"] == "refresh_token":
            wanted = {"grant_type": "refresh_token", "client_id": "client", "client_secret": "secret-of-client",
                      "refresh_token": "1//refresh-token"}
            return (200, {}, self._new_token(USER)) if form == wanted else self._refuse_token("invalid_grant", "Bad")
        if form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange":
            if form["subject_token"] != "subject-token" or form["audience"] != "//iam.googleapis.com/pool":
                return self._refuse_token("invalid_grant", "The subject token is not valid")
            return 200, {}, dict(self._new_token("subject"), issued_token_type="access_token")
        try:
            assert set(form) == {"grant_type", "assertion"}, sorted(form)
            self._verify(form["assertion"])
        except Exception as e:  # pylint: disable=broad-except
            return self._refuse_token("invalid_grant", f"Invalid JWT: {e!r}")
        return 200, {}, self._new_token(EMAIL)

    def _bearer(self, headers):
        kind, _, token = headers.get("authorization", "").partition(" ")
        email, until = self.tokens.get(token, (None, 0))
        if kind != "Bearer" or until < time.time():
            raise error(401, "authError", "Request had invalid authentication credentials.")
        return email

    def _other_services(self, method, target, headers, body):
        path = urlsplit(target).path
        if path in ("/token", "/sts") and method == "POST":
            return self._token(headers, body)
        if path == "/tokeninfo":
            email, _ = self.tokens[parse_qs(body.decode())["access_token"][0]]
            return 200, {}, {"email": email, "scope": SCOPE}
        if path.startswith("/v1/projects/-/serviceAccounts/"):
            self._bearer(headers)
            assert json.loads(body)["scope"] == [SCOPE]
            until = datetime.datetime.fromtimestamp(int(time.time()) + 3600, datetime.timezone.utc)
            token = self._new_token(path.rsplit("/", 1)[1].split(":")[0])["access_token"]
            return 200, {}, {"accessToken": token, "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        if path.startswith("/computeMetadata/v1/"):
            if headers.get("metadata-flavor") != "Google":
                return 403, {}, b"missing header"
            found = {"instance/service-accounts/default/token": lambda: self._new_token(EMAIL),
                     "instance/service-accounts/default/email": EMAIL.encode,
                     "instance/service-accounts/default/": lambda: {"aliases": ["default"], "email": EMAIL, "scopes": [SCOPE]},
                     "project/project-id": self.project.encode}.get(path[len("/computeMetadata/v1/"):])
            return (200, {"Metadata-Flavor": "Google"}, found()) if found else (404, {}, b"")
        if path == "/subject":
            return 200, {}, {"token": "subject-token"}
        return None
