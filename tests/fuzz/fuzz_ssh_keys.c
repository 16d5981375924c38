/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a private key's file, and as what an agent answers: a key whose type is known has a public half of that
 * type, and nothing is signed with what was not understood. */
#include "base/gp_base.h"

#include "core/ssh/agent.c"

#include <fcntl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static void key_file(const char *data, size_t size) {
    GP_AUTO_SECRET struct secret pem = {0};
    GP_AUTO_SSH_KEYFILE struct ssh_keyfile k = {0};
    struct gp_error err = {0};
    secret_set(&pem, data, size);
    int r = ssh_keyfile_inspect("key 'k'", &pem, &k, &err);
    must((r != 0) == (err.code != GP_OK));
    if (r != 0) return;
    must((k.type != NULL) == (k.blob.len > 0) && (k.type != NULL || k.encrypted));
    if (k.type == NULL) return;
    GP_AUTO_FREE char *line = ssh_blob_line(k.blob.s, k.blob.len);
    must(line == NULL || (strpbrk(line, "\r\n\t") == NULL && str_starts(line, k.type)));
    (void)ssh_keytype_usable("key 'k'", k.type, NULL);
}

static void agent(const char *data, size_t size) {
    static const unsigned char what[] = "data";
    int pair[2];
    struct gp_error err = {0};
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    int room = 1 << 20;
    (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    must(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
    (void)send(pair[1], data, size, MSG_NOSIGNAL); /* both answers, and then it is gone */
    (void)shutdown(pair[1], SHUT_WR);
    GP_AUTO_SSH_AGENT struct ssh_agent a = {.fd = pair[0], .deadline_ms = clock_deadline(1000)};
    int r = agent_list(&a, &err);
    must((r != 0) == (err.code != GP_OK));
    for (size_t i = 0; i < a.keys.len; i++) {
        const struct ssh_agent_key *k = &a.keys.items[i];
        must(k->type != NULL && k->comment != NULL);
        GP_AUTO_FREE char *line = ssh_blob_line(k->blob.s, k->blob.len);
        must(line == NULL || strpbrk(line, "\r\n\t") == NULL);
    }
    if (r == 0 && a.keys.len > 0) {
        GP_AUTO_STR struct str sig = {0};
        gp_error_clear(&err);
        r = ssh_agent_sign(&a, &a.keys.items[0], what, sizeof what - 1, &sig, &err);
        must((r != 0) == (err.code != GP_OK) && (r == 0 || sig.len == 0));
    }
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536) return 0;
    key_file((const char *)data, size);
    agent((const char *)data, size);
    return 0;
}
