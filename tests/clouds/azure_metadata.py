# SPDX-License-Identifier: Apache-2.0
"""The metadata service of a machine, of the stand-in for Azure."""
import time
import urllib.parse

from mock import Fault  # noqa: UP026 (the file beside this one)

CLIENT = "22222222-2222-2222-2222-222222222222"
MANAGER = "https://management.azure.com"


class Metadata:
    def metadata_token(self, target, headers):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        if headers.get("metadata") != "true" or query.get("api-version") != "2018-02-01" or \
                query.get("resource", "").rstrip("/") != MANAGER:
            raise Fault(400, {"error": "invalid_request", "error_description": "Required metadata header not specified"})
        return 200, {}, {"access_token": self.token(), "client_id": CLIENT, "expires_in": "3600",
                         "expires_on": str(int(time.time()) + 3600), "resource": query["resource"],
                         "token_type": "Bearer"}

    def instance_metadata(self, path):
        return 200, {}, {"resourceId": self.machine_id, "azEnvironment": "AzurePublicCloud"}[path.split("/")[-1]].encode()
