/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a URL, by which it is decided whether secrets may be sent there: libcurl must not read another one. */
#include "base/gp_base.h"

#include "base/form.h"

#include <curl/curl.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_FREE char *url = xstrndup((const char *)data, size);
    struct url_place p;
    char *host = NULL, *scheme = NULL;
    if (!form_url(url, &p)) return 0;
    CURLU *u = curl_url();
    if (curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK) {
        if (p.https != (strcmp(scheme, "https") == 0)) abort();
        bool loopback =
            strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
        if (form_url_is_loopback(&p) && !loopback) abort();
    }
    curl_free(host);
    curl_free(scheme);
    curl_url_cleanup(u);
    return 0;
}
