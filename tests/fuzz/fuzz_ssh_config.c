/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenSSH configuration of a target whose every field is foreign: refused, or it reads back, by a reader
 * of its own, as lines of known keywords whose values are the target's. The commands in it are this program
 * with its own hidden verbs, word for word. Input: a byte of flags, then fields ended by NUL: host, user, key
 * path, known_hosts path, socket, program, host of the bastion, user of the bastion, then host keys. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "ssh/ssh.h"

#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FLAG_DIAL = 1, FLAG_BASTION = 2, FLAG_PEM = 4, FLAG_NEW = 8, FLAG_NO_USER = 16, FLAG_NO_KNOWN = 32 };
enum { HOST, USER, KEY, KNOWN, SOCKET, SELF, OUTER_HOST, OUTER_USER, FIELDS };

static void need_at(bool ok, int line) {
    if (ok) return;
    fprintf(stderr, "%s:%d does not hold\n", __FILE__, line);
    abort();
}
#define need(ok) need_at(ok, __LINE__)

/* --- ssh's way to read a line: words, quotes of both kinds, a backslash before a quote, one of its own
 * kind or (outside quotes) a blank; '#' before a word starts a comment --- */

static bool escaped(const char *p, char quote) {
    return p[0] == '\\' && (p[1] == '\'' || p[1] == '"' || p[1] == '\\' || (quote == '\0' && p[1] == ' '));
}

static void split(const char *s, struct strv *ret) {
    while (*s != '\0') {
        s += strspn(s, " \t");
        if (*s == '\0') return;
        need(*s != '#');
        GP_AUTO_STR struct str word = {0};
        str_add(&word, "");
        char quote = '\0';
        for (; *s != '\0' && (quote != '\0' || (*s != ' ' && *s != '\t')); s++) {
            if (escaped(s, quote)) str_addc(&word, *++s);
            else if (quote == '\0' && (*s == '"' || *s == '\'')) quote = *s;
            else if (quote != '\0' && *s == quote) quote = '\0';
            else str_addc(&word, *s);
        }
        need(quote == '\0');
        strv_take(ret, str_steal(&word));
    }
}

/* % tokens: only the doubled one, which becomes one. */
static char *undouble(const char *s) {
    GP_AUTO_STR struct str out = {0};
    str_add(&out, "");
    for (; *s != '\0'; s++) {
        if (*s == '%') need(*++s == '%');
        str_addc(&out, *s);
    }
    return str_steal(&out);
}

/* A shell's way: single quotes, \' between them, and outside of them nothing that means something to it. */
static void shell_split(const char *s, struct strv *ret) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    while (*s != '\0') {
        GP_AUTO_STR struct str word = {0};
        str_add(&word, "");
        while (*s != '\0' && *s != ' ') {
            if (*s == '\'') {
                const char *end = strchr(s + 1, '\'');
                need(end != NULL);
                str_add_mem(&word, s + 1, (size_t)(end - s - 1));
                s = end + 1;
            } else if (s[0] == '\\' && s[1] == '\'') {
                str_addc(&word, '\'');
                s += 2;
            } else {
                need(strchr(plain, *s) != NULL);
                str_addc(&word, *s++);
            }
        }
        strv_take(ret, str_steal(&word));
        s += strspn(s, " ");
    }
}

/* --- what may stand in it --- */

