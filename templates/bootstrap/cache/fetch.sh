# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# sh fetch.sh URL FILE: fetches one file for the package cache, with the tool that this system fetches its packages
# with. Redirections are not followed: they would lead to a host that no package source names.
url=$1 file=$2
host=${url#*://}
host=${host%%/*}
host=${host%%:*}
# A name that this node cannot resolve is left to its own proxy.
for address in $(getent ahosts "$host" 2>/dev/null | cut -d' ' -f1 | sort -u); do
    case $address in
    127.* | 0.* | 169.254.* | 100.100.100.200 | 192.0.0.192 | 168.63.129.16 | ::1 | :: | ::ffff:* | fe[89ab]?:* | fd00:ec2::*)
        echo "$host is $address, which is not fetched from" >&2
        exit 1
        ;;
    esac
done
if [ -x /usr/lib/apt/apt-helper ]; then
    exec /usr/lib/apt/apt-helper -q -q -o Acquire::Retries=2 -o Acquire::http::AllowRedirect=false \
        -o Acquire::https::AllowRedirect=false -o "APT::Sandbox::User=$(id -un)" download-file "$url" "$file"
elif command -v curl >/dev/null 2>&1; then
    # a redirection is no failure for curl
    [ "$(curl -fsS --proto =http,https --retry 2 -o "$file" -w '%{http_code}' "$url")" = 200 ]
    exit
elif command -v wget >/dev/null 2>&1; then
    exec wget -q --max-redirect=0 --tries=3 -O "$file" "$url"
fi
echo 'this node has neither apt-helper nor curl nor wget' >&2
exit 1
