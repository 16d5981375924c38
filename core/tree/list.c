/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the list of a folder, as a transfer would see it. Any thread. */
#include "base/gp_base.h"

#include "tree/list.h"

#include "tree/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

static int sum_of(struct tree_place *place, const char *path, char ret[65]) {
    unsigned char buf[32768], sum[32];
    const char *name = "";
    struct sha256 s;
    sha256_init(&s);
    int dir = place_parent(place, path, &name);
    GP_AUTO_FD int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return dir < 0 ? dir : -errno;
    for (ssize_t n = 1; n > 0;) {
        n = read(fd, buf, sizeof buf);
        if (n < 0) return -errno;
        sha256_add(&s, buf, (size_t)n);
    }
    sha256_end(&s, sum);
    str_hex(ret, sum, sizeof sum);
    return 0;
}

static void print_entry(const struct tree_entry *e, const char *sum, FILE *to) {
    GP_AUTO_STR struct str line = {0};
    const char *type = e->type == 'd' ? "folder" : e->type == 'f' ? "file" : "link";
    str_add(&line, "{\"path\": \"");
    str_add_json(&line, e->path, strlen(e->path));
    str_addf(&line, "\", \"type\": \"%s\", \"mode\": \"%04o\", \"size\": %" PRIu64 ", \"mtime\": %" PRId64 ".%09u",
             type, e->mode, e->size, e->mtime_s, e->mtime_ns);
    if (e->link != NULL) {
        str_add(&line, ", \"link\": \"");
        str_add_json(&line, e->link, strlen(e->link));
        str_add(&line, "\"");
    }
    if (sum[0] != '\0') str_addf(&line, ", \"sha256\": \"%s\"", sum);
    fprintf(to, "%s}\n", line.s);
}

int tree_list_print(const char *root, bool ignore, bool sums, FILE *to, struct gp_error *err) {
    struct tree_place place;
    struct tree_list list = {0};
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return gp_fail_errno(err, GP_EUSAGE, errno, "could not read the folder '%s'", root);
    place_init(&place, fd);
    struct walk_req req = {.place = &place, .ignore = ignore};
    int r = tree_walk(&req, &list, err);
    for (size_t i = 0; r == 0 && i < list.all.len; i++) {
        const struct tree_entry *e = &list.all.items[i];
        char sum[65] = "";
        int s = sums && e->type == 'f' ? sum_of(&place, e->path, sum) : 0;
        if (s != 0) r = gp_fail_errno(err, GP_EIO, -s, "could not read '%s'", e->path);
        else print_entry(e, sum, to);
    }
    if (fflush(to) != 0 && r == 0) r = gp_fail_errno(err, GP_EIO, errno, "could not print the list");
    tree_list_clear(&list);
    place_clear(&place);
    return r;
}
