/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the host key of a server. Pinned lines or fingerprints decide alone; without them the known_hosts
 * file decides, by libssh2's matcher, with each matching pattern replaced by the host's name. A changed or
 * revoked key is never accepted. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/form.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define KNOWN_HOSTS_MAX ((size_t)16 << 20)
#define HOST_KEY_LINE_MAX 8192
#define KNOWN_LOCK_MS 5000
#define KNOWN_POLL_MS 20

static const struct {
    const char *name;
    int mask;
} key_types[] = {
    {"ssh-ed25519", LIBSSH2_KNOWNHOST_KEY_ED25519},
    {"ecdsa-sha2-nistp256", LIBSSH2_KNOWNHOST_KEY_ECDSA_256},
    {"ecdsa-sha2-nistp384", LIBSSH2_KNOWNHOST_KEY_ECDSA_384},
    {"ecdsa-sha2-nistp521", LIBSSH2_KNOWNHOST_KEY_ECDSA_521},
    {"ssh-rsa", LIBSSH2_KNOWNHOST_KEY_SSHRSA},
};

int ssh_host_key_line(const char *line, char **ret, struct gp_error *err) {
    for (const char *p = line; *p != '\0'; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f || p - line >= HOST_KEY_LINE_MAX)
            return gp_fail(err, GP_EUSAGE, "a host key is one line of at most %d characters", HOST_KEY_LINE_MAX);
    GP_AUTO_STR struct str blob = {0};
    GP_AUTO_FREE char *made = ssh_line_blob(line, &blob) ? ssh_blob_line(blob.s, blob.len) : NULL;
    for (size_t i = 0; made != NULL && i < GP_ARRAY_LEN(key_types); i++) {
        size_t n = strlen(key_types[i].name);
        if (strncmp(made, key_types[i].name, n) != 0 || made[n] != ' ') continue;
        *ret = GP_STEAL(made);
        return 0;
    }
    return gp_fail(err, GP_EUSAGE, "'%.40s' is not a host key line of a known type", line);
}

int ssh_known_host(const char *const *fingerprints, size_t n, const char *host, const char *type, const char *base64,
                   struct str *out, struct gp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!form_fingerprint(fingerprints[i]))
            return gp_fail(err, GP_EUSAGE, "'%.80s' is not a fingerprint", fingerprints[i]);
    /* "[host]:port" or a host; ssh uses "NONE" for a key that it does not have yet. */
    if (host[0] == '\0' || strpbrk(host, " \t\r\n,*?!|@#") != NULL)
        return gp_fail(err, GP_EUSAGE, "'%.80s' is not the name of a known host", host);
    GP_AUTO_FREE char *shown = xasprintf("%s %s", type, base64), *line = NULL;
    char print[80];
    if (ssh_host_key_line(shown, &line, NULL) != 0 || ssh_key_fingerprint(line, print, sizeof print, NULL) != 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(fingerprints[i], print) == 0) {
            str_addf(out, "%s %s\n", host, line);
            break;
        }
    return 0;
}

/* The name as OpenSSH writes it: the port only when it is not 22. */
static char *known_name(const struct ssh_target *t) {
    return ssh_port(t) == 22 ? xstrdup(t->host) : xasprintf("[%s]:%u", t->host, (unsigned)ssh_port(t));
}

static bool has_pattern(const char *hosts) { return strpbrk(hosts, "*?!") != NULL; }

/* OpenSSH's rule: some pattern matches and no negated one does. */
static bool pattern_matches(const char *hosts, const char *name) {
    GP_AUTO_STRV struct strv list = {0};
    strv_split(&list, hosts, ",");
    bool hit = false;
    for (size_t i = 0; i < list.n; i++) {
        bool negated = list.v[i][0] == '!';
        GP_AUTO_STR struct str escaped = {0};
        for (const char *p = list.v[i] + negated; *p != '\0'; p++) {
            if (strchr("[]\\", *p) != NULL) str_addc(&escaped, '\\');
            str_addc(&escaped, *p);
        }
        if (escaped.len == 0 || fnmatch(escaped.s, name, FNM_CASEFOLD) != 0) continue;
        if (negated) return false;
        hit = true;
    }
    return hit;
}

