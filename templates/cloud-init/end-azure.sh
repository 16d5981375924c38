#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# end-azure.sh delete: deletes this virtual machine with the token of its own managed identity; its disk, interface and
# address go with it. end-azure.sh check: reads it with the same token, which needs the same role. Exit 0: Azure
# accepted the request. Needs curl, and no other credentials. The token is in no argument and in no file.
# For tests: METADATA and MANAGER replace the addresses of the metadata service and of Resource Manager.
set -u
METADATA=${METADATA:-http://169.254.169.254}

fail() {
    echo "gpuprov: this virtual machine cannot delete itself: $1" >&2
    exit 1
}
metadata() { curl -q -sS --fail --noproxy '*' -m 20 -H 'Metadata: true' "$METADATA/metadata/$1"; }

case ${1:-} in
delete) method=DELETE query='&forceDeletion=true' ;;
check) method=GET query='' ;;
*) fail "usage: end-azure.sh delete|check" ;;
esac
command -v curl >/dev/null || fail 'it has no curl; use an image with curl'

compute='instance/compute'
id=$(metadata "$compute/resourceId?api-version=2021-02-01&format=text") || fail 'the metadata service does not name it'
case $id in
*[!A-Za-z0-9._/-]* | *..*) fail 'the metadata service returned a malformed resource id' ;;
/subscriptions/*/resource[Gg]roups/*/providers/Microsoft.Compute/virtualMachines/?*) ;;
*) fail 'the metadata service returned a malformed resource id' ;;
esac
cloud=$(metadata "$compute/azEnvironment?api-version=2021-02-01&format=text") ||
    fail 'the metadata service does not name its cloud'
case $cloud in
AzurePublicCloud) resource=https://management.azure.com ;;
AzureUSGovernmentCloud) resource=https://management.usgovcloudapi.net ;;
AzureChinaCloud) resource=https://management.chinacloudapi.cn ;;
*) fail 'it is in an unknown cloud of Azure' ;;
esac
token=$(metadata "identity/oauth2/token?api-version=2018-02-01&resource=$resource" |
    sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
case $token in
'' | *[!A-Za-z0-9._~+/=-]*) fail 'its managed identity has no token' ;;
esac
status=$(printf 'header = "Authorization: Bearer %s"\n' "$token" |
    curl -q -sS -K - -m 60 -X "$method" -o /dev/null -w '%{http_code}' \
        "${MANAGER:-$resource}$id?api-version=2025-04-01$query") ||
    fail "Resource Manager did not answer"
case $status in
2??) ;;
403) fail 'HTTP 403: its managed identity does not have its role (yet)' ;;
*) fail "Resource Manager answered HTTP $status" ;;
esac