static bool is_print(const char *s) {
    return strncmp(s, "SHA256:", 7) == 0 && strlen(s) == 50 &&
           strspn(s + 7, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/") == 43;
}

static void known_command(const struct strv *w, const char *self) {
    need(w->n >= 7 && strcmp(w->v[1], self) == 0 && strcmp(w->v[2], "__known_host") == 0);
    size_t i = 3;
    while (i < w->n && is_print(w->v[i])) i++;
    need(i > 3 && w->n == i + 4 && strcmp(w->v[i], "--") == 0 && strcmp(w->v[i + 1], "%H") == 0 &&
         strcmp(w->v[i + 2], "%t") == 0 && strcmp(w->v[i + 3], "%K") == 0);
}

static void proxy_command(const char *value, const struct ssh_target *t, const char *self) {
    if (strcmp(value, "none") == 0) return;
    GP_AUTO_FREE char *text = undouble(value), *port = xasprintf("%u", t->port != 0 ? (unsigned)t->port : 22);
    GP_AUTO_STRV struct strv w = {0};
    shell_split(text, &w);
    need(t->dial_socket != NULL && w.n == 5 && strcmp(w.v[0], self) == 0 && strcmp(w.v[1], "__dial") == 0 &&
         strcmp(w.v[2], t->dial_socket) == 0 && strcmp(w.v[3], t->host) == 0 && strcmp(w.v[4], port) == 0);
}

static bool one_of(const char *s, const char *const *words) {
    for (; *words != NULL; words++)
        if (strcmp(s, *words) == 0) return true;
    return false;
}

static bool inside(const char *path, const char *dir) {
    return strncmp(path, dir, strlen(dir)) == 0 && path[strlen(dir)] == '/';
}

static bool is_fixed(const char *line) {
    static const char *const fixed[] = {"GlobalKnownHostsFile /dev/null",
                                        "UpdateHostKeys no",
                                        "StrictHostKeyChecking yes",
                                        "StrictHostKeyChecking accept-new",
                                        "IdentitiesOnly yes",
                                        "PreferredAuthentications publickey",
                                        "ProxyJump n-1.bastion",
                                        "ProxyJump none",
                                        "ProxyUseFdpass yes",
                                        "ServerAliveInterval 15",
                                        NULL};
    return one_of(line, fixed);
}

/* line: without its two blanks. */
static void option(const char *line, const struct ssh_target *t, const char *dir, const char *self) {
    GP_AUTO_STRV struct strv w = {0};
    split(line, &w);
    need(w.n >= 2);
    const char *key = w.v[0];
    int64_t port = 0;
    if (strcmp(key, "KnownHostsCommand") == 0) {
        known_command(&w, self);
    } else if (strcmp(key, "ProxyCommand") == 0) {
        proxy_command(line + strlen("ProxyCommand "), t, self);
    } else if (strcmp(key, "User") == 0) {
        need(w.n == 2 && t->user != NULL && strcmp(w.v[1], t->user) == 0);
    } else if (strcmp(key, "Port") == 0) {
        need(w.n == 2 && str_to_i64(w.v[1], 1, 65535, &port));
    } else if (!is_fixed(line)) {
        GP_AUTO_FREE char *value = undouble(w.v[1]);
        const char *want = strcmp(key, "HostName") == 0             ? t->host
                           : strcmp(key, "IdentityFile") == 0       ? t->key_path
                           : strcmp(key, "UserKnownHostsFile") == 0 ? t->known_hosts
                                                                    : NULL;
        bool ours = strcmp(key, "HostName") != 0 && inside(value, dir);
        need(w.n == 2 && (strcmp(key, "HostName") == 0 || strcmp(key, "IdentityFile") == 0 ||
                          strcmp(key, "UserKnownHostsFile") == 0));
        need(ours || str_eq(value, want));
    }
}

static void read_back(const struct str *out, const struct ssh_target *t, const char *dir, const char *self) {
    need(out->len > 0 && out->s[out->len - 1] == '\n' && strlen(out->s) == out->len);
    for (const char *p = out->s; *p != '\0'; p++) need(*p == '\n' || ((unsigned char)*p >= ' ' && *p != 0x7f));
    GP_AUTO_STRV struct strv lines = {0}, seen = {0};
    strv_split(&lines, out->s, "\n");
    const struct ssh_target *at = NULL;
    for (size_t i = 0; i < lines.n; i++) {
        const char *line = lines.v[i];
        if (line[0] != ' ') {
            need(strcmp(line, i == 0 ? "Host n-1" : "Host n-1.bastion") == 0);
            at = i == 0 ? t : at->bastion;
            need(at != NULL);
            strv_clear(&seen);
            continue;
        }
        need(at != NULL && line[1] == ' ' && line[2] != ' ');
        GP_AUTO_FREE char *key = xstrndup(line + 2, strcspn(line + 2, " "));
        need(!strv_has(&seen, key));
        strv_add(&seen, key);
        option(line + 2, at, dir, self);
    }
    need(at != NULL && at->bastion == NULL);
}

/* "HOST TYPE BASE64" and nothing else. */
static void read_known(const char *dir, const char *name, const struct ssh_target *t) {
    static const char *const types[] = {
        "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa", NULL};
    GP_AUTO_FREE char *path = fs_join(dir, name);
    GP_AUTO_FREE char *host =
        t->port == 0 || t->port == 22 ? xstrdup(t->host) : xasprintf("[%s]:%u", t->host, (unsigned)t->port);
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv lines = {0};
    if (fs_read(path, (size_t)1 << 20, &text, NULL) != 0 || text.len == 0) return;
    strv_split(&lines, text.s, "\n");
    need(lines.n <= t->host_keys.n);
    for (size_t i = 0; i < lines.n; i++) {
        GP_AUTO_STRV struct strv w = {0};
        strv_split(&w, lines.v[i], " ");
        need(w.n == 3 && strcmp(w.v[0], host) == 0 && one_of(w.v[1], types));
        need(w.v[2][strspn(w.v[2], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=")] == '\0');
    }
}

/* --- the input --- */

static char folder[200];

static void remove_folder(void) { fs_remove_tree(folder, NULL); }

static const char *work_dir(void) {
    if (folder[0] != '\0') return folder;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/gpuprov-fuzz-ssh-XXXXXX", tmp != NULL ? tmp : "/tmp");
    need(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    return folder;
}

static void fill(struct ssh_target *t, unsigned flags, char *const *f, const struct strv *keys) {
    t->host = xstrdup(f[HOST]);
    t->port = flags & FLAG_PEM ? 2222 : 0;
    if (!(flags & FLAG_NO_USER)) t->user = xstrdup(f[USER]);
    if (flags & FLAG_PEM) secret_set(&t->key_pem, "k", 1);
    else t->key_path = xstrdup(f[KEY]);
    if (!(flags & FLAG_NO_KNOWN)) t->known_hosts = xstrdup(f[KNOWN]);
    if (flags & FLAG_DIAL) t->dial_socket = xstrdup(f[SOCKET]);
    t->accept_new = flags & FLAG_NEW;
    strv_copy(&t->host_keys, keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    char *fields[FIELDS] = {0};
    GP_AUTO_STRV struct strv keys = {0};
    size_t at = 1, n = 0;
    while (at < size && keys.n < 4) {
        size_t len = strnlen((const char *)data + at, size - at);
        char *word = xstrndup((const char *)data + at, len);
        if (n < FIELDS) fields[n++] = word;
        else strv_take(&keys, word);
        at += len + 1;
    }
    while (n < FIELDS) fields[n++] = xstrdup("");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fill(&t, data[0], fields, &keys);
    if (data[0] & FLAG_BASTION) {
        t.bastion = xcalloc(1, sizeof *t.bastion);
        t.bastion->host = xstrdup(fields[OUTER_HOST]);
        t.bastion->user = xstrdup(fields[OUTER_USER]);
        strv_copy(&t.bastion->host_keys, &keys);
    }
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    const char *dir = work_dir();
    int r = ssh_client_config(&t, "n-1", dir, fields[SELF], &out, &err);
    if (r != 0) need(r == -GP_EUSAGE && err.code == GP_EUSAGE && out.len == 0);
    if (r == 0) {
        read_back(&out, &t, dir, fields[SELF]);
        read_known(dir, "known_hosts.n-1", &t);
        if (t.bastion != NULL) read_known(dir, "known_hosts.n-1.bastion", t.bastion);
    }
    for (size_t i = 0; i < FIELDS; i++) free(fields[i]);
    need(fs_remove_tree(dir, NULL) == 0); /* made again; nothing stays behind */
    return 0;
}