struct known {
    LIBSSH2_KNOWNHOSTS *hosts;
    struct strv revoked; /* "TYPE BASE64" */
    char *name;
};

static void known_clear(struct known *k) {
    if (k->hosts != NULL) libssh2_knownhost_free(k->hosts);
    strv_clear(&k->revoked);
    free(k->name);
}

static void known_line(struct known *k, const struct ssh_target *t, const char *line) {
    while (*line == ' ' || *line == '\t') line++;
    if (*line == '\0' || *line == '#') return;
    if (*line == '@') {
        if (!str_starts(line, "@revoked")) return; /* libssh2 does not support certificates */
        GP_AUTO_STRV struct strv w = {0};
        strv_split(&w, line, " \t\r");
        if (w.n >= 4 && (w.v[1][0] == '|' || pattern_matches(w.v[1], k->name) || pattern_matches(w.v[1], t->host)))
            strv_take(&k->revoked, xasprintf("%s %s", w.v[2], w.v[3]));
        return;
    }
    size_t n = strcspn(line, " \t");
    GP_AUTO_FREE char *hosts = xstrndup(line, n);
    if (hosts[0] != '|' && has_pattern(hosts)) {
        if (pattern_matches(hosts, k->name) || pattern_matches(hosts, t->host)) {
            GP_AUTO_FREE char *plain = xasprintf("%s%s", k->name, line + n);
            libssh2_knownhost_readline(k->hosts, plain, strlen(plain), LIBSSH2_KNOWNHOST_FILE_OPENSSH);
        }
        return;
    }
    /* A line that libssh2 cannot read is ignored, as OpenSSH does. */
    libssh2_knownhost_readline(k->hosts, line, strlen(line), LIBSSH2_KNOWNHOST_FILE_OPENSSH);
}

static int known_load(const struct ssh_target *t, struct ssh_session *s, struct known *k, struct gp_error *err) {
    k->name = known_name(t);
    k->hosts = libssh2_knownhost_init(s->lib);
    if (k->hosts == NULL) return gp_fail(err, GP_EENV, "libssh2 could not create a host list");
    if (t->known_hosts == NULL) return 0;
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    int r = fs_read(t->known_hosts, KNOWN_HOSTS_MAX, &text, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r != 0) return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY", "%s", why.msg);
    for (char *line = text.s, *next = NULL; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        known_line(k, t, line);
    }
    return 0;
}

/* LIBSSH2_KNOWNHOST_CHECK_*: first by the name with its port. An entry without the port may match, but its
 * mismatch does not count (ssh does the same). */
static int known_check(const struct known *k, const struct ssh_target *t, const char *key, size_t n, int enc, int type,
                       struct libssh2_knownhost **ret) {
    int mask = LIBSSH2_KNOWNHOST_TYPE_PLAIN | enc | type;
    int c = libssh2_knownhost_check(k->hosts, k->name, key, n, mask, ret);
    if (c != LIBSSH2_KNOWNHOST_CHECK_NOTFOUND || ssh_port(t) == 22) return c;
    int plain = libssh2_knownhost_check(k->hosts, t->host, key, n, mask, ret);
    return plain == LIBSSH2_KNOWNHOST_CHECK_MATCH ? plain : c;
}

/* Looks up an impossible key of each type: a mismatch means that a key of this type is known. */
static bool known_has_type(const struct known *k, int mask) {
    struct libssh2_knownhost *found = NULL;
    return libssh2_knownhost_check(k->hosts, k->name, "AAAA", 0,
                                   LIBSSH2_KNOWNHOST_TYPE_PLAIN | LIBSSH2_KNOWNHOST_KEYENC_BASE64 | mask,
                                   &found) == LIBSSH2_KNOWNHOST_CHECK_MISMATCH;
}

bool ssh_known_hosts_has(const char *path, const char *host, uint16_t port) {
    GP_AUTO_SSH_TARGET struct ssh_target t = {.host = xstrdup(host), .port = port, .known_hosts = xstrdup(path)};
    struct ssh_session s = {.lib = libssh2_session_init_ex(NULL, NULL, NULL, NULL)};
    struct known k = {0};
    bool has = false;
    if (s.lib != NULL && known_load(&t, &s, &k, NULL) == 0)
        for (size_t i = 0; i < GP_ARRAY_LEN(key_types) && !has; i++) has = known_has_type(&k, key_types[i].mask);
    known_clear(&k);
    if (s.lib != NULL) libssh2_session_free(s.lib);
    return has;
}

static bool pinned_has_type(const struct ssh_target *t, const char *type) {
    size_t n = strlen(type);
    for (size_t i = 0; i < t->host_keys.n; i++)
        if (strncmp(t->host_keys.v[i], type, n) == 0 && t->host_keys.v[i][n] == ' ') return true;
    return false;
}

int ssh_hostkey_prefer(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err) {
    const struct ssh_target *t = a->target;
    GP_CLEANUP(known_clear) struct known k = {0};
    bool pinned = t->host_keys.n > 0;
    if (!pinned) {
        int r = known_load(t, s, &k, err);
        if (r != 0) return r;
    }
    GP_AUTO_STR struct str prefs = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < GP_ARRAY_LEN(key_types); i++) {
            bool have = pinned ? pinned_has_type(t, key_types[i].name) : known_has_type(&k, key_types[i].mask);
            if (have == (pass == 1)) continue;
            bool rsa = strcmp(key_types[i].name, "ssh-rsa") == 0;
            /* Never RSA with SHA-1: a server that has nothing else fails with an error of its own. */
            str_addf(&prefs, "%s%s", prefs.len > 0 ? "," : "", rsa ? "rsa-sha2-512,rsa-sha2-256" : key_types[i].name);
        }
    }
    return ssh_prefer(s, LIBSSH2_METHOD_HOSTKEY, prefs.s, err);
}

static int check_pinned(const struct ssh_attempt *a, const char *line, const char *print, struct gp_error *err) {
    const struct strv *keys = &a->target->host_keys;
    for (size_t i = 0; i < keys->n; i++) {
        const char *want = keys->v[i];
        if (str_starts(want, "SHA256:")) {
            if (form_fingerprint(want) && strcmp(want, print) == 0) return 0;
            continue;
        }
        GP_AUTO_STR struct str blob = {0}, mine = {0};
        if (ssh_line_blob(want, &blob) && ssh_line_blob(line, &mine) && blob.len == mine.len &&
            memcmp(blob.s, mine.s, mine.len) == 0)
            return 0;
    }
    char expected[80] = "";
    if (ssh_key_fingerprint(keys->v[0], expected, sizeof expected, NULL) != 0)
        str_put(expected, sizeof expected, keys->v[0]);
    return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY",
                           "%s showed host key %s, but %s%s is pinned: another machine answers, or it "
                           "was reinstalled; nothing was sent to it",
                           a->where, print, expected, keys->n > 1 ? " (or another)" : "");
}

/* Whoever can read the file can lock it, another user, too: the wait has an end. */
static int known_lock(const struct ssh_attempt *a, int fd, struct gp_error *err) {
    const char *path = a->target->known_hosts;
    int64_t deadline_ms = ssh_part_deadline(a, KNOWN_LOCK_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return gp_fail_errno(err, GP_EIO, errno, "could not add the host key to '%s'", path);
        if (clock_left_ms(deadline_ms) == 0)
            return gp_fail(err, GP_EIO,
                           "could not add the host key to '%s': another process keeps it locked: end that process "
                           "('fuser -v' with the file names it), or set host_key",
                           path);
        int r = gp_sleep(KNOWN_POLL_MS, a->cancel, err);
        if (r != 0) return r;
    }
    return 0;
}

static int known_append(const struct ssh_attempt *a, const char *name, const char *line, struct gp_error *err) {
    const char *path = a->target->known_hosts, *slash = strrchr(path, '/');
    GP_AUTO_FREE char *folder = xstrndup(path, slash != NULL ? (size_t)(slash - path) : 0);
    if (folder[0] != '\0' && mkdir(folder, 0700) != 0 && errno != EEXIST) /* ~/.ssh, as OpenSSH makes it */
        return gp_fail_errno(err, GP_EIO, errno, "could not create '%s' for the host key", folder);
    GP_AUTO_FD int fd = -1;
    int r = fs_open_output(path, O_RDWR | O_APPEND | O_CREAT, 0600, &fd, err);
    if (r != 0) return gp_wrap(err, "could not add the host key");
    struct stat st = {0};
    char last = '\n';
    if (fstat(fd, &st) != 0) return gp_fail_errno(err, GP_EIO, errno, "could not add the host key to '%s'", path);
    /* /dev/null keeps nothing, and any user can lock it */
    if (S_ISREG(st.st_mode) && (r = known_lock(a, fd, err)) != 0) return r;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1) last = '\0';
    GP_AUTO_FREE char *entry = xasprintf("%s%s %s\n", last == '\n' ? "" : "\n", name, line);
    r = fs_write_all(fd, entry, strlen(entry));
    if (r != 0) return gp_fail_errno(err, GP_EIO, -r, "could not add the host key to '%s'", path);
    return 0;
}

static int check_known(const struct ssh_attempt *a, struct ssh_session *s, const char *key, size_t n, const char *print,
                       struct gp_error *err) {
    const struct ssh_target *t = a->target;
    GP_CLEANUP(known_clear) struct known k = {0};
    int r = known_load(t, s, &k, err);
    if (r != 0) return r;
    const char *file = t->known_hosts != NULL ? t->known_hosts : "no known_hosts file";
    if (strv_has(&k.revoked, s->host_key))
        return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY", "%s showed host key %s, which '%s' revokes", a->where, print,
                               file);
    struct libssh2_knownhost *found = NULL;
    switch (known_check(&k, t, key, n, LIBSSH2_KNOWNHOST_KEYENC_RAW, 0, &found)) {
    case LIBSSH2_KNOWNHOST_CHECK_MATCH: return 0;
    case LIBSSH2_KNOWNHOST_CHECK_MISMATCH:
        return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY",
                               "the host key of %s changed: it shows %s, which '%s' does not have; if "
                               "the machine was reinstalled, run: ssh-keygen -f '%s' -R '%s'",
                               a->where, print, file, file, k.name);
    case LIBSSH2_KNOWNHOST_CHECK_NOTFOUND: break;
    default:
        return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY", "could not check the host key of %s in '%s'", a->where, file);
    }
    if (t->accept_new) return t->known_hosts ? known_append(a, k.name, s->host_key, err) : 0;
    if (t->known_hosts == NULL)
        return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY",
                               "%s showed host key %s, and no trusted key is configured: set its "
                               "host_key or known_hosts",
                               a->where, print);
    return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY",
                           "'%s' has no key of %s; it shows %s: compare it on the machine "
                           "(ssh-keygen -lf), then set host_key, or accept it with "
                           "--accept-new-host-key",
                           file, a->where, print);
}

int ssh_hostkey_check(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err) {
    size_t n = 0;
    int type = 0;
    const char *key = libssh2_session_hostkey(s->lib, &n, &type);
    s->host_key = key != NULL ? ssh_blob_line(key, n) : NULL;
    if (s->host_key == NULL)
        return ssh_fail_detail(err, GP_EAUTH, "HOST_KEY", "%s showed a malformed host key", a->where);
    char print[80];
    ssh_blob_fingerprint(key, n, print, sizeof print);
    return a->target->host_keys.n > 0 ? check_pinned(a, s->host_key, print, err)
                                      : check_known(a, s, key, n, print, err);
}
